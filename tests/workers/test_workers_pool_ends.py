"""How a pool of judges is left: who asked is cancelled or interrupted, or the pool is closed."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import anyio
import pytest
from workers_fakes import (
    CANDIDATES,
    IDS,
    PATIENCE_S,
    Fake,
    Gate,
    OnStage,
    ask,
    judged,
    pool_of,
    target,
    trial_of,
    trials_of,
)
from workers_judges import HANGS, TORCH_S_OWN, gone, judge_of, problem, processes, scratch

from agentgen.errors import JudgeDied
from agentgen.records.candidate import Candidate, Language
from agentgen.records.machine import Target
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Effort
from agentgen.records.trial import Outcome, Trial
from agentgen.workers.local import WAIT, LocalJudge
from agentgen.workers.pool import CLOSE_S, Pool
from agentgen.workers.turns import turn


@pytest.fixture(autouse=True)
def ctrl_c_is_heard() -> Iterator[None]:
    """Also where the tests run in the background of a shell, which has that ignored."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def interrupt_at(count: int, seen: list[tuple[str, str]], stage: str) -> OnStage:
    """Returns who presses Ctrl-C when a stage has begun so many times."""

    def told(candidate: str, name: str) -> None:
        seen.append((candidate, name))
        if name == stage and [one for _, one in seen].count(stage) == count:
            signal.raise_signal(signal.SIGINT)

    return told


def no_stage(_stage: str) -> None: ...


# ---- cancelled -------------------------------------------------------------------------------------------------------


def test_who_is_cancelled_while_it_waits_is_not_judged() -> None:
    gate = Gate()
    judge = Fake(gate)

    async def leave(pool: Pool) -> None:
        tasks = [asyncio.create_task(pool.evaluate(one, no_stage)) for one in CANDIDATES[:4]]
        await gate.wait()
        tasks[1].cancel()
        tasks[3].cancel()
        await asyncio.wait([tasks[1], tasks[3]])
        gate.let.release(4)
        assert await tasks[0] == trial_of(CANDIDATES[0])
        assert await tasks[2] == trial_of(CANDIDATES[2])

    with pool_of(judge) as pool:
        asyncio.run(leave(pool))
        assert judge.begun == [IDS[0], IDS[2]]
        assert judge.ahead[-1] is None, "nobody is after it any more"


def test_who_is_cancelled_while_the_judge_opens_is_not_judged() -> None:
    opening, let = threading.Event(), threading.Event()

    class Slow(Fake):
        def target(self) -> Target:
            opening.set()
            assert let.wait(PATIENCE_S)
            return super().target()

    async def leave(pool: Pool) -> None:
        task = asyncio.create_task(pool.evaluate(CANDIDATES[0], no_stage))
        assert await asyncio.to_thread(opening.wait, PATIENCE_S)
        task.cancel()
        await asyncio.wait([task])
        let.set()
        assert await pool.evaluate(CANDIDATES[1], no_stage) == trial_of(CANDIDATES[1])

    judges = Slow(), Slow()
    with pool_of(*judges) as pool:
        asyncio.run(leave(pool))
    assert judges[0].begun + judges[1].begun == [IDS[1]]


def test_who_is_cancelled_under_way_ends_at_once_hears_no_more_and_holds_up_nobody_for_ever() -> None:
    gate, heard = Gate(), list[str]()
    judge = Fake(gate)

    async def leave(pool: Pool) -> None:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(pool.evaluate, CANDIDATES[0], heard.append)
                await gate.wait()
                await anyio.sleep(0.01)
                scope.cancel()
        assert judge.judged == [], "it is still at work"
        assert heard == ["build"]
        rest = asyncio.create_task(ask(pool, CANDIDATES[1:]))
        gate.let.release(len(CANDIDATES))
        assert await rest == trials_of(CANDIDATES[1:])

    with pool_of(judge) as pool:
        anyio.run(leave, pool)
    assert judge.judged == IDS
    assert heard == ["build"], "though its judge went on to the next stage"


def test_what_is_under_way_when_its_event_loop_ends_does_not_disturb_the_next_one() -> None:
    gate, heard = Gate(), list[str]()

    async def leave(pool: Pool) -> None:
        with anyio.move_on_after(PATIENCE_S) as scope:
            async with anyio.create_task_group() as tasks:
                for candidate in CANDIDATES[:4]:
                    tasks.start_soon(pool.evaluate, candidate, heard.append)
                await gate.wait()
                scope.cancel()

    judge = Fake(gate)
    with pool_of(judge) as pool:
        anyio.run(leave, pool)
        gate.let.release(len(CANDIDATES))
        assert judged(pool, CANDIDATES[4:]) == trials_of(CANDIDATES[4:])
    assert judge.judged == [IDS[0], *IDS[4:]]
    assert heard in ([], ["build"])


