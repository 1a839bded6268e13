"""How many windows a race takes, and what is looked at in them. The guest is a thread here."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from verify_guests import rig_of, session_at, torch_conv
from verify_problems import small_conv

from agentgen.records.problem import Arithmetic
from agentgen.verify.baselines import Call
from agentgen.verify.checks.audit import Audit
from agentgen.verify.findings import Findings, Rejected
from agentgen.verify.stopwatch import CPU, FEWEST_PAIRS, GPU, NEAR_CPU, Stopwatch
from agentgen.verify.timing import STRANGE, Race, behind, race

ALLOWED = {5: 0, 7: 0, 8: 1, 11: 2, 21: 5}
"""Windows in which a lost race may look otherwise, by how many there are."""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)  # a guest writes its module there


def delayed(call: Call, seconds: float) -> Call:
    def answer(*args: torch.Tensor) -> list[torch.Tensor]:
        time.sleep(seconds)
        return call(*args)

    return answer


def raced(forward: str, baseline_s: float, findings: Findings | None = None) -> Race:
    """A race of small windows, the baseline slowed by so many seconds a call."""
    with rig_of(small_conv()) as rig, session_at(rig, torch_conv(forward)) as session:
        rig.draw_inputs(STRANGE[0])
        watch = Stopwatch(rig, None, near=True)
        watch.schedule = replace(watch.schedule, pairs=FEWEST_PAIRS)
        audit = Audit(rig, Arithmetic.FP32, watch.calls(10_000.0), FEWEST_PAIRS, findings or Findings())
        baseline = {"eager": delayed(rig.reference.call, baseline_s)}
        return race(watch, session, baseline, {"eager": 1e6 * baseline_s}, 10_000.0, audit, strange=True)


@pytest.mark.parametrize("pairs", ALLOWED)
def test_a_race_is_lost_behind_every_baseline_and_beyond_doubt(pairs: int) -> None:
    mine, allowed = [100.0] * pairs, ALLOWED[pairs]
    well = [89.0] * (pairs - allowed) + [300.0] * allowed
    assert behind(mine, {"eager": well})
    assert behind(mine, {"eager": well, "compiled": [20.0] * pairs})
    assert not behind(mine, {"eager": [*well[1:], 91.0]})
    assert not behind(mine, {"eager": well, "compiled": [91.0] * pairs})
    assert not behind(mine, {"eager": [300.0] * pairs})


def test_by_chance_few_races_are_lost() -> None:
    source = torch.Generator().manual_seed(5)
    lost = 0
    for _ in range(2000):  # as fast as what just does not count as behind, with noise of a quarter
        noise = torch.randn(2, 11, generator=source).mul(0.25).exp()
        mine, theirs = (100 * noise[0]).tolist(), (90 * noise[1]).tolist()
        lost += any(behind(mine[:n], {"eager": theirs[:n]}) for n in range(FEWEST_PAIRS, 12))
    assert lost < 0.12 * 2000


def test_who_is_behind_gets_the_fewest_windows_and_is_looked_at_as_all_are() -> None:
    findings = Findings()
    slow = raced("import time; time.sleep(0.01); return self.answer(x)", 0.001, findings)
    assert slow.lost
    assert len(slow.windows) == len(slow.candidate_us) == len(slow.baselines_us["eager"]) == FEWEST_PAIRS
    seen = [(row.workload, row.family) for row in findings.accuracy]
    assert sorted(seen) == sorted(("timed window of main", family.value) for family in STRANGE)


@pytest.mark.parametrize(
    ("call_us", "sets", "calls"),
    [
        (10_000, 21, 4),
        (1_700, 21, 21),  # of 24 calls in 40 ms three would come back to an input: 36 ms are as good
        (960, 21, 21),
        (940, 21, 43),  # 21 calls would be less than half of a window
        (0.01, 2, 20_000),
    ],
)
def test_a_window_of_a_cpu_ends_with_the_last_input_where_it_is_long_enough(
    call_us: float, sets: int, calls: int
) -> None:
    assert CPU.calls(call_us, sets) == calls
    assert GPU.calls(call_us, sets) == GPU.calls(call_us, 10**6), "a GPU's windows are as long as its gate needs"


def test_a_neighbour_has_the_pairs_that_its_schedule_names() -> None:
    assert [NEAR_CPU.pairs_of(us) for us in (1.0, 1e9)] == [NEAR_CPU.pairs] * 2
    assert CPU.pairs_of(1.0) == CPU.pairs
    assert CPU.pairs_of(1e9) == FEWEST_PAIRS


def test_who_is_ahead_is_not_lost() -> None:
    ahead = raced("return self.answer(x)", 0.02)
    assert not ahead.lost
    assert ahead.copying_s > 0


@pytest.mark.parametrize("family", ["x.mean() > 900", "x.abs().max() > 1100", "(x == 0).any()"])
def test_who_is_right_on_normal_numbers_only_while_timed_is_found_in_any_race(family: str) -> None:
    for baseline_s in (0.001, 0.02):
        with pytest.raises(Rejected, match="timed window of main, "):
            raced(f"import time; time.sleep(0.01); return self.answer(x) * (1.01 if {family} else 1)", baseline_s)
