"""A plain evaluator, as many have written it: what ours is compared with. One candidate, one process.

    python tests/benchmarks/plain.py problems/softmax tests/benchmarks/plain_kernels/softmax_cuda.py --device cuda:0

It imports torch and the candidate (whose `load_inline` runs nvcc or g++ over torch's headers), draws inputs on the CPU
five times, copies them to the device and compares with `torch.allclose` at 1e-4, then times 100 calls of the candidate
and 100 of the reference. The last line on stdout is a JSON object: `correct`, median times in microseconds, and seconds
by stage:

    import       torch
    context      the device's
    build        the candidate's module is run: nvcc or g++; Triton only defines its kernels there
    correctness  five times: inputs drawn, copied, both called, compared. Triton compiles in the first
    inputs       drawn and copied once more for each of the two timing loops
    timing       both loops

so that the stages are those of KernelBench's evaluator (commit 423217d, `eval_kernel_against_ref`, 5 and 100 calls) as
it was measured on an H200: import 2.2 to 2.5 s, context 0.1, build 34 to 36 (`load_inline`), correctness of softmax at
(4096,65536) 6.8 to 7.9 and inputs 2.6 to 2.8, softmax in Triton 14.6 s in all and in CUDA 48.7 s. It imports its own
package as well (0.5 s), which is missing here. `draws` is the part of `correctness` in which inputs were drawn and
copied.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import statistics
import sys
import time
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

TOLERANCE = 1e-4
DRAWS = 5
CALLS = 100
WARM_UP = 3
SEED = 42


class Stopwatch:
    """Seconds by stage."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Adds the time spent inside to a stage."""
        start = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - start


def main() -> None:
    """Evaluates one candidate and prints the verdict."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problem", type=Path, help="a problem's folder")
    parser.add_argument("kernel", type=Path)
    parser.add_argument("--device", default="cpu")
    arguments: Any = parser.parse_args()
    watch = Stopwatch()
    verdict = evaluate(arguments.problem, arguments.kernel, arguments.device, watch)
    sys.stdout.write(json.dumps({**verdict, "seconds": watch.seconds}) + "\n")


def evaluate(problem: Path, kernel: Path, device: str, watch: Stopwatch) -> dict[str, Any]:
    """Returns whether the candidate is correct, and both median times."""
    with watch.stage("import"):
        import torch
    with watch.stage("context"):
        if device != "cpu":
            torch.cuda.set_device(device)
        torch.zeros(1, device=device)
        synchronise(device)
    reference = stated(problem, device)
    with watch.stage("build"):
        candidate_module = load("candidate", kernel)
    torch.manual_seed(SEED)
    model = reference.Model(*reference.get_init_inputs()).to(device)
    torch.manual_seed(SEED)
    candidate = candidate_module.ModelNew(*reference.get_init_inputs()).to(device)

    def inputs() -> list[Any]:
        drawn = [x.to(device) if isinstance(x, torch.Tensor) else x for x in reference.get_inputs()]
        synchronise(device)
        return drawn

    with torch.no_grad():
        with watch.stage("correctness"):
            agreed = [agrees(model, candidate, inputs, device, watch) for _ in range(DRAWS)]
        medians_us: list[float] = []
        for call in (candidate, model):
            with watch.stage("inputs"):
                drawn = inputs()
            with watch.stage("timing"):
                medians_us.append(benchmark(call, drawn, device))
    return {"correct": all(agreed), "candidate_us": medians_us[0], "reference_us": medians_us[1]}


def stated(problem: Path, device: str) -> ModuleType:
    """Returns the reference's module at `main`."""
    import yaml

    reference = load("reference", problem / "reference.py")
    workloads = yaml.safe_load((problem / "problem.yaml").read_text())["workloads"]
    main_of = next(workload for workload in workloads if workload["name"] == "main")
    constants: Mapping[str, Any] = main_of.get("cpu_constants", {}) if device == "cpu" else {}
    vars(reference).update({**main_of.get("constants", {}), **constants})
    return reference


def load(name: str, path: Path) -> ModuleType:
    """Imports a file under a name."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def agrees(model: Any, candidate: Any, inputs: Callable[[], list[Any]], device: str, watch: Stopwatch) -> bool:
    """Whether both say the same of one draw, as far as this evaluator cares."""
    import torch

    with watch.stage("draws"):
        drawn = inputs()
    expected = model(*drawn)
    synchronise(device)
    out = candidate(*drawn)
    synchronise(device)
    return out.shape == expected.shape and torch.allclose(out, expected, rtol=TOLERANCE, atol=TOLERANCE)


def benchmark(call: Any, inputs: list[Any], device: str) -> float:
    """Returns the median time of a call in microseconds: CUDA's events on a GPU, else the wall."""
    import torch

    for _ in range(WARM_UP):
        call(*inputs)
    synchronise(device)
    times_us: list[float] = []
    for _ in range(CALLS):
        if device == "cpu":
            start = time.perf_counter()
            call(*inputs)
            times_us.append(1e6 * (time.perf_counter() - start))
        else:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            call(*inputs)
            last.record()
            torch.cuda.synchronize()
            times_us.append(1e3 * first.elapsed_time(last))
    return statistics.median(times_us)


def synchronise(device: str) -> None:
    """Waits for the device."""
    import torch

    if device != "cpu":
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
