"""Is the time true? Honest figures, as they were seen, pass; each other one is told for what it is."""

from __future__ import annotations

import pytest

from agentgen.records.trial import Check, Outcome
from agentgen.sandbox.kin import Kin
from agentgen.verify.checks import tripwires
from agentgen.verify.checks.processor import Work
from agentgen.verify.findings import Findings, Named, Rejected

UNKNOWN = (None, None)


def looked(check: Named[...], *args: object, **how: object) -> Check:
    findings = Findings()
    check(findings, *args, **how)
    (line,) = findings.checks
    return line


def caught(check: Named[...], *args: object, **how: object) -> str:
    with pytest.raises(Rejected) as raised:
        looked(check, *args, **how)
    assert raised.value.outcome is Outcome.CHEATED
    return str(raised.value)


# ---- clocks agree ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("share", [0.946, 1.0, 1.09])
def test_clocks_that_agree(share: float) -> None:
    line = looked(tripwires.clocks_agree, [share * us for us in (900.0, 1000.0, 5000.0)], [900.0, 1000.0, 5000.0])
    assert line.passed
    assert f"{share - 1:+.1%} over 3 windows" in line.evidence


@pytest.mark.parametrize("share", [0.0, 0.5, 0.89, 1.11, 30.0])
def test_clocks_that_do_not(share: float) -> None:
    assert "the guest's clock differs" in caught(tripwires.clocks_agree, [share * 1000.0] * 3, [1000.0] * 3)


def test_one_window_that_was_interrupted_is_no_cheat() -> None:
    assert looked(tripwires.clocks_agree, [1000.0] * 5, [1000.0, 1001.0, 1002.0, 1003.0, 9000.0]).passed


def test_a_command_may_take_its_time_on_a_cpu() -> None:
    """The shorter a window, the larger a share of it; it makes no guest slower than the judge has seen."""
    assert looked(tripwires.clocks_agree, [5000.0], [6500.0], tripwires.COMMAND_US).passed
    assert "-23.1%" in caught(tripwires.clocks_agree, [5000.0], [6500.0])
    assert "-50.0%" in caught(tripwires.clocks_agree, [30_000.0], [60_000.0], tripwires.COMMAND_US)
    assert "+30.0%" in caught(tripwires.clocks_agree, [6500.0], [5000.0], tripwires.COMMAND_US)


def test_windows_that_were_all_held_up_are_raced_again_and_the_line_says_so() -> None:
    """As on an H200: 71% below in the median, 33% at the least."""
    judged, guest = [1000.0] * 5, [290.0, 250.0, 310.0, 671.0, 280.0]
    assert tripwires.held_up(guest, judged)
    assert not tripwires.held_up([*guest[:4], 950.0], judged)
    assert not tripwires.held_up([1500.0] * 5, judged)
    assert not tripwires.held_up([800.0] * 5, judged, around_us=150.0)
    assert "the race before was held up" in looked(tripwires.clocks_agree, judged, judged, again=True).evidence
    assert "of the second of two races" in caught(tripwires.clocks_agree, [500.0] * 5, judged, again=True)


# ---- work ends with the window ---------------------------------------------------------------------------------------


def test_a_device_that_is_idle_after_the_mark() -> None:
    assert looked(tripwires.ends_with_window, [4e-4, 5e-4, 9e-3], [6e-3] * 3).passed
    assert looked(tripwires.ends_with_window, [0.01] * 3, [0.2] * 3).passed, "a tenth of a long window"


def test_a_device_that_goes_on_after_the_mark() -> None:
    said = caught(tripwires.ends_with_window, [4e-3] * 3, [6e-3] * 3)
    assert said == "the device was busy for 4.00 ms after the mark of a window of 6.00 ms"


def test_a_device_that_seems_to_go_on_is_raced_again_and_the_line_says_so() -> None:
    """As on an H200: an honest kernel, five short windows at a neighbouring shape."""
    assert tripwires.ran_over([5.43e-3] * 5, [3.11e-3] * 5)
    assert not tripwires.ran_over([5.43e-3, 5.43e-3, 4e-4, 4e-4, 4e-4], [3.11e-3] * 5)
    assert "held up" in looked(tripwires.ends_with_window, [4e-4] * 5, [3e-3] * 5, again=True).evidence
    assert "in the second of two races" in caught(tripwires.ends_with_window, [4e-3] * 5, [3e-3] * 5, again=True)


def test_on_a_cpu_there_is_no_tail_to_measure() -> None:
    assert looked(tripwires.ends_with_window, [0.0] * 3, [6e-2] * 3).passed is None


# ---- baseline undisturbed --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("beside", "quiet"), [(100.0, 100.0), (110.0, 100.0), (50.0, 100.0), (3.0, 2.0)])
def test_a_baseline_that_is_as_fast_as_before(beside: float, quiet: float) -> None:
    raced = {"eager": [beside, beside, 40 * beside], "compiled": [1.0]}
    assert looked(tripwires.undisturbed, raced, {"eager": quiet, "compiled": 1.0}, shared=False).passed


def test_a_baseline_that_was_slowed() -> None:
    raced, quiet = {"eager": [100.0], "compiled": [130.0, 131.0, 132.0]}, {"eager": 100.0, "compiled": 100.0}
    assert (
        caught(tripwires.undisturbed, raced, quiet, shared=False)
        == "compiled took 131.0 us beside this guest, 100.0 us before it"
    )


