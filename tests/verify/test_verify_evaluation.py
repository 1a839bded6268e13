"""The judge's own want of memory: a candidate that takes too much is told so, a device that has too little is lost.

The judge is one without zygote, ceilings and clocks; its memory is a reference that finds none while (or once) a guest
lives.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from verify_guests import LIVING, STARTED, GuestHere, rig_of, torch_conv
from verify_problems import small_conv

from agentgen.errors import DeviceLost
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic, OwnWork
from agentgen.records.run import Isolation
from agentgen.records.trial import Outcome, Trial
from agentgen.sandbox.protocol import Guest
from agentgen.verify import machine as machines
from agentgen.verify.evaluation import evaluate
from agentgen.verify.findings import Findings
from agentgen.verify.guests import Guests
from agentgen.verify.judge import Judge
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session

CANDIDATE = Candidate(source=torch_conv(), language=Language.CPP)


class Here:
    """A sandbox whose guests are in this process."""

    isolation = "none: guests are in this process"

    def wait_until_warm(self) -> None: ...

    def start(self, name: str = "", built: Path | None = None) -> Guest:
        return GuestHere()

    def hand_over(self, built: Path, scratch: Path) -> None: ...

    def close(self) -> None: ...


class Crowded(Judge):
    """Starts guests in this process and has one rig."""

    def __init__(self, rig: Rig) -> None:
        self.problem = small_conv(OwnWork.LIBRARY)
        self.device = "cpu"
        self.machine = machines.describe("cpu")
        self.arithmetic = Arithmetic.FP32
        self.main = rig
        self._near = ([], [])
        self._rigs = {rig.reference.workload: rig}
        self.guests = Guests(Here(), None, Isolation.NONE)

    def probe(self, session: Session, candidate: Candidate, findings: Findings) -> None:
        raise AssertionError("the check has found no memory")


def trial_where(full: str) -> Trial:
    """Returns what becomes of a candidate where the reference finds no memory under a condition."""
    text = f"import verify_guests\n        if {full}: raise torch.OutOfMemoryError\n        return self.conv(x)"
    reference = small_conv().reference.replace("return self.conv(x)", text)
    with rig_of(small_conv().model_copy(update={"reference": reference})) as rig:
        return evaluate(Crowded(rig), CANDIDATE, lambda _: None, timing=False)


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)  # a guest writes its module there
    STARTED.clear()


def test_a_candidate_beside_which_the_judge_has_no_memory_takes_too_much() -> None:
    trial = trial_where("verify_guests.LIVING")
    assert trial.outcome is Outcome.OUT_OF_MEMORY
    assert "finds it without: it takes too much" in trial.reasons[0]
    assert trial.seconds.keys() >= {"start", "build", "check"}
    assert len(STARTED) == 1
    assert not LIVING


def test_a_device_that_has_none_without_the_candidate_either_is_lost() -> None:
    with pytest.raises(DeviceLost, match="cpu has no memory left, and no candidate that holds it"):
        trial_where("verify_guests.STARTED")
    assert not LIVING
