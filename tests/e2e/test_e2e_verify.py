"""`agentgen verify` and `bench` with the real judge."""

from __future__ import annotations

from pathlib import Path

import pytest
from e2e_square import agentgen


@pytest.mark.slow
def test_an_honest_kernel_is_accepted_and_timed_and_what_it_is_kept_in_is_told(home: Path) -> None:
    code, answer = agentgen(home, "verify", "square", "honest.py", "--device", "cpu")
    assert (code, answer["accepted"], answer["outcome"]) == (0, True, "PASSED"), answer["reasons"]
    assert answer["timing"]["median_us"] > 0
    assert answer["speedup"]["low"] <= answer["speedup"]["ratio"] <= answer["speedup"]["high"]
    assert answer["roofline_fraction"] > 0
    assert {"accepted", "outcome", "reasons", "checks", "accuracy", "seconds", "machine"} <= answer.keys()
    kept = answer["checks"][0]
    assert kept["name"] == "sandbox"
    assert kept["passed"] is (None if kept["evidence"].startswith("none") else True)


@pytest.mark.slow
def test_what_the_kernel_is_kept_in_can_be_chosen(home: Path) -> None:
    plain = agentgen(home, "verify", "square", "honest.py", "--device", "cpu", "--no-timing", "--sandbox", "none")[1]
    assert (plain["checks"][0]["name"], plain["checks"][0]["passed"]) == ("sandbox", None)
    assert plain["checks"][0]["evidence"].startswith("none: plain processes; ")
    assert plain["accepted"] is True


@pytest.mark.slow
def test_a_wrong_kernel_is_rejected_with_the_family_that_found_it_from_a_bare_reference(home: Path) -> None:
    reference = str(home / "problems" / "square" / "reference.py")
    code, answer = agentgen(home, "verify", "--reference", reference, "forgets.py", "--device", "cpu")
    assert code == 1
    assert answer["outcome"] == "WRONG_VALUES"
    assert "normal" in answer["reasons"][0]
    assert answer["timing"] is None


@pytest.mark.slow
def test_bench_races_the_compiled_baselines(home: Path) -> None:
    code, answer = agentgen(home, "bench", "square", "honest.py", "--device", "cpu")
    assert code == 0
    names = {speedup["baseline"] for speedup in answer["speedups"]}
    assert "eager" in names
    assert any(name.startswith("torch.compile") for name in names)
    times = [speedup["baseline_us"] for speedup in answer["speedups"]]
    assert times == sorted(times)


@pytest.mark.slow
def test_a_certificate_of_a_run_is_that_of_its_best_kernel(home: Path) -> None:
    code, answer = agentgen(home, "reverify", "latest", "--device", "cpu")
    assert code == 2
    assert "no runs" in answer["error"] or "no run" in answer["error"]


@pytest.mark.slow
def test_every_check_can_be_explained(home: Path) -> None:
    code, answer = agentgen(home, "verify", "--explain")
    assert code == 0
    assert {"values", "own outputs", "own kernels", "clocks agree", "race checker"} <= answer["checks"].keys()
    for name, text in answer["checks"].items():
        assert "atch" in text, name
        assert "not catch" in text, name
