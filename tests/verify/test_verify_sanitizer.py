"""The checks, with a program in compute-sanitizer's place. On a GPU where it is installed, the tool itself."""

from __future__ import annotations

import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from sanitizer_texts import CLEAN, HEAD, NO_SUMMARY, OUT_OF_BOUNDS, RACE, WARNED

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.sandbox.guest.standalone import read_tensor, write_tensor
from agentgen.verify.checks import sanitizer
from agentgen.verify.checks.sanitizer import Program, lay_out, memory_checker, race_checker
from agentgen.verify.findings import Findings, Named, Rejected

# ---- the checks, with a program that stands where the tool stands ----------------------------------------------------


class Audit:
    """Notes what it was shown."""

    def __init__(self) -> None:
        self.outputs: Sequence[torch.Tensor] | None = None

    def __call__(self, outputs: Sequence[torch.Tensor]) -> None:
        self.outputs = outputs


def laid_out(folder: Path, source: str = "") -> Program:
    candidate = Candidate(source=source, language=Language.CUDA)
    return lay_out(
        folder, candidate, Arithmetic.FP32, workload="tiny", device="cuda:0", init_args=(),
        arguments=(torch.ones(2, 3), 7), seed=1,
    )  # fmt: skip


def tool(folder: Path, log: str, *, status: int = 0, answers: bool = True, before: str = "") -> Path:
    """A program that prints `log` where it is told to, and answers for the candidate."""
    (folder / "said").write_text(log, encoding="utf-8")
    write_tensor(folder / "output-0", torch.arange(3.0))
    answer = """echo '[{"shape": [3], "dtype": "float32"}]' > answer.json""" if answers else "echo Traceback"
    script = folder / "compute-sanitizer"
    script.write_text(f'#!/bin/sh\n{before}\ncat said > "$4"\nenv > seen\n{answer}\nexit {status}\n', encoding="utf-8")
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    return script


def test_a_clean_run_passes_with_its_answer_audited(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    audit, findings = Audit(), Findings()
    program = laid_out(tmp_path)
    memory_checker(findings, tool(tmp_path, CLEAN), program, audit)
    assert findings.checks[0].passed
    assert findings.checks[0].evidence.startswith("memcheck on tiny, 2 calls: 0 errors; ")
    assert audit.outputs is not None
    assert torch.equal(audit.outputs[0], torch.arange(3.0))
    seen = (tmp_path / "seen").read_text()
    assert "PYTORCH_NO_CUDA_MEMORY_CACHING=1" in seen
    assert "OPENAI" not in seen
    race_checker(findings, tool(tmp_path, WARNED), program, audit)
    assert findings.checks[1].passed
    assert "0 errors in shared memory, 1 hazards that it only warns of" in findings.checks[1].evidence


def test_faults_reject_and_name_the_first(tmp_path: Path) -> None:
    findings, program = Findings(), laid_out(tmp_path)
    with pytest.raises(Rejected) as wrong:
        memory_checker(findings, tool(tmp_path, OUT_OF_BOUNDS, status=1, answers=False), program, Audit())
    assert wrong.value.outcome is Outcome.CRASHED
    assert "24 errors, the first: Invalid __global__ write of size 4 bytes in scale(" in wrong.value.reasons[0]
    assert "(candidate.cu:12), by thread (232,0,0)" in wrong.value.reasons[0]
    with pytest.raises(Rejected) as raced:
        race_checker(findings, tool(tmp_path, RACE, status=99), program, Audit())
    assert raced.value.outcome is Outcome.NONDETERMINISTIC
    assert "candidate.cu:27 and candidate.cu:30" in raced.value.reasons[0]
    unknown = HEAD + "========= Something new\n========= ERROR SUMMARY: 1 error\n"
    with pytest.raises(Rejected, match="Something new"):
        memory_checker(findings, tool(tmp_path, unknown, status=99), program, Audit())
    assert [check.passed for check in findings.checks] == [False, False]


@pytest.mark.parametrize(
    ("log", "status", "answers", "said"),
    [
        (CLEAN, 1, False, r"under memcheck the candidate gave no answer \(status 1\): \['Traceback'\]"),
        (CLEAN, 0, False, "the candidate gave no answer"),
        (NO_SUMMARY, 1, True, "came to no summary: .*terminated before first instrumented API call"),
        ("", 1, False, r"came to no summary: \['Traceback'\]"),
    ],
)
def test_what_was_not_decided_says_why(tmp_path: Path, log: str, status: int, answers: bool, said: str) -> None:
    findings, audit = Findings(), Audit()
    memory_checker(findings, tool(tmp_path, log, status=status, answers=answers), laid_out(tmp_path), audit)
    assert findings.checks[0].passed is None
    assert audit.outputs is None
    assert re.search(said, findings.checks[0].evidence), findings.checks[0].evidence


def test_a_run_that_takes_too_long_is_ended_and_decides_nothing_unless_it_had_found_something(tmp_path: Path) -> None:
    findings, program = Findings(), laid_out(tmp_path)
    slow = tool(tmp_path, CLEAN, before="sleep 60 & echo $! > child; wait")
    memory_checker(findings, slow, program, Audit(), 0.2)
    assert findings.checks[0].evidence == "not decided: memcheck on tiny did not end within 0 s"
    child = Path("/proc", (tmp_path / "child").read_text().strip(), "stat")
    deadline = time.monotonic() + 5  # one that is killed may still have to be run for that, on a busy machine
    while (living := child.exists() and child.read_text().rpartition(")")[2].split()[0] not in "ZX") and (
        time.monotonic() < deadline
    ):
        time.sleep(0.01)
    assert not living
    found = tool(tmp_path, OUT_OF_BOUNDS, before='cat said > "$4"; sleep 60')
    with pytest.raises(Rejected, match="Invalid __global__ write"):
        memory_checker(findings, found, program, Audit(), 0.2)


def test_without_the_tool_or_a_gpu_nothing_is_decided(tmp_path: Path) -> None:
    findings = Findings()
    memory_checker(findings, None, laid_out(tmp_path), Audit())
    race_checker(findings, None, Program(tmp_path, "cpu", 1, "tiny"), Audit())
    assert [check.passed for check in findings.checks] == [None, None]
    assert findings.checks[0].evidence == "not run: compute-sanitizer is not installed"
    assert findings.checks[1].evidence == "not run: it looks at GPUs"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.bool, torch.int64])
