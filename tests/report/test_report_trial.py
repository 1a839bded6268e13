"""What `verify` shows and answers."""

from __future__ import annotations

from report_records import accuracy, candidate, failed, idea, passed, with_neighbours
from rich.console import Console

from agentgen.records.trial import BuildReport, Check, KernelProfile, Outcome, Trial
from agentgen.report.trial import findings, trial_json

CANDIDATE = candidate("source", idea("Tile the output"))


def shown(trial: Trial, *, all_accuracy: bool = False) -> str:
    console = Console(width=140, markup=False, highlight=False, emoji=False)
    with console.capture() as capture:
        console.print(findings(trial, all_accuracy=all_accuracy))
    return capture.get()


def test_an_accepted_kernel_is_shown_with_all_evidence() -> None:
    build = (BuildReport(kernel="conv", registers=40, spill_bytes=0),)
    text = shown(passed(CANDIDATE, 2.0, 1.9, 2.1).model_copy(update={"build": build}))
    assert text.startswith("PASSED  conv2d, fp32")
    assert "own work" in text
    assert "0 foreign kernels" in text
    assert "median 3.107 ms (quartiles 3.000 ms to 3.250 ms) over 25 windows of 4 cold calls in 1 fresh guest;" in text
    assert "31% of the roofline" in text
    assert "2.00× [1.90, 2.10]" in text
    assert "seconds: start 0.01, build 0.25, check 1.50, time 2.00" in text
    assert "on AMD EPYC 9554" in text
    (kernel,) = (line.split() for line in text.splitlines() if line.startswith(" conv "))
    assert kernel == ["conv", "40", "0", "–"]


def test_device_time_by_kernel_is_shown_where_a_gpu_told_it() -> None:
    profile = (KernelProfile(kernel="conv", launches=2.0, us=210.44, share=0.96, threads=256, registers=128),)
    text = shown(passed(CANDIDATE, 2.0, 1.9, 2.1).model_copy(update={"profile": profile}))
    (kernel,) = (line.split() for line in text.splitlines() if line.startswith(" conv "))
    assert kernel == ["conv", "2", "210.4", "96%", "256", "–", "128"]


def test_a_check_that_decided_nothing_is_neither_ok_nor_failed() -> None:
    skipped = Check(name="race checker", passed=None, evidence="not run: it looks at GPUs")
    trial = passed(CANDIDATE, 2.0, 1.9, 2.1)
    text = shown(trial.model_copy(update={"checks": (*trial.checks, skipped)}))
    (line,) = (line.split() for line in text.splitlines() if "race checker" in line)
    assert line[:3] == ["race", "checker", "–"]


def test_neighbours_are_shown_and_the_worst_is_marked() -> None:
    lines = shown(with_neighbours(passed(CANDIDATE, 2.0, 1.9, 2.1))).splitlines()
    (half,) = (line for line in lines if line.startswith(" half batch"))
    (odd,) = (line for line in lines if line.startswith(" odd sizes"))
    assert "1.60× [1.50, 1.70]" in half
    assert "worst" not in half
    assert odd.split()[-1] == "worst"


def test_checks_are_explained_where_that_is_asked_for() -> None:
    values = Check(name="values: main", passed=True, evidence="12 secret draws")
    trial = passed(CANDIDATE, 2.0, 1.9, 2.1)
    trial = trial.model_copy(update={"checks": (values, *trial.checks)})
    console = Console(width=140)
    with console.capture() as capture:
        console.print(findings(trial, explanations={"values": "Catches wrong results."}))
    assert capture.get().count("Catches wrong results.") == 1
    assert "Catches" not in shown(trial)


def test_only_the_worst_family_of_a_workload_is_shown_unless_all_are_wanted() -> None:
    trial = passed(CANDIDATE, 2.0, 1.9, 2.1)
    assert "9.00e-07" in shown(trial)
    assert "2.00e-07" not in shown(trial)
    assert "2.00e-07" in shown(trial, all_accuracy=True)


def test_a_family_that_is_not_gated_is_never_the_worst() -> None:
    wild = accuracy("main", "wild", 0.5).model_copy(update={"gated": False})
    trial = passed(CANDIDATE, 2.0, 1.9, 2.1)
    text = shown(trial.model_copy(update={"accuracy": (*trial.accuracy, wild)}))
    assert "wild" not in text


def test_a_rejected_kernel_shows_reasons_and_log_as_they_are() -> None:
    text = shown(failed(CANDIDATE, Outcome.CRASHED, "signal 11 in [main]"))
    assert text.startswith("CRASHED")
    assert "signal 11 in [main]" in text
    assert "[bold]guest says[/bold]" in text
    assert "not timed" not in text


def test_accepted_without_a_time_says_so() -> None:
    assert "not timed" in shown(passed(CANDIDATE, 1, 1, 1, timed=False))


def test_json_is_the_trial_with_its_verdict() -> None:
    trial = passed(CANDIDATE, 2.0, 1.9, 2.1)
    answer = trial_json(trial)
    assert answer["accepted"] is True
    assert answer["speedup"] == trial.speedups[0].model_dump(mode="json")
    own = {name: value for name, value in answer.items() if name not in ("accepted", "speedup")}
    assert Trial.model_validate(own) == trial
    rejected = trial_json(failed(CANDIDATE, Outcome.WRONG_VALUES, "off"))
    assert (rejected["accepted"], rejected["speedup"], rejected["timing"]) == (False, None, None)
