"""What a turn on a device costs: where nobody else is there, and to hand it to a process that waits.

    python tests/benchmarks/turns.py --turns 1000     (from the repository)

The figures are in docs/decisions/020-turns-and-pool.md.
"""

from __future__ import annotations

import argparse
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from agentgen.workers.turns import turn

WAITER = """
import sys, time
from pathlib import Path
from agentgen.workers.turns import turn
for line in sys.stdin:
    with turn("cpu", lambda: print("waits", flush=True), Path(sys.argv[1])):
        print(time.monotonic(), flush=True)
"""


def main() -> None:
    """Prints medians and quartiles, one line each."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=1000)
    parser.add_argument("--hands", type=int, default=50, help="times that a turn is handed on")
    arguments: Any = parser.parse_args()
    sys.stdout.write(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {platform.release()}\n")
    with tempfile.TemporaryDirectory() as folder:
        told("alone", [alone_us(Path(folder)) for _ in range(arguments.turns)])
        told("handed on", handed_us(Path(folder), arguments.hands))


def alone_us(place: Path) -> float:
    """Takes a turn and gives it back."""
    begun = time.perf_counter()
    with turn("cpu", place=place):
        pass
    return (time.perf_counter() - begun) * 1e6


def handed_us(place: Path, count: int) -> list[float]:
    """Returns how long after a turn was given back another process had it, which waited."""
    with subprocess.Popen(
        [sys.executable, "-c", WAITER, str(place)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as waiter:
        assert waiter.stdin
        assert waiter.stdout
        taken: list[float] = []
        for _ in range(count):
            with turn("cpu", place=place):
                waiter.stdin.write("\n")
                waiter.stdin.flush()
                waiter.stdout.readline()
                time.sleep(0.005)  # it says that it waits a moment before it does
                given_back = time.monotonic()
            taken.append((float(waiter.stdout.readline()) - given_back) * 1e6)
        waiter.stdin.close()
    return taken


def told(what: str, taken_us: list[float]) -> None:
    """Prints one line."""
    low, median, high = statistics.quantiles(taken_us, n=4)
    sys.stdout.write(f"{what}: {median:.0f} us [{low:.0f}, {high:.0f}], n = {len(taken_us)}\n")


if __name__ == "__main__":
    main()