def test_a_baseline_that_seems_slowed_is_raced_again_and_the_line_says_so() -> None:
    """As on an H200: an honest kernel, while something held up both GPUs of the machine."""
    slowed, usual, quiet = {"eager": [1892.8]}, {"eager": [1240.0]}, {"eager": 1237.5}
    assert tripwires.disturbed(slowed, quiet) == "eager"
    assert tripwires.disturbed(usual, quiet) is None
    assert "held up" in looked(tripwires.undisturbed, usual, quiet, shared=False, again=True).evidence
    assert "in the second of two races" in caught(tripwires.undisturbed, slowed, quiet, shared=False, again=True)


# ---- byte floor, instruments -----------------------------------------------------------------------------------------


def test_no_kernel_is_faster_than_its_memory() -> None:
    assert looked(tripwires.above_floor, 10.0, 9.9, 12.0).passed
    assert looked(tripwires.above_floor, 0.1, 0.0, 1.0).passed
    assert "moving the inputs and outputs alone takes 9.90 us" in caught(tripwires.above_floor, 9.8, 9.9, 12.0)


def test_kernels_run_as_long_under_instruments_as_when_timed() -> None:
    agree = tripwires.instruments_agree
    assert looked(agree, 124.0, 100.0, wall=False, worked=UNKNOWN).passed
    assert looked(agree, 4.0, 1.7, wall=False, worked=UNKNOWN).passed, "2 us are within what a record is right to"
    assert looked(agree, 50.0, 100.0, wall=False, worked=UNKNOWN).passed, "launches take time that no kernel runs in"
    assert looked(agree, None, 100.0, wall=False, worked=UNKNOWN).passed is None
    assert "128.0 us a call under instruments, 100.0 us when" in caught(agree, 128.0, 100.0, wall=False, worked=UNKNOWN)


def test_a_call_takes_at_most_three_times_as_long_under_a_cpu_s_instruments() -> None:
    agree = tripwires.instruments_agree
    assert looked(agree, 28e3, 9.5e3, wall=True, worked=UNKNOWN).passed
    assert looked(agree, 40.0, 3.0, wall=True, worked=UNKNOWN).passed, "the dispatcher's record takes 20 us an operator"
    assert "does less when it is timed" in caught(agree, 30e3, 9.5e3, wall=True, worked=UNKNOWN)


def test_a_call_that_waited_under_instruments_does_no_less_when_timed() -> None:
    agree, times = tripwires.instruments_agree, (91e3, 17e3)
    line = looked(agree, *times, wall=True, worked=(Work(70, 4), Work(900, 60)))
    assert line.passed is None
    assert "it worked 35000 and 30000 us, and waited for others" in line.evidence
    assert "does less when it is timed" in caught(agree, *times, wall=True, worked=(Work(70, 4), Work(60, 60))), (
        "35000 and 2000 us"
    )
    assert "does less when it is timed" in caught(agree, *times, wall=True, worked=(Work(29, 4), Work(900, 60))), (
        "too few samples"
    )
    assert "does less when it is timed" in caught(agree, *times, wall=True, worked=(Work(70, 4), Work()))
    assert "does less when it is timed" in caught(agree, *times, wall=True, worked=(Work(70, 4), None))


def test_where_torch_is_below_the_floor_it_is_none() -> None:
    assert looked(tripwires.above_floor, 1.0, 9.9, 2.0).passed is None, "a gather reads few of its inputs"


def test_a_slowed_baseline_of_a_shared_machine_is_reported() -> None:
    assert looked(tripwires.undisturbed, {"eager": [140.0]}, {"eager": 100.0}, shared=True).passed
    line = looked(tripwires.undisturbed, {"eager": [160.0]}, {"eager": 100.0}, shared=True)
    assert line.passed is None
    assert "60.0% slower" in line.evidence


def test_a_call_with_inputs_of_its_own_takes_as_long_as_in_the_race() -> None:
    assert looked(tripwires.every_call, [(120.0, 100.0)] * 3, UNKNOWN).passed
    assert looked(
        tripwires.every_call, [(-3.0, 1.0)] * 3, UNKNOWN
    ).passed  # the difference of two short windows may be noise
    assert "remembers answers within a window" in caught(tripwires.every_call, [(130.0, 100.0)] * 24, UNKNOWN)
    assert "longer in 16 of 24" in caught(tripwires.every_call, [(130.0, 100.0)] * 16 + [(130.0, 110.0)] * 8, UNKNOWN)


def test_who_remembers_works_less_and_not_only_shorter() -> None:
    every, pairs_us = tripwires.every_call, [(442.0, 257.0)] * 24
    line = looked(every, pairs_us, (Work(260, 1000), Work(220, 1000)))
    assert line.passed is None
    assert "it worked 520 and 440 us, and waited for others" in line.evidence
    assert "remembers answers" in caught(every, pairs_us, (Work(260, 1000), Work(12, 1000)))
    assert "remembers answers" in caught(every, pairs_us, (Work(29, 1000), Work(29, 1000))), "too few samples"


def test_one_quick_window_on_a_busy_machine_condemns_nobody() -> None:
    quick = [(600.0, 580.0), (442.0, 590.0), (700.0, 313.0)] * 8
    assert looked(tripwires.every_call, quick, UNKNOWN).passed is None
    assert looked(tripwires.every_call, [*quick, (380.0, 600.0)], UNKNOWN).passed


def test_a_guest_that_is_alone() -> None:
    assert looked(tripwires.alone, Kin(gone_s=3.0), Kin(gone_s=3.05), 1.0).passed


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (Kin(living=("python (77)",)), "python (77)"),
        (Kin(gone_s=0.2), "0.20 s while 1.00 s were timed"),
        (Kin(unseen=True), "ignores SIGCHLD"),
    ],
)
def test_a_guest_that_others_work_for(after: Kin, said: str) -> None:
    assert said in caught(tripwires.alone, Kin(), after, 1.0)
