"""How long does a guest take from `start` to its first answer, as a plain process and in a jail?

    python tests/benchmarks/start.py --starts 40     (from the repository, on a machine with nothing else to do)
    setpriv --reuid=12345 --regid=12345 --clear-groups python tests/benchmarks/start.py     (as a user who may run it)

Between two guests lies a pause, in which the zygote gets the next one's control group and jail ready; `--pause 0` has
them follow each other at once, which no judge does. The figures are in docs/decisions/014-the-jail.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import sys
import time
from typing import Any

from agentgen.records.run import Isolation
from agentgen.sandbox.process import ProcessSandbox

WARM_UP = 3


def main() -> None:
    """Prints medians and quartiles, one line each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--starts", type=int, default=40)
    parser.add_argument("--pause", type=float, default=0.3, help="seconds that each guest lives")
    arguments: Any = parser.parse_args()
    sys.stdout.write(f"{processor()}, {os.cpu_count()} cores, Linux {platform.release()}, user {os.geteuid()}\n")
    for isolation in (Isolation.NONE, Isolation.JAIL):
        sandbox = ProcessSandbox("cpu", isolation=isolation)
        taken_ms = [start_ms(sandbox, arguments.pause) for _ in range(WARM_UP + arguments.starts)][WARM_UP:]
        low, median, high = statistics.quantiles(taken_ms, n=4)
        sys.stdout.write(
            f"{median:.1f} ms [{low:.1f}, {high:.1f}], n = {len(taken_ms)}, to the first answer: {sandbox.isolation}\n"
        )
        sandbox.close()


def start_ms(sandbox: ProcessSandbox, pause_s: float) -> float:
    """Starts a guest, which answers a ping before it is handed out, and ends it."""
    begun = time.perf_counter()
    guest = sandbox.start()
    taken_s = time.perf_counter() - begun
    time.sleep(pause_s)
    guest.kill()
    return taken_s * 1e3


def processor() -> str:
    """Returns the name of the processor."""
    with open("/proc/cpuinfo", encoding="utf-8") as lines:
        return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown")


if __name__ == "__main__":
    main()
