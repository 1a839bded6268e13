"""The same kernel at neighbouring shapes. The guest is a thread here; races are made up but for one (slow)."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import pytest
from verify_guests import rig_of, session_at, torch_conv
from verify_problems import cpp_source, edited_kernel, small_conv

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.records.run import Effort
from agentgen.records.trial import EAGER, Check, Neighbour, Outcome
from agentgen.verify.checks.neighbours import Near, RaceAt, build, neighbouring_shapes
from agentgen.verify.evaluation import evaluate
from agentgen.verify.findings import Findings, Rejected
from agentgen.verify.judge import Judge
from agentgen.verify.rig import Rig
from agentgen.verify.stopwatch import Stopwatch
from agentgen.verify.timing import Race

NEAR = (
    Workload(name="one", constants={"batch": 1, "size": 8}),
    Workload(name="odd", constants={"batch": 2, "size": 11}),
)


def problem(*neighbours: Workload) -> Problem:
    return small_conv().model_copy(update={"neighbours": neighbours})


@pytest.fixture(scope="module")
def near() -> Iterator[list[Near]]:
    with ExitStack() as stack:
        rigs = [stack.enter_context(rig_of(small_conv(), workload)) for workload in NEAR]
        yield [Near(rig, stopwatch(rig), {}, {}) for rig in rigs]


def stopwatch(rig: Rig) -> Stopwatch:
    return Stopwatch(rig, None, near=True)


def race_at(near: Near, _: Findings) -> Race:
    """At `odd` ten times as slow as eager torch, elsewhere twice as fast."""
    mine = 100.0 if near.rig.reference.workload == "odd" else 5.0
    return Race(1, (mine,) * 5, (mine,) * 5, {EAGER: (10.0,) * 5}, 0.0, (), 0.0)


def looked(
    near: Sequence[Near], source: str, race: RaceAt | None, without_room: Sequence[str] = ()
) -> tuple[Check, list[Neighbour], Findings]:
    findings, found = Findings(), list[Neighbour]()
    with rig_of(small_conv()) as main, session_at(main, source) as session:
        neighbouring_shapes(findings, session, (near, without_room), Arithmetic.FP32, race, findings, found)
    (check,) = findings.checks
    return check, found, findings


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)  # a guest writes its module there


def test_right_at_all_of_them_and_slow_at_one_is_no_fault(near: list[Near]) -> None:
    check, found, findings = looked(near, torch_conv(), race_at)
    assert check.passed
    assert check.evidence == "right at one, odd; worst 0.10 times eager torch at odd"
    assert [(one.workload, one.median_us, one.speedup.ratio) for one in found] == [
        ("one", 5.0, 2.0),
        ("odd", 100.0, 0.1),
    ]
    rows = [("one", "normal"), ("one", "outliers"), ("odd", "normal"), ("odd", "outliers")]
    assert [(row.workload, row.family) for row in findings.accuracy] == rows


def test_untimed_they_are_checked_all_the_same(near: list[Near]) -> None:
    check, found, _ = looked(near, torch_conv(), None, ["double"])
    assert check.evidence == "right at one, odd; not timed; skipped for want of memory: double"
    assert found == []


def test_a_kernel_that_is_wrong_at_one_of_them(near: list[Near]) -> None:
    source = torch_conv("y = self.answer(x)\nreturn y * 1.001 if x.shape[-1] % 2 else y")
    with pytest.raises(Rejected, match="odd, normal: relative L2 error") as raised:
        looked(near, source, None)
    assert raised.value.outcome is Outcome.WRONG_VALUES


def test_without_any_nothing_is_decided() -> None:
    assert looked((), torch_conv(), race_at)[0].evidence == "skipped: the problem names none"
    check, _, _ = looked((), torch_conv(), race_at, ["double"])
    assert (check.passed, check.evidence) == (None, "skipped for want of memory: double")


def test_what_does_not_fit_is_left_out() -> None:
    reference = small_conv().reference.replace(
        "return self.conv(x)", "if x.any() and len(x) > 5: raise torch.OutOfMemoryError\n        return self.conv(x)"
    )
    double = Workload(name="double", constants={"batch": 8, "size": 8})
    crowded = problem(NEAR[0], double).model_copy(update={"reference": reference})
    near, without_room = build(crowded, "cpu", 0, Arithmetic.FP32, stopwatch)
    (one,) = near
    assert one.rig.reference.workload == "one"
    assert one.quiet_us[EAGER] > 0
    assert without_room == ["double"]
    one.rig.close()


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on the PATH")
def test_a_whole_trial_tells_where_a_kernel_is_special() -> None:
    slowly = "for _ in range(10):\n            y = self.conv(x)\n        return y"
    behind = small_conv().reference.replace("return self.conv(x)", slowly)
    judge = Judge(problem(*NEAR).model_copy(update={"reference": behind}), "cpu", Arithmetic.FP32, Effort.QUICK)
    slow = edited_kernel(
        "double sum = b[o];", "double sum = b[o];\nif (H == 11) for (volatile int z = 0; z < 99999; z++);"
    )
    wrong = edited_kernel("double sum = b[o];", "double sum = H == 11 ? 0 : b[o];")
    late = edited_kernel("double sum = b[o];", "double sum = b[o];\nfor (volatile int z = 0; z < 999; z++);")
    trials = [
        evaluate(judge, Candidate(source=cpp_source(kernel=text), language=Language.CPP), lambda _: None, timing=True)
        for text in (slow, wrong, late)
    ]
    judge.close()
    assert trials[0].outcome is Outcome.PASSED, trials[0].reasons
    worst = trials[0].worst_neighbour
    assert worst
    assert worst.workload == "odd"
    assert worst.speedup.ratio < 0.2
    assert {one.workload for one in trials[0].neighbours} == {"one", "odd"}
    assert trials[1].outcome is Outcome.WRONG_VALUES
    assert trials[1].reasons[0].startswith("odd, normal: ")
    assert trials[1].timing is None
    assert trials[1].neighbours == ()
    assert trials[2].outcome is Outcome.PASSED, trials[2].reasons
    assert trials[2].speedup
    assert trials[2].speedup.high < 0.9
    assert trials[2].neighbours == ()
    (near,) = (check for check in trials[2].checks if check.name == "neighbouring shapes")
    assert near.evidence == "right at one, odd; not timed"
