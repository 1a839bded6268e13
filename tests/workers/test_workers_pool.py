"""One queue for one or several devices, with judges that are plain classes: who gets what, what comes back, and what a
failure does. How it ends is in test_workers_pool_ends.py."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator

import pytest
from workers_fakes import (
    CANDIDATES,
    IDS,
    PATIENCE_S,
    Fake,
    Gate,
    ask,
    judged,
    pool_of,
    target,
    trial_of,
    trials_of,
)
from workers_judges import problem

from agentgen.errors import DeviceNotFound, JudgeDied, MachineFailure
from agentgen.records.candidate import Candidate
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Effort
from agentgen.records.trial import Trial
from agentgen.workers.local import LocalJudge
from agentgen.workers.pool import Pool


@pytest.fixture
def two() -> Iterator[tuple[Fake, Fake]]:
    """Two judges that meet at their first candidate: it is passed only while both are judging."""
    barrier = threading.Barrier(2)

    def meet(judge: Fake, _candidate: Candidate) -> None:
        if not judge.judged:
            barrier.wait(PATIENCE_S)

    yield Fake(meet), Fake(meet)
    barrier.abort()


# ---- the queue -------------------------------------------------------------------------------------------------------


def test_all_devices_work_at_once_and_each_candidate_is_judged_once(two: tuple[Fake, Fake]) -> None:
    with pool_of(*two) as pool:
        assert judged(pool, CANDIDATES) == trials_of(CANDIDATES)
    assert sorted(two[0].judged + two[1].judged) == sorted(IDS)
    assert two[0].judged
    assert two[1].judged


def test_candidates_are_begun_in_the_order_in_which_they_came() -> None:
    gate, order = Gate(), list[str]()

    def works(judge: Fake, candidate: Candidate) -> None:
        order.append(candidate.id)
        gate(judge, candidate)

    async def one_by_one(pool: Pool) -> None:
        asked = asyncio.create_task(ask(pool, CANDIDATES))
        await gate.wait()
        await gate.wait()
        for _ in IDS[2:]:
            gate.let.release()
            await gate.wait()
        gate.let.release(2)
        assert await asked == trials_of(CANDIDATES)

    with pool_of(Fake(works), Fake(works)) as pool:
        asyncio.run(one_by_one(pool))
    assert sorted(order[:2]) == sorted(IDS[:2]), "at once"
    assert order[2:] == IDS[2:]


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

    held, free, came = Fake(waits), Fake(works), list[str]()

    async def each(pool: Pool, candidate: Candidate) -> None:
        came.append((await pool.evaluate(candidate, lambda _stage: None)).candidate)
        rest.release()

    async def together(pool: Pool) -> None:
        await asyncio.gather(*(each(pool, candidate) for candidate in CANDIDATES))

    with pool_of(held, free) as pool:
        asyncio.run(together(pool))
    assert (len(held.judged), len(free.judged)) == (1, len(CANDIDATES) - 1)
    assert came[-1] == held.judged[0], "trials come as they are found"


def test_stages_come_in_order_in_the_thread_of_the_event_loop_and_each_judge_has_one_of_its_own(
    two: tuple[Fake, Fake],
) -> None:
    stages: list[tuple[str, str, int]] = []
    ours = threading.get_ident()

    async def each(pool: Pool, candidate: Candidate) -> None:
        await pool.evaluate(candidate, lambda stage: stages.append((candidate.id, stage, threading.get_ident())))
        stages.append((candidate.id, "over", threading.get_ident()))

    async def all_of_them(pool: Pool) -> None:
        assert await pool.target() == target()
        await asyncio.gather(*(each(pool, candidate) for candidate in CANDIDATES))

    with pool_of(*two) as pool:
        asyncio.run(all_of_them(pool))
    assert {thread for _, _, thread in stages} == {ours}
    for one in IDS:
        assert [stage for candidate, stage, _ in stages if candidate == one] == ["build", "time", "over"]
    assert [len(judge.threads) for judge in two] == [1, 1]
    assert not two[0].threads & two[1].threads
    assert ours not in two[0].threads


def test_what_the_display_raises_is_raised_by_the_evaluation() -> None:
    def broken(_stage: str) -> None:
        raise ZeroDivisionError

    async def badly(pool: Pool) -> None:
        with pytest.raises(ZeroDivisionError):
            await pool.evaluate(CANDIDATES[0], broken)
        assert await ask(pool, CANDIDATES[1:]) == trials_of(CANDIDATES[1:])

    with pool_of(Fake()) as pool:
        asyncio.run(badly(pool))


def test_the_first_device_says_what_the_target_is_and_idle_ones_are_not_opened() -> None:
    first, second = Fake(), Fake()
    with pool_of(first, second) as pool:
        assert asyncio.run(pool.target()) == target()
        assert not second.opened.is_set()
        for candidate in CANDIDATES:
            assert judged(pool, [candidate]) == [trial_of(candidate)]
        assert not second.opened.is_set(), "one candidate at a time needs one device"
    assert first.closed
    assert second.closed


def test_the_target_is_told_before_all_that_wait_are_judged() -> None:
    gate = Gate()

    async def both(pool: Pool) -> None:
        asked = asyncio.create_task(ask(pool, CANDIDATES))
        await gate.wait()
        found = asyncio.create_task(pool.target())
        await asyncio.sleep(0)
        gate.let.release()
        assert await found == target()
        assert not asked.done()
        gate.let.release(len(CANDIDATES))
        await asked

    with pool_of(Fake(gate)) as pool:
        asyncio.run(both(pool))


def test_a_pool_serves_one_event_loop_after_another() -> None:
    judge = Fake()
    with pool_of(judge, Fake()) as pool:
        for _ in range(3):
            assert judged(pool, CANDIDATES) == trials_of(CANDIDATES)
            assert asyncio.run(pool.target()) == target()
    assert len(judge.threads) == 1


# ---- what comes next -------------------------------------------------------------------------------------------------


def test_the_judge_of_one_device_is_told_what_comes_next() -> None:
    """The first comes alone, and the others while it is judged."""
    gate = Gate()
    judge = Fake(gate)

    async def come(pool: Pool) -> None:
        alone = asyncio.create_task(ask(pool, CANDIDATES[:1]))
        await gate.wait()
        rest = asyncio.create_task(ask(pool, CANDIDATES[1:]))
        await asyncio.sleep(0.01)  # until they wait
        gate.let.release(len(CANDIDATES))
        assert [*await alone, *await rest] == trials_of(CANDIDATES)

    with pool_of(judge) as pool:
        asyncio.run(come(pool))
    assert list(zip(judge.begun, judge.ahead, strict=True)) == list(zip(IDS, [None, *IDS[2:], None], strict=True))


def test_the_judges_of_several_devices_are_not_told_what_comes_next(two: tuple[Fake, Fake]) -> None:
    with pool_of(*two) as pool:
        judged(pool, CANDIDATES)
    assert {*two[0].ahead, *two[1].ahead} == {None}


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

    good = Fake(finishes)
    with pool_of(Fake(fails), good) as pool:
        came = judged(pool, CANDIDATES)
    found = [trial.candidate for trial in came if isinstance(trial, Trial)]
    assert found == good.judged, "what was begun was finished"
    assert 1 <= len(found) < len(CANDIDATES) - 1, "and nothing else begun"
    assert [one for one in came if one is error] == [one for one in came if not isinstance(one, Trial)]


def test_a_failure_of_one_device_is_told_to_all_that_wait_for_it_and_what_comes_later_is_judged() -> None:
    broken, gate = [True], Gate()

    def fails_once(judge: Fake, candidate: Candidate) -> None:
        gate(judge, candidate)
        if broken and broken.pop():
            raise JudgeDied("it died")

    async def again(pool: Pool) -> None:
        asked = asyncio.create_task(ask(pool, CANDIDATES))
        await gate.wait()
        gate.let.release(1 + 2 * len(CANDIDATES))
        assert [type(one) for one in await asked] == [JudgeDied] * len(CANDIDATES)
        assert judge.begun == IDS[:1]
        assert await ask(pool, CANDIDATES) == trials_of(CANDIDATES)

    judge = Fake(fails_once)
    with pool_of(judge) as pool:
        asyncio.run(again(pool))
        assert judged(pool, CANDIDATES) == trials_of(CANDIDATES)


@pytest.mark.parametrize("devices", [["cuda:99"], ["cuda:99", "cuda:98"]])
def test_a_device_that_is_not_there_is_told_by_target_and_evaluation(devices: list[str]) -> None:
    judges = {device: LocalJudge(problem(), device, Arithmetic.FP32, Effort.QUICK) for device in devices}
    with Pool(judges) as pool:
        with pytest.raises(DeviceNotFound, match="no cuda:99 on this machine"):
            asyncio.run(pool.target())
        for _ in range(2):
            assert {type(one) for one in judged(pool, CANDIDATES)} == {DeviceNotFound}


def test_devices_of_two_kinds_are_told_apart() -> None:
    other = Fake(found=target("Example 100"))

    def waits(_judge: Fake, _candidate: Candidate) -> None:
        assert other.opened.wait(PATIENCE_S)

    async def both(pool: Pool) -> list[Trial | BaseException]:
        await pool.target()
        return await ask(pool, CANDIDATES)

    with pool_of(Fake(waits), other) as pool:
        failures = [one for one in asyncio.run(both(pool)) if not isinstance(one, Trial)]
    said = "cuda:1 and cuda:0 are not of one kind: device Example 100 and NVIDIA H200"
    assert failures
    assert all(isinstance(one, MachineFailure) and said in str(one) for one in failures)
    assert other.judged == []
