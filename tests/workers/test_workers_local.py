"""The orchestrator's side of a judge: what it finds, how it fails, and that nothing is left of it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest
from workers_judges import HANGS, REFERENCE, TORCH_S_OWN, gone, judge_of, leaders, problem, processes, scratch

from agentgen import wiring
from agentgen.errors import DeviceNotFound, JudgeDied, ReferenceInvalid
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.workers.local import WAIT, Inspector, LocalJudge, describe
from agentgen.workers.turns import turn


@pytest.fixture(scope="module")
def temporary(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where judges keep what is temporary; also how their processes are told from others'."""
    folder = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        yield folder


@pytest.fixture(scope="module")
def judge(temporary: Path) -> Iterator[LocalJudge]:
    with judge_of(problem()) as one:
        yield one
    assert gone(temporary)


# ---- devices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", ["cuda:99", "cuda", "tpu", ""])
def test_a_missing_device_is_told_in_one_line_before_anything_starts(temporary: Path, device: str) -> None:
    with judge_of(problem(), device) as judge:
        with pytest.raises(DeviceNotFound) as raised:
            judge.target()
        assert processes(temporary) == {}
    message = str(raised.value)
    assert "\n" not in message
    assert f"no {device} on this machine" in message
    assert "cpu" in message


def test_describing_starts_a_judge_and_ends_it(temporary: Path) -> None:
    facts = describe()
    assert facts["torch"][0].isdigit()
    assert "cores" in facts["cpu"]
    assert processes(temporary) == {}


# ---- a judge's life --------------------------------------------------------------------------------------------------


def test_a_reference_that_is_invalid_travels_as_what_it_is(temporary: Path) -> None:
    with judge_of(problem(REFERENCE.replace("self.layer(x)", "self.layer(x) @ 3"))) as judge:
        with pytest.raises(ReferenceInvalid, match="linear: the reference fails at workload main on cpu: TypeError"):
            judge.target()
        assert gone(temporary)
    assert scratch(temporary) == []


@pytest.mark.slow
def test_who_dies_looking_at_a_problem_is_the_machine_s_fault_before_a_run(
    temporary: Path,
) -> None:
    deadly = problem("import os\n" + REFERENCE.replace("self.layer(x)", "os._exit(1)"))
    with pytest.raises(JudgeDied):
        wiring.require_admitted(deadly, "cpu", Arithmetic.FP32)
    with Inspector("cpu") as inspector:
        assert "looking at it failed" in inspector.admit(deadly, Arithmetic.FP32).reasons[0]
    assert gone(temporary)


def test_a_judge_evaluates_in_a_process_of_its_own(judge: LocalJudge, temporary: Path) -> None:
    assert processes(temporary) == {}, "it starts with the first use"
    target = judge.target()
    assert (target.problem, target.arithmetic, target.flops) == ("linear", Arithmetic.FP32, 2 * 200 * 64 * 64)

    stages: list[str] = []
    trial = judge.evaluate(Candidate(source=TORCH_S_OWN, language=Language.CPP), stages.append, timing=False)
    assert trial.outcome is Outcome.PASSED, trial.reasons
    # Others may be judging on this machine.
    assert [stage for stage in stages if stage != WAIT] == ["start", "build", "check", "state", "audit", "general"]
    own_work = next(check for check in trial.checks if check.name == "own work: dispatcher")
    assert own_work.evidence == "library compute, allowed: aten.addmm.default"
    assert set(processes(temporary).values()) == {"agentgen.sandbox.guest.zygote", "agentgen.verify.program"}
    assert len(leaders(temporary)) == 1, "the zygote"


def test_a_judge_works_on_a_device_only_in_its_turn(judge: LocalJudge) -> None:
    judge.target()
    stages: list[str] = []
    waits = threading.Event()

    def on_stage(stage: str) -> None:
        stages.append(stage)
        if stage == WAIT:
            waits.set()

    candidate = Candidate(source=TORCH_S_OWN, language=Language.CPP)
    evaluation = threading.Thread(target=lambda: judge.evaluate(candidate, on_stage, timing=False))
    with turn("cpu"):
        evaluation.start()
        assert waits.wait(30)
        assert stages == [WAIT]
    evaluation.join()
    assert stages[1:3] == ["start", "build"]
    with turn("cpu"):
        pass  # it has been given back, though the judge is still open


@pytest.mark.skipif(find_spec("triton") is None, reason="triton is not installed")
@pytest.mark.parametrize(("wrong", "outcome"), [("", Outcome.PASSED), (" * 1.01", Outcome.WRONG_VALUES)])
def test_triton_is_checked_at_main_where_there_is_no_smaller_workload(
    judge: LocalJudge, wrong: str, outcome: Outcome
) -> None:
    """Without a GPU `main` is left out for being slow, but not where nothing else would be checked."""
    source = TORCH_S_OWN.replace("self.layer(x)", f"self.layer(x){wrong}")
    trial = judge.evaluate(Candidate(source=source, language=Language.TRITON))
    assert trial.outcome is outcome, trial.reasons
    assert trial.accuracy


@pytest.mark.parametrize("moment", ["start", "build"])
def test_a_judge_that_is_stopped_by_another_thread_ends_at_once_and_stays_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # the other judge founds jails ahead, whenever it comes to it
    hangs = Candidate(source=HANGS, language=Language.CPP)
    with judge_of(problem()) as one:

        def stop(stage: str) -> None:
            if stage == moment:
                threading.Timer(0.2, one.stop).start()

        begun = time.monotonic()
        with pytest.raises(JudgeDied):
            one.evaluate(hangs, stop)
        assert time.monotonic() - begun < 60, "the candidate would have hung for 100 s"
        with pytest.raises(JudgeDied, match="stopped"):
            one.evaluate(hangs)
    assert gone(tmp_path)


def test_a_judge_that_is_killed_leaves_nothing_and_is_replaced(judge: LocalJudge, temporary: Path) -> None:
    """The last test with this judge."""
    judge.target()
    before = processes(temporary)

    def kill(stage: str) -> None:
        if stage == "build":
            assert len(processes(temporary)) > len(before), "the guest is there"
            (judge_pid,) = [pid for pid, module in processes(temporary).items() if module.endswith("program")]
            os.kill(judge_pid, signal.SIGKILL)

    with pytest.raises(JudgeDied, match="the judge ended while it did evaluate"):
        judge.evaluate(Candidate(source=HANGS, language=Language.CPP), kill)
    assert gone(temporary)
    assert scratch(temporary) == [], "its zygote removes it, the last to go"
    trial = judge.evaluate(Candidate(source=TORCH_S_OWN, language=Language.CPP), timing=False)
    assert trial.outcome is Outcome.PASSED, "a fresh judge takes over"
