"""Whole runs, made by hand, for the tests of the page."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from pathlib import Path

import made_records
from report_records import failed, passed

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import Role
from agentgen.records.idea import Category, Idea
from agentgen.records.machine import Ceilings, Target
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Run
from agentgen.records.trial import Outcome, Trial
from agentgen.report.solution import Solution
from agentgen.store.rows import Letter, Spent

PROBLEMS = Path(__file__).parents[2] / "problems"
PROBLEM = made_records.problem("conv2d", title="A convolution", reference="class Model: pass\n")
ROOT = PROBLEM.root(Arithmetic.FP32)


def target(flops: int = 4_000_000_000) -> Target:
    rates = {Arithmetic.FP32: 2e12, Arithmetic.BF16: 3e12}
    return made_records.target(
        PROBLEM,
        ceilings=Ceilings(copy_bytes_per_s=2e10, matmul_flops_per_s=rates),
        flops=flops,
        bytes_moved=40_000_000,
        bound_us=2000,
        bound_by="compute",
        baselines_us={"eager": 6214.4, "torch.compile": 7000.0},
    )


def run(**fields: object) -> Run:
    created = datetime(2026, 11, 22, tzinfo=UTC)
    return made_records.run(PROBLEM, **{"models": ("scripted",), "created": created, "target": target(), **fields})


def idea(title: str, parent: str = ROOT, reasoning: str = "because", **fields: object) -> Idea:
    known = {"parent": parent, "category": Category.MEMORY_ACCESS, "title": title, "reasoning": reasoning}
    return Idea.model_validate({**known, **fields})


def candidate(source: str, of: Idea, parent: Candidate | None = None, repair: int = 0) -> Candidate:
    return Candidate(
        source=source, language=Language.CPP, idea=of.id, parent=parent.id if parent else None, repair=repair
    )


def solution(ideas: list[Idea], candidates: list[Candidate], trials: list[Trial], **fields: object) -> Solution:
    return Solution(
        run=run(**fields),
        rounds={one.id: 1 for one in (*ideas, *candidates)},
        ideas={one.id: one for one in ideas},
        candidates=tuple(candidates),
        trials={one.candidate: one for one in trials},
        spent=Spent(requests=len(candidates), input_tokens=None, output_tokens=None, cost_usd=None),
    )


def refined() -> tuple[Solution, list[Candidate]]:
    """One kernel, a second idea on it that crashes and is repaired into the best one, and one that is wrong."""
    wide = idea("Read wide vectors", predicted_speedup=1.5)
    first = candidate("first", wide)
    tiles = idea("Keep tiles in registers", parent=first.id)
    crashed = candidate("crashed", tiles, first)
    repaired = candidate("repaired", tiles, crashed, repair=1)
    other = idea("Unroll by four")
    wrong = candidate("wrong", other)
    candidates = [first, wrong, crashed, repaired]
    trials = [
        passed(first, 1.25, 1.2, 1.3),
        failed(wrong, Outcome.WRONG_VALUES, "main, normal: relative L2 error 1.41e-04"),
        failed(crashed, Outcome.CRASHED, "signal 11 in window 3"),
        passed(repaired, 2.0, 1.9, 2.1),
    ]
    return solution([wide, tiles, other], candidates, trials), candidates


def letter(role: Role, parent: str, *, usd: float | None = None, seconds: float | None = None) -> Letter:
    return Letter(
        id=f"{role.value}-{parent}",
        first_id=f"{role.value}-{parent}",
        role=role,
        parent=parent,
        nth=0,
        attempt=0,
        round=1,
        request_bytes=100,
        reply_bytes=100,
        answered=True,
        input_tokens=None if usd is None else 1000,
        output_tokens=None if usd is None else 200,
        cost_usd=usd,
        seconds=seconds,
    )


def large(count: int, lines: int = 250) -> Solution:
    """A search of many rounds: an idea on one of the latest kernels, and a kernel that changes a tenth of its lines."""
    ideas: list[Idea] = []
    candidates: list[Candidate] = []
    trials: list[Trial] = []
    for n in range(count):
        parent = candidates[n - 1 - n * 7 % 9] if n > 9 else None
        text = parent.source.splitlines() if parent else [_line(0, row) for row in range(lines)]
        for row in range(n * 13 % 10, lines, 10):
            text[row] = _line(n, row)
        reasoning = f"Step {n}: " + " ".join(f"word{n * 31 % 97 + k * k % 53}" for k in range(150))
        ideas.append(idea(f"Idea {n}: {text[3][:60]}", parent.id if parent else ROOT, reasoning))
        one = candidate("\n".join(text), ideas[-1], parent)
        candidates.append(one)
        if n % 5 == 4:
            trials.append(failed(one, Outcome.BUILD_FAILED, f"kernel.cu({n}): error: identifier undefined"))
        else:
            ratio = 1 + n % 37 / 20
            trials.append(passed(one, ratio, ratio - 0.05, ratio + 0.05))
    return solution(ideas, candidates, trials)


def _line(n: int, row: int) -> str:
    return f"    float v{row} = fmaf(x[i + {n * 7 + row}], w[{row * 3 % 11}], acc{n * row % 5});  // tap {n * 31 % 17}"


def recorded(count: int) -> Solution:
    """A search whose kernels are of four problems' recordings, half in CUDA and half in Triton: as large, and as much
    alike and not, as models write them."""
    half = count // 2
    sources = [*_sources("cuda")[:half], *_sources("triton")[: count - half]]
    of = large(count, lines=10)
    candidates = [candidate(source, one) for source, one in zip(sources, of.ideas.values(), strict=True)]
    trials = [
        trial.model_copy(update={"candidate": one.id}) for trial, one in zip(of.evaluated, candidates, strict=True)
    ]
    return solution(list(of.ideas.values()), candidates, trials)


def _sources(language: str) -> list[str]:
    folders = [PROBLEMS / name / "recording" for name in ("layernorm", "softmax", "conv2d_relu_maxpool", "conv2d")]
    files = [file for folder in folders for file in sorted(folder.glob(f"*-{language}-*.reply.md"))]
    found = [re.findall(r"```python\n(.*?)```", file.read_text(), re.DOTALL) for file in files]
    return [blocks[-1] for blocks in found if blocks]
