"""Records, a scripted model and a replay judge for the tests of the search: real objects, no patching."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from agentgen.errors import DeviceNotFound
from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.idea import Category, Idea
from agentgen.records.machine import Ceilings, Machine, Target, TensorShape
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.records.run import Plan, Run
from agentgen.records.trial import Accuracy, BuildReport, Clock, Outcome, Speedup, Timing, Trial
from agentgen.search.tree import Tree
from agentgen.store.ledger import open_ledger

REFERENCE = '''"""Adds a row."""

import torch
from torch import nn

rows = 4096


class Model(nn.Module):
    def __init__(self, features):
        super().__init__()
        self.shift = nn.Parameter(torch.randn(features))

    def forward(self, x):
        return x + self.shift  # costs $1, {really}
'''

PROBLEM = Problem(
    name="addrow",
    title="Adds a row to (4096, 512)",
    reference=REFERENCE,
    workloads=(
        Workload(name="main", cpu_constants={"rows": 1024}),
        Workload(name="ragged", constants={"rows": 37, "features": 19}),
    ),
    arithmetic=Arithmetic.FP32,
)

MACHINE = Machine(
    device_type="cpu",
    device="Example 9000",
    cores=2,
    memory_bytes=8 * 2**30,
    last_level_cache_bytes=32 * 2**20,
    torch="2.13.0",
    triton="3.7.1",
    python="3.11.7",
)

TARGET = Target(
    problem="addrow",
    arithmetic=Arithmetic.FP32,
    machine=MACHINE,
    ceilings=Ceilings(copy_bytes_per_s=2e10, matmul_flops_per_s={Arithmetic.FP32: 1.5e11}),
    constants={"rows": 1024, "features": 512},
    inputs=(TensorShape(shape=(1024, 512), dtype="float32"),),
    outputs=(TensorShape(shape=(1024, 512), dtype="float32"),),
    parameters={"shift": TensorShape(shape=(512,), dtype="float32")},
    flops=524288,
    bytes_moved=4196352,
    bound_us=209.8,
    bound_by="memory",
    baselines_us={"eager": 900.0, "compile": 640.5},
)


def make_run(plan: Plan, languages: tuple[Language, ...] = (Language.CPP,), run_id: str = "run-1") -> Run:
    """Returns a run on a CPU that no judge has looked at."""
    return Run(
        id=run_id,
        problem=PROBLEM,
        arithmetic=Arithmetic.FP32,
        device="cpu",
        languages=languages,
        models=("scripted",),
        plan=plan,
        created=datetime(2026, 11, 21, tzinfo=UTC),
    )


def empty_tree(run: Run) -> Tree:
    """Returns a run of which nothing is known yet, in a store of its own."""
    ledger = open_ledger("sqlite://")
    ledger.create_run(run)
    return Tree.read(ledger, run)


def make_idea(parent: str = "root", title: str = "Read wider vectors") -> Idea:
    """Returns an idea on `parent`."""
    return Idea(parent=parent, category=Category.MEMORY_ACCESS, title=title, reasoning="Because $x of {y}.")


def make_candidate(source: str, idea: Idea | None = None, language: Language = Language.CPP) -> Candidate:
    """Returns a first implementation."""
    return Candidate(source=source, language=language, idea=idea.id if idea else None)


def passed(candidate: Candidate, ratio: float, low: float | None = None, high: float | None = None) -> Trial:
    """Returns a trial with a timing; its interval is 1% to each side unless given."""
    median_us = 640.5 / ratio
    speedups = tuple(
        Speedup(
            baseline=name,
            baseline_us=baseline_us,
            ratio=baseline_us / median_us,
            low=(low or ratio * 0.99) * baseline_us / 640.5,
            high=(high or ratio * 1.01) * baseline_us / 640.5,
            faster=ratio > 1.02,
        )
        for name, baseline_us in (("compile", 640.5), ("eager", 900.0))
    )
    timing = Timing(
        clock=Clock.WALL,
        median_us=median_us,
        low_us=median_us * 0.99,
        high_us=median_us * 1.01,
        calls_per_window=10,
        windows=20,
        guests=1,
        copy_us=1.0,
    )
    return Trial(
        candidate=candidate.id,
        problem="addrow",
        arithmetic=Arithmetic.FP32,
        machine=MACHINE,
        outcome=Outcome.PASSED,
        accuracy=(accuracy("main", "normal", 1e-7),),
        build=(BuildReport(kernel="addrow_v16", registers=40, spill_bytes=0),),
        timing=timing,
        speedups=speedups,
        roofline_fraction=209.8 / median_us,
    )


def untimed(candidate: Candidate, outcome: Outcome = Outcome.PASSED) -> Trial:
    """Returns a trial without a timing: verified only, or failed."""
    return Trial(
        candidate=candidate.id,
        problem="addrow",
        arithmetic=Arithmetic.FP32,
        machine=MACHINE,
        outcome=outcome,
        reasons=() if outcome is Outcome.PASSED else (f"it ended {outcome.value}",),
    )


def accuracy(workload: str, family: str, relative_l2: float | None) -> Accuracy:
    """Returns one row of an accuracy table with a gate of 2e-6."""
    return Accuracy(
        workload=workload,
        family=family,
        draws=3,
        relative_l2=relative_l2,
        gate=2e-6,
        torch_relative_l2=1e-7,
        worst_element=None if relative_l2 is None else relative_l2 / 2e-6,
    )


def source_text(verdict: str) -> str:
    """Returns a candidate's source that tells `ReplayJudge` what to find: a speedup, `pass`, or an outcome."""
    return f"# judge: {verdict}\nclass ModelNew:\n    pass\n"


