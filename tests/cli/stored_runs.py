"""A run that waits for its mailbox, as it is stored, of which a judge has looked at the device."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from agentgen.models.exchange import read_request
from agentgen.records.candidate import Language
from agentgen.records.chat import Role
from agentgen.records.machine import Ceilings, Machine, Target
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.records.run import Plan, Run
from agentgen.store.ledger import Ledger

MACHINE = Machine(
    device_type="cpu",
    device="Example 9000",
    cores=2,
    memory_bytes=1 << 33,
    last_level_cache_bytes=1 << 25,
    torch="2.13.0",
    triton=None,
    python="3.11.7",
)
PROBLEM = Problem(
    name="relu",
    title="Relu",
    reference="class Model: ...",
    workloads=(Workload(name="main"),),
    arithmetic=Arithmetic.FP32,
)


def stored_run(ledger: Ledger, device: str = "cpu", rounds: int = 1) -> Run:
    """Stores a run of one idea a round whose device a judge has looked at."""
    target = Target(
        problem="relu",
        arithmetic=Arithmetic.FP32,
        machine=MACHINE,
        ceilings=Ceilings(copy_bytes_per_s=2e10, matmul_flops_per_s={Arithmetic.FP32: 1e11}),
        constants={},
        inputs=(),
        outputs=(),
        parameters={},
        flops=0,
        bytes_moved=1 << 20,
        bound_us=50.0,
        bound_by="memory",
        baselines_us={"eager": 100.0},
    )
    run = Run(
        id="20261121-120000-abcd",
        problem=PROBLEM,
        arithmetic=Arithmetic.FP32,
        device=device,
        languages=(Language.CPP,),
        models=("mailbox",),
        plan=Plan(rounds=rounds, ideas=1, repairs=0),
        created=datetime(2026, 11, 21, 12, tzinfo=UTC),
        target=target,
    )
    ledger.create_run(run)
    return run


def answer_the_request(mailbox: Path, role: Role, text: str) -> None:
    """Writes the answer to the one request of a role."""
    (request,) = (path for path in mailbox.glob("*.request.md") if read_request(path).role is role)
    request.with_name(request.name.replace(".request.", ".reply.")).write_text(text)
