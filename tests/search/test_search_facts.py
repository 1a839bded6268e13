from __future__ import annotations

from search_factories import PROBLEM, TARGET, make_run

from agentgen.records.machine import Ceilings
from agentgen.records.problem import Arithmetic, Demand
from agentgen.records.run import Plan
from agentgen.search.facts import facts_text

RUN = make_run(Plan())


def test_what_a_problem_requires_is_told() -> None:
    required = PROBLEM.model_copy(update={"special_values": Demand.REQUIRED, "strided_inputs": Demand.REQUIRED})
    told = facts_text(RUN.model_copy(update={"problem": required}), TARGET)
    assert "with NaN and Inf among the inputs" in told
    assert "gaps between their rows" in told
    assert "Required here" not in facts_text(RUN, TARGET)


def test_operations_are_told_as_they_are_counted() -> None:
    counted = (
        "does 5.243e+05 floating-point operations in matrix products and convolutions (others are not counted) and"
    )
    assert f"One call {counted} must move at least 4.196e+06 bytes" in facts_text(RUN, TARGET)
    moves = facts_text(RUN, TARGET.model_copy(update={"flops": 0}))
    assert "One call must move at least 4.196e+06 bytes" in moves
    assert "floating-point operations" not in moves


def test_a_third_of_the_tf32_rate_is_called_that() -> None:
    rates = {Arithmetic.FP32: 51.3e12, Arithmetic.TF32: 416e12}
    ceilings = Ceilings(copy_bytes_per_s=4e12, matmul_flops_per_s=rates)
    told = facts_text(RUN, TARGET.model_copy(update={"ceilings": ceilings, "flops": 416_000_000_000}))
    assert ", computing at a third of the TF32 rate (three products of split operands) 3000 us. " in told
    assert "computing at the rate of a large matrix product" in facts_text(RUN, TARGET)
