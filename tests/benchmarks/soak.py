"""Many evaluations in a row, a third of them of hostile candidates, with judges killed in between: does anything break?

    python tests/benchmarks/soak.py --device cpu --count 300 --out soak.json        (from the repository)

Promised, and looked at: every honest candidate is accepted, no hostile one is, none is lost (an evaluation whose judge
was killed fails as the machine's and is done again; no other fails so), and at the end nothing is there that was not
before (`leftovers.py`). Exits with 1 where a promise is broken. Half of the hostile are cheats, the others have a fault
(`faults.py`), of which `--endless` take 90 s each. Most honest candidates are not timed: every tenth is, and every
cheat. Judges are killed at a random moment of one in thirty evaluations. What is there is written after every one.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any

from faults import faults
from judged import judge_of
from leftovers import Census, census, judges, processes, settled, usage
from mix import HOSTILE_SHARE, PROBLEMS, Entry, known, pick

from agentgen.errors import MachineFailure
from agentgen.records.trial import Outcome, Trial
from agentgen.workers.local import LocalJudge

KILLED_ONE_IN = 30
TIMED_ONE_IN = 10
TRIES = 4
"""Of one evaluation, before it counts as lost."""
BY_FAULT = (Outcome.CRASHED, Outcome.TIMED_OUT, Outcome.OUT_OF_MEMORY)


@dataclass(frozen=True)
class Task:
    """One evaluation."""

    entry: Entry
    timing: bool
    killed: bool
    """Its judge is to be killed."""


class Killer:
    """Kills judges at random moments, and knows how many failures that excuses."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._durations = [5.0]
        self.due = 0
        self.fired = 0
        self.judges: set[int] = set()
        """All that were seen."""
        self.last = 0
        """The one that was there at the end of the last evaluation; 0: none."""

    @contextlib.contextmanager
    def during(self) -> Generator[None]:
        """Kills the judge within, if one is due, at a moment of an evaluation as long as they usually are. One that
        comes too late is due in the next."""
        start = time.monotonic()
        timer = threading.Timer(self._random.uniform(0, statistics.median(self._durations)), self._fire)
        if self.due:
            timer.start()
        try:
            yield
        finally:
            timer.cancel()
            if timer.ident:
                timer.join()
            there = judges()
            self.judges.update(there)
            self.last = there[0] if there else 0
            self._durations.append(time.monotonic() - start)

    def _fire(self) -> None:
        for pid in judges():
            self.judges.add(pid)
            self.due, self.fired = self.due - 1, self.fired + 1  # before: the failure may be seen at once
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Soaks, writes, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--problems", nargs="+", choices=PROBLEMS, default=PROBLEMS)
    parser.add_argument("--endless", type=int, default=4, help="how many never answer; each takes 90 s")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, required=True)
    arguments: Any = parser.parse_args()
    device, seed = arguments.device, arguments.seed
    todo = tasks(device, arguments.count, arguments.endless, seed, arguments.problems)
    sys.exit(1 if soak(todo, device, seed, arguments.out) else 0)


def soak(todo: Sequence[Task], device: str, seed: int, out: Path) -> list[str]:
    """Returns the promises that were broken; `seed` is for the moments at which judges are killed."""
    killer, start = Killer(seed), time.monotonic()
    result: dict[str, Any] = {"device": device, "seed": seed, "evaluations": []}
    with tempfile.TemporaryDirectory(prefix="soak-") as name:
        temporary = Path(name)
        os.environ["TMPDIR"] = name  # of judges and guests; this process has chosen its own
        before = census(temporary, killer.judges, device)
        for row in evaluations(todo, device, killer, temporary):
            result["evaluations"].append(row)
            result["seconds"] = time.monotonic() - start
            sys.stderr.write(f"{len(result['evaluations'])} {row['name']}: {row['outcome']}, {row['seconds']:.1f} s\n")
            out.write_text(json.dumps(result, indent=1))
        after = settled(before, temporary, killer.judges, device)
    rows = result["evaluations"]
    result |= {"kills": killer.fired, "judges": len(killer.judges), "before": before.counts(), "after": after.counts()}
    result["broken"] = broken(rows, len(todo), killer.fired, before, after)
    out.write_text(json.dumps(result, indent=1))
    sys.stdout.write(table(result))
    return result["broken"]


