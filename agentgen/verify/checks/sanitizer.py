"""compute-sanitizer over a candidate on a GPU: accesses outside allocations, races in shared memory.

The candidate runs as a program of its own (`sandbox.guest.standalone`) with the scrubbed environment of a guest.
Torch's caching allocator is off, and the tool pads every allocation: else what goes beyond one tensor would hit the
next.

Not covered: a candidate that notices the tool and behaves, or attacks it: the tool runs in the candidate's process. Its
answer is audited, so it cannot skip its work. Uninitialised memory (the poisons of other checks see that), kernels that
only other shapes reach.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from agentgen.records.candidate import Candidate
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.sandbox.guest.standalone import ANSWER, read_tensor, write_tensor
from agentgen.sandbox.process import default_limits, environment
from agentgen.verify.checks.sanitizer_output import Summary, read_summary
from agentgen.verify.findings import NotGated, Rejected, check

TIMEOUT_S = 240.0
"""A candidate that calls load_inline compiles for 50 s; racecheck slows kernels by a factor of 10 to 1000."""
_FAULTS_SHOWN = 5
_TEXT_BYTES = 1 << 20
_PADDING_BYTES = 1 << 16
_ERRORS_FOUND = 99
_OPTIONS = {
    # The API's errors after a fault are its echo, and torch probes with calls that are meant to fail.
    "memcheck": ("--padding", str(_PADDING_BYTES), "--report-api-errors", "no"),
    "racecheck": (),
}
Outputs = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Program:
    """A candidate laid out in a folder, ready to be started."""

    folder: Path
    device: str
    calls: int
    where: str
    """The workload's name."""


@dataclass(frozen=True)
class Report:
    """One run of the tool."""

    summary: Summary
    status: int | None
    """Exit status; None if it was ended because it took too long."""
    seconds: float
    outputs: Outputs | None
    """The candidate's last answer, on a CPU; None if it gave none."""
    text: str
    """What the tool printed."""
    output: str
    """The end of what the candidate printed."""


def find() -> Path | None:
    """Returns compute-sanitizer, from the PATH or a CUDA toolkit."""
    homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    folders = [os.environ.get("PATH", os.defpath), *(os.path.join(home, "bin") for home in homes if home)]
    found = shutil.which("compute-sanitizer", path=os.pathsep.join(folders))
    return Path(found) if found else None


def lay_out(
    folder: Path,
    candidate: Candidate,
    arithmetic: Arithmetic,
    *,
    workload: str,
    device: str,
    init_args: Sequence[Any],
    arguments: Sequence[Any],
    seed: int,
    calls: int = 2,
) -> Program:
    """Writes everything that the candidate needs into `folder`.

    Args:
        folder: Empty and private. Builds stay in it: the second tool that runs there need not compile again.
        candidate: Whose source it is.
        arithmetic: Of the problem.
        workload: Its name, for the evidence.
        device: `cuda:N`.
        init_args: What `ModelNew` is constructed with: JSON values.
        arguments: What it is called with, in order: tensors (made contiguous) and JSON values.
        seed: The public seed it is constructed under.
        calls: How often it is called.
    """
    described = [
        write_tensor(folder / f"input-{i}", one) if isinstance(one, torch.Tensor) else {"value": one}
        for i, one in enumerate(arguments)
    ]
    job = {
        "source": candidate.source, "arithmetic": arithmetic.value, "device": device, "init_args": list(init_args),
        "seed": seed, "inputs": described, "calls": calls, "limits": default_limits(device),
        "lifetime_s": math.ceil(2 * TIMEOUT_S),
    }  # fmt: skip
    (folder / "job.json").write_text(json.dumps(job), encoding="utf-8")
    return Program(folder, device, calls, workload)


