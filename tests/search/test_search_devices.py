"""A search over several devices: whichever is quicker, the same tree; whichever fails, nothing is lost."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from search_factories import TARGET, ReplayJudge, ScriptedModel, make_run, verdict_of
from search_script import DONE, PLAN, WHOLE, ignore, script, search, told, trees

from agentgen.errors import DeviceNotFound, JudgeDied
from agentgen.models.roster import Roster
from agentgen.records import events
from agentgen.records.candidate import Candidate, Language
from agentgen.records.machine import Target
from agentgen.records.run import Plan, RunStatus
from agentgen.records.trial import Trial
from agentgen.search.loop import SearchResult, evaluate_pending, run_search
from agentgen.store.ledger import Ledger, open_ledger
from agentgen.workers.pool import Pool

PATIENCE_S = 20.0


class Backwards:
    """Has a step's candidates end in the reverse of the order in which they were begun, two by two."""

    def __init__(self) -> None:
        self._lock = threading.Condition()
        self._begun: list[str] = []
        self._ended: list[str] = []

    def pass_by(self, candidate: str) -> None:
        """Returns for the second of a pair at once, for the first when that has passed or nobody else comes."""
        with self._lock:
            self._begun.append(candidate)
            if len(self._begun) % 2:
                self._lock.wait_for(lambda: len(self._ended) >= len(self._begun) > 1, timeout=0.05)
            self._ended.append(candidate)
            self._lock.notify_all()


class Device:
    """A judge of one device, as the pool has them, that does something before each evaluation."""

    def __init__(self, before: Callable[[Candidate], None] = lambda _: None) -> None:
        self.evaluated: Counter[str] = Counter()
        self._before = before

    def target(self) -> Target:
        return TARGET

    def evaluate(self, candidate: Candidate, on_stage: Callable[[str], None], then: Candidate | None = None) -> Trial:
        self._before(candidate)
        on_stage("build")
        self.evaluated[candidate.id] += 1
        return verdict_of(candidate)

    def stop(self) -> None: ...

    def close(self) -> None: ...


def go_on(ledger: Ledger, pool: Pool, watch: Callable[[events.Event], None] = ignore) -> SearchResult:
    return run_search(ledger.run("run-1"), ledger, Roster.of(ScriptedModel(script)), pool, watch)


@pytest.mark.parametrize("count", [2, 3])
@pytest.mark.parametrize("languages", [(Language.CPP,), (Language.TRITON, Language.CUDA)])
def test_over_several_devices_grows_the_tree_that_one_would(
    ledger: Ledger, tmp_path: Path, count: int, languages: tuple[Language, ...]
) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/one.db") as other:
        search(other, ScriptedModel(script), ReplayJudge(), PLAN, languages)
        whole = trees(other)
    order = Backwards()
    devices = {f"cuda:{number}": Device(lambda one: order.pass_by(one.id)) for number in range(count)}
    ledger.create_run(make_run(PLAN, languages))
    with Pool(devices) as pool:
        assert go_on(ledger, pool) == DONE
    assert trees(ledger) == whole
    judged = [one for device in devices.values() for one in device.evaluated.elements()]
    assert len(judged) == len(set(judged)) == len(ledger.candidates("run-1"))
    # Not each of three: on a busy machine two of them were through with all before the third had begun.
    assert sum(bool(device.evaluated) for device in devices.values()) > 1, "several had their part"


def test_a_slow_candidate_holds_up_nobody_not_even_repairs(ledger: Ledger) -> None:
    """The first candidate is held back until all others of its round are stored, the repair of another among them."""
    plan = Plan(rounds=1, ideas=3, repairs=1)
    ledger.create_run(make_run(plan))
    others = threading.Semaphore(0)
    first: list[str] = []

    def hold(candidate: Candidate) -> None:
        if candidate.repair == 0 and "1.30" in candidate.source:
            first.append(candidate.id)
            for _ in range(3):
                assert others.acquire(timeout=PATIENCE_S)

    seen: list[events.Event] = []

    def watch(event: events.Event) -> None:
        seen.append(event)
        if isinstance(event, events.TrialDone):
            assert event.score in ledger.scores("run-1")
            others.release()

    with Pool({"cuda:0": Device(hold), "cuda:1": Device(hold)}) as pool:
        assert go_on(ledger, pool, watch) == DONE
    done = [event.score.candidate for event in seen if isinstance(event, events.TrialDone)]
    assert done.index(first[0]) == 3, "the last one"
    assert sorted(row[1] for row in told(ledger)) == sorted(["Wide", "Tiles", "Threads", "Tiles'"])


@pytest.mark.parametrize(("error", "status"), [(JudgeDied, RunStatus.STOPPED), (DeviceNotFound, RunStatus.WAITING)])
def test_one_device_fails_and_what_the_other_found_is_stored(
    ledger: Ledger, error: type[Exception], status: RunStatus
) -> None:
    ledger.create_run(make_run(PLAN))
    both, met = threading.Barrier(2), list[bool]()

    def fails(_candidate: Candidate) -> None:
        if not met:  # one that was asked for before the failure was told meets nobody
            met.append(True)
            both.wait(PATIENCE_S)
        raise error("cuda:1 is gone")

    def works(_candidate: Candidate) -> None:
        if not good.evaluated:
            both.wait(PATIENCE_S)

    good = Device(works)
    with Pool({"cuda:0": good, "cuda:1": Device(fails)}) as pool:
        if error is DeviceNotFound:
            assert go_on(ledger, pool).status is RunStatus.WAITING
        else:
            with pytest.raises(error, match="cuda:1 is gone"):
                go_on(ledger, pool)
    assert ledger.run("run-1").status is status
    stored = {trial.candidate for trial in ledger.trials("run-1")}
    assert stored == set(good.evaluated)
    assert 1 <= len(stored) < 4
    again = ReplayJudge()
    assert search(ledger, ScriptedModel(script), again) == DONE
    assert not stored & set(again.evaluated), "judged twice"
    assert sorted(told(ledger)) == sorted(WHOLE)


def test_an_interrupt_stops_the_run_and_keeps_what_is_stored(ledger: Ledger) -> None:
    ledger.create_run(make_run(PLAN))

    def watch(event: events.Event) -> None:
        if isinstance(event, events.TrialDone):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), Pool({"cuda:0": Device(), "cuda:1": Device()}) as pool:
        go_on(ledger, pool, watch)
    assert ledger.run("run-1").status is RunStatus.STOPPED
    assert 1 <= len(ledger.trials("run-1")) <= 2
    assert search(ledger, ScriptedModel(script), ReplayJudge()) == DONE
    assert sorted(told(ledger)) == sorted(WHOLE)


def test_pending_candidates_are_judged_by_all(ledger: Ledger, tmp_path: Path) -> None:
    """`agentgen evaluate`: three candidates wait, and are judged by two devices that meet over it."""
    ledger.create_run(make_run(PLAN))
    ledger.set_target("run-1", TARGET)
    search(ledger, ScriptedModel(script), ReplayJudge(away=True))
    both = threading.Barrier(2)
    devices: dict[str, Device] = {}

    def meet(one: str) -> None:
        if not devices[one].evaluated:
            both.wait(PATIENCE_S)

    devices |= {one: Device(lambda _candidate, one=one: meet(one)) for one in ("cuda:0", "cuda:1")}
    with Pool(devices) as pool:
        assert evaluate_pending(ledger.run("run-1"), ledger, pool, ignore) == 3
    assert {trial.candidate for trial in ledger.trials("run-1")} == {
        row.candidate.id for row in ledger.candidates("run-1")
    }