def tasks(device: str, count: int, endless: int, seed: int, problems: Collection[str] = PROBLEMS) -> list[Task]:
    """Returns the evaluations: those of one problem together, in a random order."""
    hostile = int(count * HOSTILE_SHARE)
    endless = min(endless, hostile)
    quick = hostile // 2 - endless if hostile // 2 > endless else 0
    every = known(device, problems)
    honest = pick([entry for entry in every if entry.honest], count - hostile, seed)
    cheats = pick([entry for entry in every if not entry.honest], hostile - quick - endless, seed)
    entries = [*honest, *cheats, *faults(honest, device, quick, endless)]
    chance = random.Random(seed)
    chance.shuffle(entries)
    entries.sort(key=lambda entry: str(entry.problem))
    killed = set(chance.sample(range(count), -(-count // KILLED_ONE_IN)))
    seen = Counter[str]()
    found: list[Task] = []
    for position, entry in enumerate(entries):
        seen[entry.kind] += 1
        timing = entry.kind == "cheat" or (entry.honest and seen["honest"] % TIMED_ONE_IN == 0)
        found.append(Task(entry, timing, position in killed))
    return found


def evaluations(todo: Iterable[Task], device: str, killer: Killer, temporary: Path) -> Iterator[dict[str, Any]]:
    """Yields what became of each, as it comes."""
    for _, group in groupby(todo, key=lambda task: task.entry.problem):
        of_problem = list(group)
        with judge_of(of_problem[0].entry, device) as judge:
            for task in of_problem:
                killer.due += task.killed
                row = evaluation(judge, task, killer)
                held = {"processes": len(processes(temporary)), **usage(killer.last)}
                yield {**row, "judge": held}


def evaluation(judge: LocalJudge, task: Task, killer: Killer) -> dict[str, Any]:
    """Returns what became of one, with what the machine failed at before."""
    failures: list[str] = []
    trial: Trial | None = None
    start = time.monotonic()
    while trial is None and len(failures) < TRIES:
        with killer.during():
            try:
                trial = judge.evaluate(task.entry.candidate, timing=task.timing)
            except MachineFailure as error:
                failures.append(f"{type(error).__name__}: {error}")
    return {
        "name": task.entry.name,
        "problem": task.entry.place,
        "kind": task.entry.kind,
        "timing": task.timing,
        "outcome": trial.outcome.value if trial else "LOST",
        "accepted": trial.accepted if trial else None,
        "reasons": list(trial.reasons) if trial else [],
        "failures": failures,
        "seconds": time.monotonic() - start,
    }


def broken(rows: Sequence[dict[str, Any]], count: int, kills: int, before: Census, after: Census) -> list[str]:
    """Returns the promises that were broken, each in a line."""
    found = [] if len(rows) == count else [f"{len(rows)} of {count} candidates were evaluated"]
    for row in rows:
        if row["accepted"] is not (row["kind"] == "honest"):
            found.append(f"{row['name']} ({row['kind']}): {row['outcome']}: {'; '.join(row['reasons'])[:300]}")
        elif row["kind"] not in ("honest", "cheat") and row["outcome"] not in BY_FAULT:
            found.append(f"{row['name']}: its fault was never seen: {row['outcome']}")
    failures = [failure for row in rows for failure in row["failures"]]
    if len(failures) > kills:
        found.append(
            f"{len(failures)} failures of the machine, and {kills} judges killed: {'; '.join(failures)[:1000]}"
        )
    return [*found, *(f"left: {one}" for one in after.left_since(before))]


def table(result: dict[str, Any]) -> str:
    """Returns the outcomes by kind, and what was counted, as text."""
    rows = result["evaluations"]
    lines = [f"{'kind':10} {'n':>4}  outcomes"]
    for kind in sorted({row["kind"] for row in rows}):
        outcomes = Counter(row["outcome"] for row in rows if row["kind"] == kind)
        words = ", ".join(f"{outcome} {n}" for outcome, n in outcomes.most_common())
        lines.append(f"{kind:10} {outcomes.total():4}  {words}")
    failures = sum(len(row["failures"]) for row in rows)
    lines.append(f"{len(rows)} evaluations, {result['seconds']:.0f} s, {result['judges']} judges seen")
    lines.append(f"{result['kills']} judges killed, {failures} failures of the machine")
    lines += [f"{name}: {n} before, {result['after'][name]} after" for name, n in result["before"].items()]
    lines += [f"a judge's {name}: {low} to {high}" for name, low, high in held(rows)]
    lines += [f"BROKEN {promise}" for promise in result["broken"]] or ["every promise was kept"]
    return "\n".join(lines) + "\n"


def held(rows: Iterable[dict[str, Any]]) -> list[tuple[str, int, int]]:
    """Returns the least and the most that a judge held after an evaluation; of processes, those it had started too."""
    names = sorted({name for row in rows for name in row["judge"]})
    seen = {name: [row["judge"][name] for row in rows if name in row["judge"]] for name in names}
    return [(name, min(values), max(values)) for name, values in seen.items()]


if __name__ == "__main__":
    main()
