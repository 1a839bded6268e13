"""A candidate as a program of its own, for tools that must start what they look at: compute-sanitizer.

    python -m agentgen.sandbox.guest.standalone FOLDER/job.json

It constructs the model under a public seed, runs it on inputs that lie as raw bytes in FOLDER, waits for the device,
and leaves the last answer there: `answer.json` with shapes and dtypes, `output-N` with bytes. Exit status 0 says that
all of this came about; otherwise a traceback is on stderr.

Not covered: secrets (there are none here, and the answer is a claim), the gate, weights other than the constructor's.
"""

from __future__ import annotations

import json
import signal
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from agentgen.sandbox.guest import candidate, limits
from agentgen.sandbox.guest.memory import DTYPES

ANSWER = "answer.json"


def write_tensor(file: Path, tensor: torch.Tensor) -> dict[str, Any]:
    """Writes a tensor's bytes, row-major, to `file`. Returns {shape, dtype}, with which `read_tensor` finds them."""
    flat = tensor.detach().cpu().contiguous().reshape(-1)
    file.write_bytes(flat.view(torch.uint8).numpy().tobytes() if flat.numel() else b"")
    return {"shape": list(tensor.shape), "dtype": str(tensor.dtype).removeprefix("torch.")}


def read_tensor(file: Path, description: Mapping[str, Any]) -> torch.Tensor:
    """Reads on a CPU what `write_tensor` wrote.

    Raises:
        OSError, ValueError, TypeError, KeyError, RuntimeError: There is no such tensor.
    """
    shape, dtype = tuple(description["shape"]), DTYPES[description["dtype"]]
    if not file.is_file():  # a pipe would be waited for
        raise FileNotFoundError(file)
    data = bytearray(file.read_bytes())
    return torch.frombuffer(data, dtype=dtype).view(shape) if data else torch.empty(shape, dtype=dtype)


def run(job: Mapping[str, Any], folder: Path) -> None:
    """Does what the job says.

    Args:
        job: {source, arithmetic, device, init_args, seed, inputs, calls}; an input is {shape, dtype} with its bytes in
            `input-N`, or {value} for an argument that is no tensor.
        folder: Where the bytes lie and the answer goes.
    """
    device = job["device"]
    candidate.set_arithmetic(job["arithmetic"])
    if device != "cpu":
        torch.cuda.set_device(device)
    inputs = [
        one["value"] if "value" in one else read_tensor(folder / f"input-{i}", one).to(device)
        for i, one in enumerate(job["inputs"])
    ]
    module = candidate.load_module(job["source"], str(folder / "candidate.py"))
    model = candidate.construct(module, job["init_args"], job["seed"], device)
    candidate.set_arithmetic(job["arithmetic"])  # whatever module and constructor switched
    answer: Any = None
    with torch.no_grad():
        if hasattr(model, "prepare"):
            model.prepare()  # pyright: ignore[reportCallIssue]  a method of the candidate's
        for _ in range(job["calls"]):
            answer = model(*inputs)
    if device != "cpu":
        torch.cuda.synchronize()
    tensors = answer if isinstance(answer, tuple | list) else [answer]
    described = [write_tensor(folder / f"output-{i}", tensor) for i, tensor in enumerate(tensors)]
    (folder / ANSWER).write_text(json.dumps(described), encoding="utf-8")


def main() -> None:
    """Reads the job, binds this process, runs."""
    file = Path(sys.argv[1]).resolve()
    job = json.loads(file.read_text(encoding="utf-8"))
    signal.alarm(job["lifetime_s"])  # if whoever waits for us dies, a kernel that hangs must not stay
    limits.enter_scratch(str(file.parent))
    limits.apply(job["limits"])
    run(job, file.parent)


if __name__ == "__main__":
    main()
