"""The records refuse what cannot be, and their hashes stand for what they hold."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from made_records import cpu, speedup, timing
from pydantic import ValidationError

from agentgen.records.base import content_hash
from agentgen.records.candidate import Candidate, Language
from agentgen.records.idea import Category, Idea
from agentgen.records.machine import Ceilings, Target
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.records.trial import Check, Outcome, Timing, Trial

MACHINE, TIMING, SPEEDUP = cpu(), timing(10.0), speedup(2.0, baseline_us=20.0)
REJECTIONS = [outcome for outcome in Outcome if outcome is not Outcome.PASSED]


def trial(outcome: Outcome = Outcome.PASSED, **more: Any) -> Trial:
    return Trial(candidate="c", problem="conv2d", arithmetic=Arithmetic.FP32, machine=MACHINE, outcome=outcome, **more)


def problem(*workloads: Workload) -> Problem:
    return Problem(name="p", title="P", reference="", workloads=workloads, arithmetic=Arithmetic.FP32)


# ---- Trial -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", REJECTIONS)
@pytest.mark.parametrize(
    "measured", [{"timing": TIMING}, {"speedups": (SPEEDUP,)}, {"roofline_fraction": 0.0}], ids=lambda m: next(iter(m))
)
def test_no_figure_of_speed_without_passing(outcome: Outcome, measured: Mapping[str, Any]) -> None:
    with pytest.raises(ValidationError, match="has no timing"):
        trial(outcome, reasons=("because",), **measured)


@pytest.mark.parametrize("outcome", REJECTIONS)
def test_a_rejection_says_why(outcome: Outcome) -> None:
    with pytest.raises(ValidationError, match="says why"):
        trial(outcome)
    assert not trial(outcome, reasons=("because",)).accepted


def test_a_passed_trial_has_no_failed_check() -> None:
    failed = Check(name="values", passed=False, evidence="off by one")
    with pytest.raises(ValidationError, match="no failed check"):
        trial(checks=(failed,))
    assert trial(Outcome.WRONG_VALUES, reasons=("off by one",), checks=(failed,)).checks == (failed,)


def test_a_passed_trial_may_or_may_not_be_timed() -> None:
    assert trial().speedup is None
    assert trial(timing=TIMING, speedups=(SPEEDUP,), roofline_fraction=0.5).speedup == SPEEDUP


@pytest.mark.parametrize("median_us", [0.0, -1.0, float("nan")])
def test_not_measured_is_none_and_never_a_number(median_us: float) -> None:
    with pytest.raises(ValidationError):
        Timing.model_validate({**TIMING.model_dump(), "median_us": median_us})


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
def test_figures_that_are_no_numbers_are_no_record(value: float) -> None:
    """Ranks would follow from them, and no chart has a place for them."""
    for known, fields in ((TIMING, ("median_us", "low_us", "high_us")), (SPEEDUP, ("ratio", "low", "high"))):
        for field in fields:
            with pytest.raises(ValidationError):
                type(known).model_validate({**known.model_dump(), field: value})
    with pytest.raises(ValidationError):
        trial(timing=TIMING, roofline_fraction=value)


def test_a_trial_comes_back_from_json_as_it_was() -> None:
    whole = trial(timing=TIMING, speedups=(SPEEDUP,), seconds={"build": 0.5}, log="é\0\n")
    assert Trial.model_validate_json(whole.model_dump_json()) == whole
    assert Trial.model_validate(json.loads(json.dumps(whole.model_dump(mode="json")))) == whole


def test_a_trial_that_was_stored_before_there_were_profiles_still_loads() -> None:
    older = trial(timing=TIMING).model_dump()
    assert older.pop("profile") == ()
    assert Trial.model_validate(older) == trial(timing=TIMING)


def test_an_unknown_field_is_refused_not_ignored() -> None:
    with pytest.raises(ValidationError, match="extra"):
        Trial.model_validate({**trial().model_dump(), "timing_ms": 3})


# ---- identity --------------------------------------------------------------------------------------------------------


def test_hashes_are_the_same_in_every_process_and_version() -> None:
    """Stores and recordings hold them: whoever changes one of these figures breaks both."""
    assert content_hash("a", 1, {"b": [2.5, None]}) == "fa2193a2f167b0d0"
    assert Candidate(source="class ModelNew: ...", language=Language.CPP).id == "10d6fee4bd774c74"
    assert Idea(parent="r", category=Category.COMPUTE, title="Tile it", reasoning="Reuse.").id == "1fdb0028a73399e5"
    assert problem(Workload(name="main")).root(Arithmetic.FP32) == "54b628432734cea6"


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.none(), min_size=2))
def test_a_hash_does_not_depend_on_the_order_of_keys(values: dict[str, int | str | None]) -> None:
    assert content_hash(values) == content_hash(dict(reversed(values.items())))


@given(st.text(), st.text(), st.text(), st.text())
def test_a_hash_tells_where_a_part_ends(a: str, b: str, c: str, d: str) -> None:
    assert (content_hash(a, b) == content_hash(c, d)) == ((a, b) == (c, d))


def test_a_candidate_is_its_code_and_its_idea() -> None:
    one = Candidate(source="x", language=Language.CPP, idea="i", parent="p")
    assert one.id == one.model_copy(update={"parent": "q", "repair": 1}).id
    different = [{"source": "y"}, {"language": Language.CUDA}, {"idea": "j"}, {"idea": None}]
    assert len({one.id, *(one.model_copy(update=update).id for update in different)}) == 5


def test_a_copy_does_not_keep_the_hash_of_what_it_was_copied_from() -> None:
    machine = MACHINE.model_copy()
    assert machine.id == MACHINE.id
    assert machine.model_copy(update={"cores": 3}).id != machine.id


def test_the_root_of_ideas_depends_on_the_arithmetic() -> None:
    one = problem(Workload(name="main"))
    assert one.root(Arithmetic.FP32) != one.root(Arithmetic.TF32)


def test_records_do_not_change() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        TIMING.median_us = 1.0  # pyright: ignore[reportAttributeAccessIssue]


# ---- Problem ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [(), ("tiny",), ("main", "main"), ("main", "tiny", "tiny")])
def test_a_problem_needs_one_main_and_distinct_names(names: tuple[str, ...]) -> None:
    with pytest.raises(ValidationError, match="exactly one 'main'"):
        problem(*(Workload(name=name) for name in names))


def test_main_is_found_wherever_it_stands() -> None:
    main = Workload(name="main", constants={"n": 3})
    assert problem(Workload(name="tiny"), main).main is main


def test_a_problem_s_name_can_be_a_folder_s() -> None:
    with pytest.raises(ValidationError):
        Problem(name="../x", title="", reference="", workloads=(Workload(name="main"),), arithmetic=Arithmetic.FP32)


def test_cpu_constants_lie_on_top() -> None:
    workload = Workload(name="main", constants={"n": 100, "k": 3}, cpu_constants={"n": 4})
    assert workload.constants_on("cuda") == {"n": 100, "k": 3}
    assert workload.constants_on("cpu") == {"n": 4, "k": 3}


@pytest.mark.parametrize(
    ("arithmetic", "device", "expected"),
    [
        (Arithmetic.TF32, "cpu", Arithmetic.FP32),
        (Arithmetic.TF32, "cuda", Arithmetic.TF32),
        (Arithmetic.BF16, "cpu", Arithmetic.BF16),
    ],
)
def test_a_cpu_has_no_tf32(arithmetic: Arithmetic, device: Any, expected: Arithmetic) -> None:
    assert arithmetic.on(device) is expected


# ---- Ceilings and Target ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fp32", "tf32", "expected"), [(50e12, 420e12, 140e12), (50e12, 90e12, 50e12), (50e12, None, 50e12)]
)
def test_fp32_is_bounded_by_three_tf32_products_where_they_are_faster(
    fp32: float, tf32: float | None, expected: float
) -> None:
    rates = {Arithmetic.FP32: fp32, **({} if tf32 is None else {Arithmetic.TF32: tf32})}
    ceilings = Ceilings(copy_bytes_per_s=1e12, matmul_flops_per_s=rates)
    assert ceilings.peak_flops_per_s(Arithmetic.FP32) == pytest.approx(expected)


def test_only_fp32_borrows_from_another_arithmetic() -> None:
    rates = {Arithmetic.FP32: 50e12, Arithmetic.TF32: 420e12, Arithmetic.FP16: 800e12}
    ceilings = Ceilings(copy_bytes_per_s=1e12, matmul_flops_per_s=rates)
    assert ceilings.peak_flops_per_s(Arithmetic.TF32) == 420e12
    assert ceilings.peak_flops_per_s(Arithmetic.FP16) == 800e12
    with pytest.raises(KeyError):
        ceilings.peak_flops_per_s(Arithmetic.BF16)


def test_the_best_baseline_is_the_fastest() -> None:
    target = Target(
        problem="p",
        arithmetic=Arithmetic.FP32,
        machine=MACHINE,
        ceilings=Ceilings(copy_bytes_per_s=1e12, matmul_flops_per_s={Arithmetic.FP32: 1e12}),
        constants={},
        inputs=(),
        outputs=(),
        parameters={},
        flops=1,
        bytes_moved=1,
        bound_us=1.0,
        bound_by="memory",
        baselines_us={"eager": 30.0, "torch.compile default": 20.0, "torch.compile max-autotune": 25.0},
    )
    assert target.best_baseline == "torch.compile default"
