"""How long does an evaluation take, stage by stage, and how many candidates a minute is that, beside a plain evaluator?

    python tests/benchmarks/evaluation.py --device cuda:0 --out result.json        (from the repository)

The candidates are of `mix.py`, a third of them cheats; the judge has one open judge a problem, whose opening counts.
Then the plain evaluator (`plain.py`) does some candidates, a fresh process and a fresh build folder each, on the idle
device: of CUDA and C++ it builds twins of our honest kernels through torch's `load_inline` (`plain_kernels/`), which is
what it is plain in. Its candidates a minute are of these alone, so they depend on how many of them are CUDA: read the
rows by problem and language as well. What is there is written after every candidate.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from figures import summary, table
from judged import evaluate_all
from mix import PROBLEMS, ROOT, device_type, mix

from agentgen.records.problem import DeviceType

HERE = Path(__file__).parent
PLAIN_TIMEOUT_S = 600.0
HONEST = ROOT / "tests" / "honest" / "triton"
TWINS = HERE / "plain_kernels"
PLAIN: dict[DeviceType, tuple[tuple[str, Path, str], ...]] = {
    "cpu": (("tests/problems/softmax", TWINS / "softmax_cpp.py", "cpp"),),
    "cuda": (
        ("problems/softmax", TWINS / "softmax_cuda.py", "cuda"),
        ("problems/softmax", HONEST / "softmax.py", "triton"),
        ("problems/layernorm", TWINS / "layernorm_cuda.py", "cuda"),
        ("problems/layernorm", HONEST / "layernorm.py", "triton"),
        ("problems/matmul", HONEST / "matmul.py", "triton"),
        ("problems/conv2d", HONEST / "conv2d.py", "triton"),
    ),
}
"""What the plain evaluator does, in turn."""
PLAIN_COUNT: dict[DeviceType, int] = {"cpu": 2, "cuda": 8}


def main() -> None:
    """Judges, evaluates plainly, writes, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--plain-count", type=int, help="by default 8 on a GPU, 2 on a CPU")
    parser.add_argument("--out", type=Path, required=True)
    arguments: Any = parser.parse_args()
    device = arguments.device
    count = arguments.plain_count
    plain_count = PLAIN_COUNT[device_type(device)] if count is None else count
    result: dict[str, Any] = {"device": device, "machine": None, "judged": [], "plain": []}
    start = time.perf_counter()
    wall_s = 0.0
    for one in evaluate_all(mix(device, arguments.count, arguments.problems), device):
        wall_s = time.perf_counter() - start
        result["machine"] = one.machine.model_dump(mode="json") if one.machine else result["machine"]
        result["judged"].append(one.row())
        tell(f"{len(result['judged'])} {one.name}: {one.outcome or one.failure}, {one.seconds:.1f} s")
        write(result, wall_s, arguments.out)
    for row in plain_all(device, plain_count):
        result["plain"].append(row)
        tell(f"plain {row['problem']} {row['language']}: {row['error'] or row['correct']}, {row['wall_s']:.1f} s")
        write(result, wall_s, arguments.out)
    sys.stdout.write(table(result["summary"]))


def write(result: dict[str, Any], wall_s: float, out: Path) -> None:
    """Writes what there is, with its summary; a reader never finds half of it."""
    result["summary"] = summary(result["judged"], result["plain"], wall_s)
    beside = out.with_name(f"{out.name}.part")
    beside.write_text(json.dumps(result, indent=1))
    beside.replace(out)


def plain_all(device: str, count: int) -> Iterator[dict[str, Any]]:
    """Yields what the plain evaluator says of its candidates, in turn."""
    for problem, kernel, language in islice(cycle(PLAIN[device_type(device)]), count):
        found = evaluate_plainly(ROOT / problem, kernel, device)
        yield {"problem": problem, "kernel": kernel.name, "language": language, **found}


def evaluate_plainly(problem: Path, kernel: Path, device: str) -> dict[str, Any]:
    """Returns one verdict of the plain evaluator, with its whole process's `wall_s`, and `error` if it failed."""
    with tempfile.TemporaryDirectory(prefix="plain-") as folder:
        environment = {
            **os.environ,
            "PATH": os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)]),  # ninja
            "PYTHONPATH": str(ROOT),
            "TORCH_EXTENSIONS_DIR": f"{folder}/extensions",
            "TRITON_CACHE_DIR": f"{folder}/triton",
            "XDG_CACHE_HOME": folder,
        }
        command = [sys.executable, str(HERE / "plain.py"), str(problem), str(kernel), "--device", device]
        start = time.perf_counter()
        try:
            done = subprocess.run(
                command, env=environment, capture_output=True, text=True, timeout=PLAIN_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            return {"error": f"no verdict in {PLAIN_TIMEOUT_S:.0f} s", "wall_s": time.perf_counter() - start}
        wall_s = time.perf_counter() - start
    if done.returncode:
        return {"error": done.stderr[-2000:] or f"exit status {done.returncode}", "wall_s": wall_s}
    return {"error": None, "wall_s": wall_s, **json.loads(done.stdout.splitlines()[-1])}


def tell(words: str) -> None:
    """Writes a line for who waits."""
    sys.stderr.write(f"{words}\n")


if __name__ == "__main__":
    main()
