"""A cause is the same whatever numbers, addresses and paths stand in the words."""

from __future__ import annotations

import pytest
from past_runs import PROBLEM, kernel, trial

from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Accuracy, Outcome
from agentgen.scoring.causes import cause_of, failed_checks, how_wrong, plain_reason

NVRTC = "candidate.cu does not compile (NVRTC), 1 error(s):\n%s\nptxas fatal   : Ptx assembly aborted due to errors"


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("the guest was ended by signal 11", "the guest was ended by signal 6"),
        ("k.cu(12): error: no x", "k.cu(7): error: no x"),
        ("/tmp/a1/k.cpp:3:5: error: no x", "/home/b/c/k.cpp:31:17: error: no x"),
        ("read at 0x7ffd12 failed", "read at 0xdeadbeef failed"),
        ("output 0 is (3, 4), not (3, 5)", "output 1 is (8, 2, 2), not (8, 2, 1)"),
        ("relative L2 1.5e-3 is over 2e-05", "relative L2 0.9 is over 4e-05"),
        ("kernel 0f3a9b1c failed", "kernel 99aa01bb22cc33dd failed"),
        ("a block of 16x16 threads", "a block of 8x8x4 threads"),
        (
            "main: relative L2 error 1.38e-04 is over the tf32 gate",
            "main: relative L2 error 2e-3 is over the tf32 gate",
        ),
        ("CompilationError: at 3:7:\n  y = f(x)\n  ^\nno f", "CompilationError: at 12:9:\n  z = f(1)\n   ^\nno f"),
        ("\n\nfirst\nsecond", "first\nthird"),
    ],
)
def test_what_changes_from_run_to_run_is_taken_out(one: str, other: str) -> None:
    assert plain_reason([one]) == plain_reason([other])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("error: identifier a is undefined", "error: identifier b is undefined"),
        ("no answer to check within 60 s", "no answer to build within 60 s"),
        ("output 0 is torch.float16, not torch.float32", "output 0 is torch.bfloat16, not torch.float32"),
        ("CompilationError: at 3:7:\n  y = f(x)\n  ^\nno f", "CompilationError: at 3:7:\n  y = f(x)\n  ^\nno x"),
        (
            NVRTC % "ptxas fatal   : (C7602) Insufficient registers (128)",
            NVRTC % "ptxas error   : Too much shared data",
        ),
        ("", "something"),
    ],
)
def test_what_says_something_stays(one: str, other: str) -> None:
    assert plain_reason([one]) != plain_reason([other])


def test_a_check_is_the_same_at_every_workload_and_keeps_its_own_colon() -> None:
    by = ["values: main", "values: tiny", "own work: native symbols", "own work: processor time: timed"]
    found = failed_checks(trial(kernel("x"), Outcome.CHEATED, "why", by=by), PROBLEM)
    assert found == ("values", "own work: native symbols", "own work: processor time")


def test_a_cause_is_the_first_check_or_else_the_reason() -> None:
    assert cause_of("square", "cpp", Outcome.CHEATED, ("values", "screen"), "why") == "square, cpp: CHEATED, values"
    assert cause_of("square", "cpp", Outcome.CRASHED, (), "why") == "square, cpp: CRASHED, why"
    assert (
        cause_of("a", "cpp", Outcome.WRONG_VALUES, ["values"], "why", "wrong") == "a, cpp: WRONG_VALUES, values, wrong"
    )


def row(
    error: float | None,
    gate: float,
    *,
    gated: bool = True,
    workload: str = "main",
    family: str = "normal",
    passes: bool = True,
) -> Accuracy:
    return Accuracy(
        workload=workload,
        family=family,
        draws=1,
        relative_l2=error,
        gate=gate,
        torch_relative_l2=None,
        worst_element=None if error is None else 0.0,
        gated=gated,
        reached=Arithmetic.FP32 if passes and error is not None and error <= gate else None,
    )


@pytest.mark.parametrize(
    ("rows", "reached", "how"),
    [
        ([row(3e-6, 2e-6), row(1e-7, 2e-6)], Arithmetic.TF32, "in less precision"),
        ([row(1e-7, 2e-6), row(1e-4, 0.0)], None, "not exact"),
        ([row(0.5, 2e-6), row(1e-4, 0.0)], None, "wrong"),
        ([row(None, 2e-6)], None, "wrong"),
        (
            [row(1e-7, 2e-6), row(3e-6, 2e-6, family="sorted")],
            Arithmetic.TF32,
            "in less precision, normal values right",
        ),
        ([row(1e-7, 2e-6), row(0.5, 2e-6, family="zeros")], None, "wrong, normal values right"),
        (
            [row(1e-7, 2e-6), row(0.0, 2e-6, family="ones", passes=False)],
            None,
            "not zero where torch is, normal values right",
        ),
        ([row(0.0, 2e-6, passes=False), row(0.5, 2e-6, family="ones")], None, "wrong"),
        ([row(0.5, 0.0)], None, "wrong"),
        ([row(0.5, 2e-6, workload="timed window of main")], None, None),
        ([row(1e-7, 2e-6), row(0.5, 2e-6, gated=False)], Arithmetic.TF32, None),
        ([], None, None),
    ],
)
def test_wrong_values_are_told_apart_by_how_they_are_wrong(
    rows: list[Accuracy], reached: Arithmetic | None, how: str | None
) -> None:
    found = {"accuracy": tuple(rows), "accuracy_class": reached}
    wrong, cheated = (trial(kernel("x"), of, "why", by=["values"]) for of in (Outcome.WRONG_VALUES, Outcome.CHEATED))
    assert how_wrong(wrong.model_copy(update=found), PROBLEM) == how
    assert how_wrong(cheated.model_copy(update=found), PROBLEM) is None