@pytest.mark.parametrize("shape", [(3, 2), (), (0, 4)])
def test_tensors_come_back_as_they_were_written(tmp_path: Path, dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape, dtype=dtype)
    back = read_tensor(tmp_path / "t", write_tensor(tmp_path / "t", tensor))
    assert back.dtype is dtype
    assert torch.equal(back, tensor)
    assert back.shape == tensor.shape


# ---- the program that the tool starts --------------------------------------------------------------------------------

SCALE = """
import torch
from torch import nn

class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.weight = nn.Parameter(torch.rand(width))
    def prepare(self):
        self.doubled = 2 * self.weight
    def forward(self, x, factor):
        return (x * self.doubled * factor).bfloat16(), x.sum(0)
"""


@pytest.mark.slow
def test_the_program_itself_runs_a_candidate_and_leaves_its_answer(tmp_path: Path) -> None:
    plain = tmp_path / "plain"  # a "tool" that only runs what it is given
    clean = 'echo "========= ERROR SUMMARY: 0 errors" > "$4"'
    start = 'while [ "$1" != -m ]; do last=$1; shift; done; exec "$last" "$@"'
    plain.write_text(f"#!/bin/sh\n{clean}\n{start}\n", encoding="utf-8")
    plain.chmod(0o700)
    folder = tmp_path / "program"
    folder.mkdir()
    x = torch.randn(4, 3).T  # its bytes are not in row-major order
    lay_out(
        folder, Candidate(source=SCALE, language=Language.CPP), Arithmetic.FP32, workload="tiny", device="cpu",
        init_args=(4,), arguments=(x, 3.0), seed=5,
    )  # fmt: skip
    report = sanitizer.run_tool(plain, "memcheck", Program(folder, "cpu", 2, "tiny"))
    assert report.status == 0, report.output
    assert report.outputs is not None
    torch.manual_seed(5)
    assert torch.equal(report.outputs[0], (x * (2 * torch.rand(4)) * 3.0).bfloat16())
    assert torch.equal(report.outputs[1], x.sum(0))


# ---- the tool itself -------------------------------------------------------------------------------------------------

CUDA = """
import torch
from torch import nn
from agentgen import jit

k = jit.cuda('''
extern "C" __global__ void reverse(const float* x, float* y, int n, int over) {
  __shared__ float row[256];
  row[threadIdx.x] = x[threadIdx.x];
  BARRIER
  if (threadIdx.x < n) y[threadIdx.x + over] = row[n - 1 - threadIdx.x];
}
''')

class ModelNew(nn.Module):
    def forward(self, x, over):
        y = torch.empty_like(x)
        k.reverse[1, 256](x, y, 256, over)
        return y
"""


@pytest.mark.gpu
@pytest.mark.slow
@pytest.mark.skipif(sanitizer.find() is None, reason="compute-sanitizer is not installed")
@pytest.mark.parametrize(
    ("barrier", "over", "looked", "outcome"),
    [
        ("__syncthreads();", 0, memory_checker, None),
        ("__syncthreads();", 0, race_checker, None),
        ("__syncthreads();", 1, memory_checker, Outcome.CRASHED),
        ("", 0, race_checker, Outcome.NONDETERMINISTIC),
    ],
    ids=["clean", "no race", "out of bounds", "race"],
)
def test_planted_errors_are_found_on_a_gpu(
    tmp_path: Path, barrier: str, over: int, looked: Named[...], outcome: Outcome | None
) -> None:
    source = CUDA.replace("BARRIER", barrier)
    program = lay_out(
        tmp_path, Candidate(source=source, language=Language.CUDA), Arithmetic.FP32, workload="tiny", device="cuda:0",
        init_args=(), arguments=(torch.arange(256.0), over), seed=1,
    )  # fmt: skip
    audit, findings = Audit(), Findings()
    if outcome is None:
        looked(findings, sanitizer.find(), program, audit)
        assert findings.checks[0].passed, findings.checks[0].evidence
        assert audit.outputs is not None
        assert torch.equal(audit.outputs[0], torch.arange(256.0).flip(0))
        return
    with pytest.raises(Rejected, match="reverse") as rejected:
        looked(findings, sanitizer.find(), program, audit)
    assert rejected.value.outcome is outcome