def run_tool(sanitizer: Path, tool: str, program: Program, timeout_s: float = TIMEOUT_S) -> Report:
    """Runs the program under `tool` (`memcheck` or `racecheck`) and reads what it printed."""
    log, output = program.folder / f"{tool}.log", program.folder / f"{tool}.out"
    for old in (log, program.folder / ANSWER):
        old.unlink(missing_ok=True)
    command = [str(sanitizer), "--tool", tool, "--log-file", str(log), "--error-exitcode", str(_ERRORS_FOUND)]
    command += ["--launch-timeout", "0", "--target-processes", "application-only"]
    command += ["--show-backtrace", "no", "--print-limit", str(_FAULTS_SHOWN), *_OPTIONS[tool]]
    command += [sys.executable, "-m", "agentgen.sandbox.guest.standalone", str(program.folder / "job.json")]
    variables = {**environment(program.folder), "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    start = time.monotonic()
    with output.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=program.folder, env=variables, stdin=subprocess.DEVNULL, stdout=out,
            stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        try:
            status = process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            _end(process)
    seconds = time.monotonic() - start
    text = _text(log)
    return Report(read_summary(text), status, seconds, _outputs(program.folder), text, _text(output)[-4096:])


def _end(process: subprocess.Popen[bytes]) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)  # also what a tool that ended has left behind
    process.wait()


def _text(file: Path) -> str:
    if not file.is_file():
        return ""
    with file.open("rb") as stream:
        stream.seek(max(0, file.stat().st_size - _TEXT_BYTES))  # summaries and tracebacks stand at the end
        return stream.read(_TEXT_BYTES).decode(errors="replace")


def _outputs(folder: Path) -> Outputs | None:
    try:
        described = json.loads(_text(folder / ANSWER))
        return [read_tensor(folder / f"output-{i}", one) for i, one in enumerate(described)]
    except (OSError, ValueError, TypeError, KeyError, RuntimeError):
        return None


@check("memory checker")
def memory_checker(
    sanitizer: Path | None, program: Program, audit: Callable[[Outputs], None], timeout_s: float = TIMEOUT_S
) -> str | NotGated:
    """Runs the candidate under compute-sanitizer's memcheck on a GPU.

    Catches accesses of kernels outside every allocation or misaligned, in global, shared and local memory, also those
    that change no output. Does not catch an access that lands in another live allocation more than 64 KiB away, reads
    of memory never written, or what only other shapes or values trigger. Decides nothing where the tool is not
    installed or too slow, or the candidate does not run under it.
    """
    return _decide(sanitizer, "memcheck", Outcome.CRASHED, program, audit, timeout_s)


@check("race checker")
def race_checker(
    sanitizer: Path | None, program: Program, audit: Callable[[Outputs], None], timeout_s: float = TIMEOUT_S
) -> str | NotGated:
    """Runs the candidate under compute-sanitizer's racecheck on a GPU.

    Catches threads of one block that access the same shared memory, one of them writing, with no barrier between, even
    where the answer came out right. Does not catch races in global memory or between blocks: repeated runs look for
    those. Decides nothing where the tool is not installed or too slow, or the candidate does not run under it; hazards
    that the tool only warns of are reported.
    """
    return _decide(sanitizer, "racecheck", Outcome.NONDETERMINISTIC, program, audit, timeout_s)


def _decide(
    sanitizer: Path | None,
    tool: str,
    outcome: Outcome,
    program: Program,
    audit: Callable[[Outputs], None],
    timeout_s: float,
) -> str | NotGated:
    if program.device == "cpu":
        return NotGated("not run: it looks at GPUs")
    if sanitizer is None:
        return NotGated("not run: compute-sanitizer is not installed")
    report = run_tool(sanitizer, tool, program, timeout_s)
    summary = report.summary
    if summary.first or (summary.errors and report.status == _ERRORS_FOUND):
        count = f"{summary.errors} errors, the first: " if (summary.errors or 0) > 1 else ""
        raise Rejected(outcome, f"{tool} on {program.where}: {count}{summary.first or _lines(report.text)[:3]}")
    if report.status is None:
        return NotGated(f"not decided: {tool} on {program.where} did not end within {timeout_s:.0f} s")
    if summary.errors is None:
        return NotGated(f"not decided: {tool} came to no summary: {_lines(report.text or report.output)[-3:]}")
    if report.status or report.outputs is None:
        said = _lines(report.output)[-1:]
        return NotGated(f"not decided: under {tool} the candidate gave no answer (status {report.status}): {said}")
    audit(report.outputs)
    warned = f", {summary.warnings} hazards that it only warns of" if summary.warnings else ""
    scope = " in shared memory" if tool == "racecheck" else ""
    return f"{tool} on {program.where}, {program.calls} calls: 0 errors{scope}{warned}; {report.seconds:.1f} s"


def _lines(text: str) -> list[str]:
    return [line.strip("= ")[:300] for line in text.splitlines() if line.strip("= ")]
