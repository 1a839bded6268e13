"""Same, slower, wrong or elsewhere: what judging an entry again comes to."""

from __future__ import annotations

import pytest
from entry_records import DAY, MACHINE, certificate, entry, refused

from agentgen.records.entry import Entry, Finding, Reverified
from agentgen.records.machine import Machine
from agentgen.records.trial import Trial
from agentgen.scoring.again import found, suspect

ENTRY = entry(ratio=2.0)
TORCH = MACHINE.model_copy(update={"torch": "2.12.0"})
DRIVER = MACHINE.model_copy(update={"driver": "590.1", "python": "3.13.0"})
L40S = MACHINE.model_copy(update={"device": "NVIDIA L40S"})


def go(ratio: float, machine: Machine = MACHINE) -> Trial:
    return certificate(ENTRY.candidate, ratio, machine=machine)


def judged(*trials: Trial, of: Entry = ENTRY, workload: str = "main") -> Reverified:
    return found(of, trials, workload, DAY)


def claiming(**change: float) -> Entry:
    """Returns the entry with another first race written into its certificate."""
    first, *others = ENTRY.trial.speedups
    trial = ENTRY.trial.model_copy(update={"speedups": (first.model_copy(update=change), *others)})
    return ENTRY.model_copy(update={"trial": trial})


def test_what_differs_by_no_more_than_identical_kernels_is_the_same() -> None:
    for ratio in (1.97, 2.0, 2.03):
        assert not suspect(ENTRY, go(ratio))
        assert judged(go(ratio)).finding is Finding.SAME
    result = judged(go(1.99))
    assert result.words == "over torch.compile default 2.000x [1.980, 2.020] then, 1.990x [1.970, 2.010] now"
    assert (result.date, result.machine, result.goes) == (DAY, MACHINE, 1)
    assert result.median_us == 200 / 1.99
    assert result.speedup == go(1.99).speedup


def test_a_kernel_that_is_slower_in_all_goes_is_slower() -> None:
    assert suspect(ENTRY, go(1.5))
    result = judged(go(1.5), go(1.51), go(1.49))
    assert result.finding is Finding.SLOWER
    assert result.goes == 3
    assert result.words.startswith("by 33.3%: over torch.compile default 2.000x")


def test_one_disturbed_go_is_no_slower_kernel() -> None:
    assert suspect(ENTRY, go(1.0))
    assert judged(go(1.0), go(2.0), go(2.0)).finding is Finding.SAME


def test_a_kernel_that_is_faster_is_said_to_be() -> None:
    assert judged(go(3.0)).finding is Finding.FASTER


def test_a_kernel_that_is_refused_is_wrong_and_its_first_reason_told() -> None:
    result = judged(refused(ENTRY.candidate))
    assert result.finding is Finding.WRONG
    assert result.words == "WRONG_VALUES: main, normal: relative L2 error 1.0"
    assert (result.median_us, result.speedup) == (None, None)
    assert judged(go(1.5), refused(ENTRY.candidate), go(1.5)).finding is Finding.WRONG


def test_an_update_excuses_times_and_no_wrong_values() -> None:
    assert not suspect(ENTRY, go(1.0, TORCH))
    result = judged(go(1.0, TORCH))
    assert result.finding is Finding.ELSEWHERE
    assert result.words == "torch 2.11.0 then and 2.12.0 now: times are not compared; accepted here"
    wrong = judged(refused(ENTRY.candidate, TORCH))
    assert wrong.finding is Finding.WRONG
    assert wrong.words.endswith("relative L2 error 1.0 under torch 2.11.0 then and 2.12.0 now")


def test_another_machine_says_nothing_of_the_kernel() -> None:
    for trial, words in ((go(1.0, L40S), "accepted"), (refused(ENTRY.candidate, L40S), "WRONG_VALUES")):
        assert not suspect(ENTRY, trial)
        result = judged(trial)
        assert result.finding is Finding.ELSEWHERE
        assert result.words.startswith(f"device NVIDIA H200 then and NVIDIA L40S now: times are not compared; {words}")


def test_a_driver_excuses_nothing_and_is_said() -> None:
    assert suspect(ENTRY, go(1.5, DRIVER))
    result = judged(go(1.5, DRIVER), go(1.5, DRIVER), go(1.5, DRIVER))
    assert result.finding is Finding.SLOWER
    assert result.words.endswith("; driver 580.159.04 then and 590.1 now, python 3.12.3 then and 3.13.0 now")


@pytest.mark.parametrize("change", [{"timing": None, "speedups": ()}, {"speedups": ()}])
def test_without_a_time_nothing_is_said_of_it(change: dict[str, object]) -> None:
    trial = go(2.0).model_copy(update=change)
    assert not suspect(ENTRY, trial)
    assert judged(trial).finding is Finding.UNTIMED


def test_the_fastest_baseline_that_both_raced_is_compared() -> None:
    eager_only = go(1.5).model_copy(update={"speedups": go(2.0).speedups[1:]})
    result = judged(eager_only)
    assert result.finding is Finding.SAME
    assert result.words.startswith("over eager 3.000x")


def test_no_width_that_was_written_into_an_interval_explains_a_slower_kernel() -> None:
    """It stands first by its lower end; by its interval nothing could ever be slower than it."""
    forged = claiming(ratio=100.0, low=99.0, high=1e9)
    assert suspect(forged, go(2.0))
    assert judged(go(2.0), go(2.01), go(1.99), of=forged).finding is Finding.SLOWER
    disturbed = claiming(low=1.0, high=4.0)
    assert not suspect(disturbed, go(1.9))
    assert judged(go(1.9), of=disturbed).finding is Finding.SAME


def test_a_speedup_over_a_slower_baseline_is_not_taken_for_that_over_the_best() -> None:
    trial = ENTRY.trial.model_copy(update={"speedups": ENTRY.trial.speedups[1:]})
    result = judged(go(2.0), of=ENTRY.model_copy(update={"trial": trial}))
    assert result.finding is Finding.UNTIMED
    assert "no race with torch.compile default, the fastest baseline here" in result.words


def test_a_time_at_a_smaller_workload_is_none_of_main() -> None:
    result = judged(go(2.0), workload="less")
    assert (result.finding, result.words) == (
        Finding.UNTIMED,
        "accepted, but timed at less: for main there is too little memory",
    )
    assert judged(refused(ENTRY.candidate), workload="less").finding is Finding.WRONG


def test_the_reason_of_a_refusal_is_told_in_a_line_of_some_length() -> None:
    long = refused(ENTRY.candidate).model_copy(update={"reasons": ("error\n" * 100_000,)})
    assert len(judged(long).words) < 400