# ---- closed ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("devices", [1, 2])
def test_who_still_waits_when_the_pool_is_closed_is_told_so_and_so_is_who_comes_later(devices: int) -> None:
    reached = threading.Semaphore(0)

    def works(judge: Fake, _candidate: Candidate) -> None:
        reached.release()
        assert judge.stopped.wait(PATIENCE_S), "nobody stopped it"
        raise JudgeDied("it was stopped")

    judges = [Fake(works) for _ in range(devices)]
    pool = pool_of(*judges)

    async def close() -> None:
        asked = asyncio.create_task(ask(pool, CANDIDATES))
        for _ in judges:
            await asyncio.to_thread(reached.acquire, timeout=PATIENCE_S)
        pool.close()
        assert [type(one) for one in await asked] == [JudgeDied] * len(CANDIDATES)
        for late in (pool.target(), pool.evaluate(CANDIDATES[0], no_stage)):
            with pytest.raises(JudgeDied, match="stopped"):
                await late

    asyncio.run(close())
    assert sum(len(judge.begun) for judge in judges) == devices
    assert all(judge.closed and len(judge.threads) == 1 for judge in judges)
    pool.close()


def test_an_interrupt_ends_all_judges_in_the_middle_of_their_work() -> None:
    both = threading.Barrier(2)

    def works(judge: Fake, _candidate: Candidate) -> None:
        both.wait(PATIENCE_S)
        assert judge.stopped.wait(PATIENCE_S), "nobody stopped it"
        raise JudgeDied("it was stopped")

    judges = Fake(works), Fake(works)
    begun = time.monotonic()
    with pytest.raises(KeyboardInterrupt), pool_of(*judges) as pool:
        judged(pool, CANDIDATES, interrupt_at(2, [], "build"))
    assert time.monotonic() - begun < CLOSE_S
    assert all(judge.stopped.is_set() and judge.closed and not judge.judged for judge in judges)
    assert sum(len(judge.begun) for judge in judges) == 2


# ---- real judges -----------------------------------------------------------------------------------------------------


class Unopened(LocalJudge):
    """Opens with its first evaluation, and so tells that it waits for that."""

    def __init__(self) -> None:
        super().__init__(problem(), "cpu", Arithmetic.FP32, Effort.QUICK)

    def target(self, on_stage: Callable[[str], None] = no_stage) -> Target:
        return target()


@pytest.mark.slow
def test_real_judges_live_as_long_as_the_pool_and_leave_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two on one CPU, which take turns there. The kernel ends a judge with the thread that started it."""
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    good = [Candidate(source=f"{TORCH_S_OWN}# {number}", language=Language.CPP) for number in range(2)]
    hangs = [Candidate(source=f"{HANGS}# {number}", language=Language.CPP) for number in range(3)]
    with Pool({"cpu": judge_of(problem()), "cpu again": judge_of(problem())}) as pool:
        for _ in range(2):
            trials = judged(pool, good)
            assert [isinstance(one, Trial) and one.outcome for one in trials] == [Outcome.PASSED] * len(good)
            time.sleep(1)  # the threads have nothing to do now
        assert list(processes(tmp_path).values()).count("agentgen.verify.program") == 2
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            judged(pool, hangs, interrupt_at(1, [], "build"))
    assert time.monotonic() - begun < 60, "the candidates would have hung for 100 s"
    assert gone(tmp_path)
    assert scratch(tmp_path) == []


@pytest.mark.slow
@pytest.mark.parametrize("devices", [["cpu"], ["cpu", "cpu again"]])
def test_judges_that_wait_for_their_turn_start_nothing_once_the_pool_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, devices: list[str]
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    seen: list[tuple[str, str]] = []
    judges = {device: Unopened() if len(devices) > 1 else judge_of(problem()) for device in devices}
    with turn("cpu"):
        begun = time.monotonic()
        with pytest.raises(KeyboardInterrupt), Pool(judges) as pool:
            judged(pool, CANDIDATES, interrupt_at(len(devices), seen, WAIT))
        assert time.monotonic() - begun < 2 * CLOSE_S, "one wait for both"
    assert {stage for _, stage in seen} == {WAIT}
    time.sleep(3)  # it is their turn now
    assert processes(tmp_path) == {}
    with turn("cpu"):
        pass  # which they have given back
