"""A ledger in a folder of its own, and whole records to put into it."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from made_records import cpu, speedup, timing

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.idea import Category, Idea
from agentgen.records.machine import Ceilings, Target, TensorShape
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.records.run import Plan, Run
from agentgen.records.trial import Accuracy, Check, Outcome, Trial
from agentgen.store.ledger import Ledger, open_ledger

MACHINE = cpu()


class Make:
    """Makes records that differ in a number only."""

    def run(self, run_id: str = "20261121-conv2d-aaaa") -> Run:
        return Run(
            id=run_id,
            problem=Problem(
                name="conv2d",
                title="A convolution",
                reference="class Model: ...\n",
                workloads=(Workload(name="main", constants={"n": 3, "x": 0.5, "flag": True, "mode": "same"}),),
                arithmetic=Arithmetic.TF32,
            ),
            arithmetic=Arithmetic.FP32,
            device="cpu",
            languages=(Language.CPP,),
            models=("recorded",),
            plan=Plan(rounds=3),
            created=datetime(2026, 11, 21, 12, 30, 15, 123456, tzinfo=UTC),
        )

    def target(self) -> Target:
        shape = TensorShape(shape=(4, 3), dtype="float32")
        return Target(
            problem="conv2d",
            arithmetic=Arithmetic.FP32,
            machine=MACHINE,
            ceilings=Ceilings(copy_bytes_per_s=1e10, matmul_flops_per_s={Arithmetic.FP32: 1e11}),
            constants={"n": 3},
            inputs=(shape,),
            outputs=(shape,),
            parameters={"conv.weight": shape},
            flops=1000,
            bytes_moved=2000,
            bound_us=1.5,
            bound_by="memory",
            baselines_us={"eager": 10.25},
        )

    def idea(self, number: int = 0) -> Idea:
        return Idea(parent="root", category=Category.COMPUTE, title=f"Idea {number}", reasoning="Why — “so” ☂")

    def candidate(self, number: int = 0) -> Candidate:
        return Candidate(
            source=f"# {number} ☂\r\nclass ModelNew: ...\n", language=Language.CPP, idea="i", parent="root", repair=1
        )

    def passed(self, number: int = 0) -> Trial:
        return Trial(
            candidate=self.candidate(number).id,
            problem="conv2d",
            arithmetic=Arithmetic.FP32,
            machine=MACHINE,
            outcome=Outcome.PASSED,
            checks=(Check(name="shape", passed=True, evidence="(4, 3)"),),
            accuracy=(
                Accuracy(
                    workload="main",
                    family="normal",
                    draws=3,
                    relative_l2=1e-7,
                    gate=2e-6,
                    torch_relative_l2=1.1e-7,
                    worst_element=float("inf"),
                ),
            ),
            timing=timing(5.1, 5.0, 5.3, copy_us=0.25),
            speedups=(speedup(2.0, 1.9, 2.1, baseline_us=10.2),),
            roofline_fraction=0.3,
            seconds={"build": 0.25},
            log="hello \x1b[0m",
        )

    def failed(self, number: int = 0) -> Trial:
        return Trial(
            candidate=self.candidate(number).id,
            problem="conv2d",
            arithmetic=Arithmetic.FP32,
            machine=MACHINE,
            outcome=Outcome.WRONG_VALUES,
            reasons=("wrong at [0]",),
        )

    def request(self, number: int = 0) -> ChatRequest:
        return ChatRequest(
            role=Role.WRITE, problem="conv2d", target="cpp", parent=f"p{number}", system="You write.", prompt="Write ☂"
        )

    def reply(self, text: str = "Done ☂\r\n") -> ChatReply:
        return ChatReply(
            text=text, model="m", reasoning="Hm.", input_tokens=10, output_tokens=4, cost_usd=0.25, finish_reason="stop"
        )


@pytest.fixture
def make() -> Make:
    return Make()


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/results/agentgen.db"


@pytest.fixture
def ledger(url: str) -> Iterator[Ledger]:
    with open_ledger(url) as opened:
        yield opened