def fenced(source: str) -> str:
    """Returns an answer with one fenced block."""
    return f"Here it is.\n\n```python\n{source}```\n"


def ideas_json(*titles: str) -> str:
    """Returns an answer with ideas of these titles."""
    ideas = [
        {"category": "memory access", "title": title, "reasoning": f"{title}, for it waits.", "predicted_speedup": 1.5}
        for title in titles
    ]
    return json.dumps({"ideas": ideas})


Answer = str | Exception


class ScriptedModel:
    """Answers from a function; an exception it returns is raised. Counts what it answered."""

    name = "scripted"
    stays_out = False

    def __init__(self, answer: Callable[[ChatRequest], Answer]) -> None:
        self._answer = answer
        self.requests: list[ChatRequest] = []
        self.answered: Counter[str] = Counter()

    async def kept(self, request: ChatRequest) -> ChatReply | None:
        """Implements `ChatModel`."""
        return None

    async def ask(self, request: ChatRequest) -> ChatReply:
        """Implements `ChatModel`."""
        self.requests.append(request)
        answer = self._answer(request)
        if isinstance(answer, Exception):
            raise answer
        self.answered[request.id] += 1
        return ChatReply(text=answer, model=self.name)

    async def taken(self, request: ChatRequest) -> None:
        """Implements `ChatModel`."""

    def refuse(self, request: ChatRequest, reason: str) -> None:
        """Implements `ChatModel`."""

    def price_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """Implements `ChatModel`."""
        return 0.0

    def asked(self, role: Role) -> list[ChatRequest]:
        """Returns the requests of a role."""
        return [request for request in self.requests if request.role is role]


class ReplayJudge:
    """Finds what the first line of a candidate's source says. Counts what it evaluated."""

    def __init__(self, away: bool = False, interrupt: Callable[[], None] = lambda: None) -> None:
        self.away = away
        self._interrupt = interrupt
        self.evaluated: Counter[str] = Counter()
        self.targets = 0
        self.calls = 0

    async def target(self) -> Target:
        """Implements `Judge`."""
        if self.away:
            raise DeviceNotFound("the device is elsewhere")
        self.targets += 1
        return TARGET

    async def evaluate(self, candidate: Candidate, on_stage: Callable[[str], None]) -> Trial:
        """Returns what the source says."""
        self.calls += 1
        if self.away:
            raise DeviceNotFound("the device is elsewhere")
        on_stage("build")
        self._interrupt()
        self.evaluated[candidate.id] += 1
        return verdict_of(candidate)


def verdict_of(candidate: Candidate) -> Trial:
    """Returns what the first line of a candidate's source says."""
    found = re.match(r"# judge: (\S+)", candidate.source)
    assert found is not None
    if found[1] == "pass":
        return untimed(candidate)
    if found[1] in Outcome.__members__:
        return untimed(candidate, Outcome(found[1]))
    return passed(candidate, float(found[1]))


def by_role(answers: Mapping[Role, Answer | Callable[[ChatRequest], Answer]]) -> Callable[[ChatRequest], Answer]:
    """Returns a script that answers by role."""

    def answer(request: ChatRequest) -> Answer:
        chosen = answers[request.role]
        return chosen(request) if callable(chosen) else chosen

    return answer
