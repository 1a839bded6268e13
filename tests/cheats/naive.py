"""A harness as many have written it: draw, run, compare with `allclose`, time. What the cheats here are shown to fool.

Candidate and reference share a process, inputs and outputs; one draw under a known seed; one absolute and relative
tolerance; the same inputs for every timed call; the verdict is a line on stdout.

    python naive.py                        serves: a line of arguments, as JSON, on stdin; a line of verdict on stdout
    python naive.py PROBLEM KERNEL ...     one verdict
"""

from __future__ import annotations

import importlib.util
import json
import os
import statistics
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import yaml

TOLERANCE = 1e-2
SEED = 0
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
WARM_UP, TIMED = (0, 1) if INTERPRETED else (3, 20)


def load(name: str, path: Path) -> ModuleType:
    """Imports a file under a name, as any program would."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def close(out: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two answers are the same, as far as this harness cares; NaN is where NaN is expected."""
    return torch.allclose(out.cpu(), expected.cpu(), rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)


def synchronise(device: str) -> None:
    """Waits for the device."""
    if device != "cpu":
        torch.cuda.synchronize()


def check(model: Any, candidate: Any, inputs: list[Any], reference_first: bool, device: str) -> bool:
    """Runs both on the same inputs."""
    if reference_first:
        expected = model(*inputs)
        out = candidate(*inputs)
    else:
        out = candidate(*inputs)
        expected = model(*inputs)
    synchronise(device)
    return close(out, expected)


def benchmark(call: Any, inputs: list[Any], device: str) -> float:
    """Returns the median time of a call in microseconds."""
    for _ in range(WARM_UP):
        call(*inputs)
    synchronise(device)
    times: list[float] = []
    for _ in range(TIMED):
        if device == "cpu":
            start = time.perf_counter()
            call(*inputs)
            times.append(1e6 * (time.perf_counter() - start))
        else:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            call(*inputs)
            last.record()
            torch.cuda.synchronize()
            times.append(1e3 * first.elapsed_time(last))
    return statistics.median(times)


def main(problem: str, kernel: str, reference_first: bool, device: str) -> None:
    """Judges one kernel and prints the verdict."""
    reference = load("reference", Path(problem) / "reference.py")
    main_of = yaml.safe_load((Path(problem) / "problem.yaml").read_text())["workloads"][0]
    constants: Mapping[str, Any] = {**main_of.get("constants", {}), **main_of.get("cpu_constants", {})}
    if device == "cpu":
        vars(reference).update(constants)
    torch.manual_seed(SEED)
    model = reference.Model(*reference.get_init_inputs()).to(device)
    inputs = [x.to(device) if isinstance(x, torch.Tensor) else x for x in reference.get_inputs()]
    module = load("candidate", Path(kernel))
    torch.manual_seed(SEED)
    candidate = module.ModelNew(*reference.get_init_inputs()).to(device)
    with torch.no_grad():
        correct = check(model, candidate, inputs, reference_first, device)
        candidate_us = benchmark(candidate, inputs, device)
        reference_us = benchmark(model, inputs, device)
    said = {"correct": correct, "candidate_us": candidate_us, "reference_us": reference_us}
    sys.stdout.write(json.dumps(said) + "\n")  # at once: unbuffered, `print` writes the end of the line after it
    sys.stdout.flush()


def serve() -> None:
    """Forks for each request: torch is imported once."""
    for line in sys.stdin:
        asked: dict[str, Any] = json.loads(line)
        pid = os.fork()
        if pid == 0:
            os.setsid()
            out = os.open(asked["verdict"], os.O_CREAT | os.O_WRONLY, 0o600)
            os.dup2(out, 1)
            os.dup2(os.open(asked["log"], os.O_CREAT | os.O_WRONLY, 0o600), 2)
            os.chdir(asked["folder"])
            sys.path.insert(0, asked["folder"])
            main(asked["problem"], asked["kernel"], asked["reference_first"], asked["device"])
            sys.exit(0)
        _, status = os.waitpid(pid, 0)
        print(json.dumps({"status": os.waitstatus_to_exitcode(status)}), flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1], sys.argv[2], "candidate-first" not in sys.argv, "cuda:0" if "cuda" in sys.argv else "cpu")
    else:
        serve()
