"""One queue for several devices, with judges that are plain classes: who gets what, what comes back, how it ends."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from workers_judges import HANGS, TORCH_S_OWN, gone, judge_of, problem, processes, scratch

from agentgen.errors import DeviceNotFound, JudgeDied, MachineFailure
from agentgen.records.candidate import Candidate, Language
from agentgen.records.machine import Ceilings, Machine, Target
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Effort
from agentgen.records.trial import Depth, Outcome, Trial
from agentgen.workers.local import WAIT, LocalJudge
from agentgen.workers.pool import CLOSE_S, Pool
from agentgen.workers.turns import turn

PATIENCE_S = 20.0
"""Far beyond what anything here takes: a test that waits so long has failed."""
CANDIDATES = tuple(Candidate(source=f"# {number}", language=Language.CPP) for number in range(8))


def machine(device: str = "Example 9000") -> Machine:
    return Machine(
        device_type="cuda",
        device=device,
        cores=132,
        memory_bytes=1 << 37,
        last_level_cache_bytes=1 << 25,
        torch="2.13.0",
        triton=None,
        python="3.11.7",
    )


def target(device: str = "Example 9000") -> Target:
    return Target(
        problem="linear",
        arithmetic=Arithmetic.FP32,
        machine=machine(device),
        ceilings=Ceilings(copy_bytes_per_s=2e10, matmul_flops_per_s={Arithmetic.FP32: 1e11}),
        constants={},
        inputs=(),
        outputs=(),
        parameters={},
        flops=0,
        bytes_moved=1 << 20,
        bound_us=50.0,
        bound_by="memory",
        baselines_us={"eager": 100.0},
    )


def trial_of(candidate: Candidate) -> Trial:
    return Trial(
        candidate=candidate.id,
        problem="linear",
        arithmetic=Arithmetic.FP32,
        machine=machine(),
        outcome=Outcome.CRASHED,
        reasons=("so",),
    )


Work = Callable[["Fake", Candidate], None]


def nothing(_judge: Fake, _candidate: Candidate) -> None:
    """Takes no time."""


class Fake:
    """A judge that does what it is told to, and remembers what it judged, and in which threads it was used."""

    def __init__(self, work: Work = nothing, found: Target | None = None) -> None:
        self._work = work
        self._found = found or target()
        self.judged: list[str] = []
        self.threads: set[int] = set()
        self.stopped = threading.Event()
        self.opened = threading.Event()
        self.closed = False

    def target(self) -> Target:
        self.threads.add(threading.get_ident())
        self.opened.set()
        return self._found

    def evaluate(self, candidate: Candidate, on_stage: Callable[[str], None]) -> Trial:
        self.threads.add(threading.get_ident())
        assert not self.stopped.is_set()
        on_stage("build")
        self._work(self, candidate)
        self.judged.append(candidate.id)
        return trial_of(candidate)

    def stop(self) -> None:
        self.stopped.set()

    def close(self) -> None:
        self.threads.add(threading.get_ident())
        self.closed = True


@pytest.fixture
def two() -> Iterator[tuple[Fake, Fake]]:
    """Two judges that meet at their first candidate: it is passed only while both are judging."""
    barrier = threading.Barrier(2)

    def meet(judge: Fake, _candidate: Candidate) -> None:
        if not judge.judged:
            barrier.wait(PATIENCE_S)

    yield Fake(meet), Fake(meet)
    barrier.abort()


def pool_of(*judges: Fake) -> Pool:
    return Pool({f"cuda:{number}": judge for number, judge in enumerate(judges)})


def ignore(_candidate: str, _stage: str) -> None: ...


# ---- the queue -------------------------------------------------------------------------------------------------------


def test_all_devices_work_at_once_and_each_candidate_is_judged_once(two: tuple[Fake, Fake]) -> None:
    with pool_of(*two) as pool:
        trials = list(pool.evaluate_all(CANDIDATES, ignore))
    assert sorted(trial.candidate for trial in trials) == sorted(candidate.id for candidate in CANDIDATES)
    assert sorted(two[0].judged + two[1].judged) == sorted(candidate.id for candidate in CANDIDATES)
    assert two[0].judged
    assert two[1].judged


def test_a_device_that_is_free_takes_the_next_candidate() -> None:
    """One is held up by its first candidate until the other has judged all the rest."""
    both, rest = threading.Barrier(2), threading.Semaphore(0)

    def waits(_judge: Fake, _candidate: Candidate) -> None:
        both.wait(PATIENCE_S)
        for _ in CANDIDATES[1:]:
            assert rest.acquire(timeout=PATIENCE_S)

    def works(judge: Fake, _candidate: Candidate) -> None:
        if not judge.judged:
            both.wait(PATIENCE_S)
        rest.release()

    held, free = Fake(waits), Fake(works)
    with pool_of(held, free) as pool:
        trials = list(pool.evaluate_all(CANDIDATES, ignore))
    assert (len(held.judged), len(free.judged)) == (1, len(CANDIDATES) - 1)
    assert trials[-1].candidate == held.judged[0], "trials come as they are found"


def test_stages_and_trials_come_in_the_thread_that_asked_and_each_judge_has_one_of_its_own(
    two: tuple[Fake, Fake],
) -> None:
    stages: list[tuple[str, str, int]] = []
    with pool_of(*two) as pool:
        pool.target()
        for trial in pool.evaluate_all(
            CANDIDATES, lambda one, stage: stages.append((one, stage, threading.get_ident()))
        ):
            assert (trial.candidate, "build", threading.get_ident()) in stages
    assert len(stages) == len(CANDIDATES)
    assert {thread for _, _, thread in stages} == {threading.get_ident()}
    assert [len(judge.threads) for judge in two] == [1, 1]
    assert not two[0].threads & two[1].threads
    assert threading.get_ident() not in two[0].threads


def test_the_first_device_says_what_the_target_is_and_idle_ones_are_not_opened() -> None:
    first, second = Fake(), Fake()
    with pool_of(first, second) as pool:
        assert pool.target() == target()
        assert not second.opened.is_set()
        assert [trial.candidate for trial in pool.evaluate_all(CANDIDATES[:1], ignore)] == [CANDIDATES[0].id]
        assert not second.opened.is_set(), "one candidate needs one device"
        assert list(pool.evaluate_all((), ignore)) == []
    assert first.closed
    assert second.closed


# ---- failures --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [JudgeDied("it died"), DeviceNotFound("no cuda:1"), ZeroDivisionError("a fault")])
def test_when_one_device_fails_the_others_finish_what_they_have_begun(error: Exception) -> None:
    both = threading.Barrier(2)

    def fails(_judge: Fake, _candidate: Candidate) -> None:
        both.wait(PATIENCE_S)
        raise error

    def finishes(judge: Fake, _candidate: Candidate) -> None:
        if not judge.judged:
            both.wait(PATIENCE_S)
        time.sleep(0.1)  # for the other one to fail: it needs a moment to drop what is left

    good, found = Fake(finishes), list[str]()
    with pool_of(Fake(fails), good) as pool, pytest.raises(type(error), match=str(error)):
        found.extend(trial.candidate for trial in pool.evaluate_all(CANDIDATES, ignore))
    assert found == good.judged, "what was begun was finished and yielded"
    assert 1 <= len(found) < len(CANDIDATES) - 1, "and nothing else begun"


def test_a_pool_goes_on_after_a_failure() -> None:
    broken = [True]

    def fails_once(_judge: Fake, _candidate: Candidate) -> None:
        if broken and broken.pop():
            raise JudgeDied("it died")

    with pool_of(Fake(fails_once), Fake()) as pool:
        with pytest.raises(JudgeDied):
            list(pool.evaluate_all(CANDIDATES[:1], ignore))
        assert len(list(pool.evaluate_all(CANDIDATES, ignore))) == len(CANDIDATES)


def test_devices_of_two_kinds_are_told_apart() -> None:
    other = Fake(found=target("Example 100"))

    def waits(_judge: Fake, _candidate: Candidate) -> None:
        assert other.opened.wait(PATIENCE_S)

    said = "cuda:1 and cuda:0 are not of one kind: device Example 100 and Example 9000"
    with pool_of(Fake(waits), other) as pool:
        pool.target()
        with pytest.raises(MachineFailure, match=said):
            list(pool.evaluate_all(CANDIDATES, ignore))
    assert other.judged == []


# ---- the end ---------------------------------------------------------------------------------------------------------


def test_an_interrupt_ends_all_judges_in_the_middle_of_their_work() -> None:
    both = threading.Barrier(2)

    def works(judge: Fake, _candidate: Candidate) -> None:
        both.wait(PATIENCE_S)
        assert judge.stopped.wait(PATIENCE_S), "nobody stopped it"
        raise JudgeDied("it was stopped")

    begun: list[str] = []

    def interrupt(candidate: str, _stage: str) -> None:
        begun.append(candidate)
        if len(begun) == 2:
            raise KeyboardInterrupt

    judges = Fake(works), Fake(works)
    with pytest.raises(KeyboardInterrupt), pool_of(*judges) as pool:
        list(pool.evaluate_all(CANDIDATES, interrupt))
    assert all(judge.stopped.is_set() and judge.closed and not judge.judged for judge in judges)


@pytest.mark.slow
def test_real_judges_live_as_long_as_the_pool_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two on one CPU, which take turns there. The kernel ends a judge with the thread that started it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    good = [Candidate(source=f"{TORCH_S_OWN}# {number}", language=Language.CPP) for number in range(3)]
    hangs = [Candidate(source=f"{HANGS}# {number}", language=Language.CPP) for number in range(3)]
    with Pool({"cpu": judge_of(problem()), "cpu again": judge_of(problem())}) as pool:
        for _ in range(2):
            trials = list(pool.evaluate_all(good, ignore))
            assert [trial.outcome for trial in trials] == [Outcome.PASSED] * len(good)
            time.sleep(1)  # the threads have nothing to do now
        assert list(processes(tmp_path).values()).count("agentgen.verify.program") == 2
        begun = time.monotonic()

        def interrupt(_candidate: str, stage: str) -> None:
            if stage == "build":
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            list(pool.evaluate_all(hangs, interrupt))
    assert time.monotonic() - begun < 60, "the candidates would have hung for 100 s"
    assert gone(tmp_path)
    assert scratch(tmp_path) == []


@pytest.mark.slow
def test_judges_that_wait_for_their_turn_start_nothing_once_the_pool_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    waiting: list[str] = []

    def interrupt(candidate: str, stage: str) -> None:
        assert stage == WAIT
        waiting.append(candidate)
        if len(waiting) == 2:
            raise KeyboardInterrupt

    judges = {"cpu": Unopened(), "cpu again": Unopened()}
    with turn("cpu"):
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt), Pool(judges) as pool:
            list(pool.evaluate_all(CANDIDATES, interrupt))
        assert time.monotonic() - begun < 2 * CLOSE_S, "one wait for both"
    time.sleep(3)  # it is their turn now
    assert processes(tmp_path) == {}
    with turn("cpu"):
        pass  # which they have given back


# ---- one device ------------------------------------------------------------------------------------------------------


class Unopened(LocalJudge):
    """Opens with its first evaluation, and so tells that it waits for that."""

    def __init__(self) -> None:
        super().__init__(problem(), "cpu", Arithmetic.FP32, Effort.QUICK)

    def target(self, on_stage: Callable[[str], None] = lambda _stage: None) -> Target:
        return target()


class Announced(LocalJudge):
    """Notes what is evaluated and what was said to come next; starts no program."""

    def __init__(self) -> None:
        super().__init__(problem(), "cpu", Arithmetic.FP32, Effort.QUICK)
        self.seen: list[tuple[str, str | None]] = []

    def evaluate(
        self,
        candidate: Candidate,
        on_stage: Callable[[str], None] = lambda _stage: None,
        *,
        timing: bool = True,
        depth: Depth = Depth.JUDGE,
        then: Candidate | None = None,
    ) -> Trial:
        on_stage("build")
        self.seen.append((candidate.id, then.id if then else None))
        return trial_of(candidate)


def test_the_judge_of_one_device_is_told_what_comes_next() -> None:
    judge, stages = Announced(), list[tuple[str, str]]()

    def told(candidate: str, stage: str) -> None:
        stages.append((candidate, stage))

    ids = [candidate.id for candidate in CANDIDATES]
    assert [trial.candidate for trial in judge.evaluate_all(CANDIDATES, told)] == ids
    assert judge.seen == list(zip(ids, [*ids[1:], None], strict=True))
    assert stages == [(one, "build") for one in ids]
