"""What the search itself costs beside models and judge: a run of ten thousand candidates, with a model and a judge that
answer at once, kept in SQLite on disk.

    python tests/benchmarks/search.py --nodes 10000     (from the repository)

Prints for each strategy the time of all that belongs to a candidate (choosing what to grow from, prompts, requests,
replies, candidates, trials) and what of it are requests and replies, the most memory the process had, and the time of a
new process from opening the store to the first request of the next round. Trials are as large as real ones. The figures
are in docs/search.md.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "search"))

from search_factories import PROBLEM, TARGET, ScriptedModel, fenced, passed

from agentgen.errors import ModelUnavailable
from agentgen.models.roster import Roster
from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.machine import Target
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Caps, Plan, Run, Strategy
from agentgen.records.trial import Check, Trial
from agentgen.search.loop import run_search
from agentgen.store.database import Database
from agentgen.store.ledger import Ledger, open_ledger

TRIAL_BYTES = 20_000
"""Of a trial of conv2d on a CPU as JSON: 20,818."""
SOURCE_BYTES = 4_000
LANGUAGES = (Language.TRITON, Language.CUDA)
TREES = (Strategy.IDEAS_TREE, Strategy.BEST_FIRST)
"""The others grow no tree. Refining is one line of programs, each a round that looks at all before it (15 ms each at a
thousand), and the best of n compares each idea with all others on the reference."""


class Teller(ScriptedModel):
    """A model that answers at once and remembers nothing, so that the memory seen is the search's."""

    async def ask(self, request: ChatRequest) -> ChatReply:
        said = self._answer(request)
        if isinstance(said, Exception):
            raise said
        return ChatReply(text=said, model=self.name, input_tokens=8000, output_tokens=2000, cost_usd=0.01, seconds=9.0)


class Finder:
    """A judge that finds a speedup around 1 at once, and says as much about it as the real one."""

    def __init__(self) -> None:
        self._random = random.Random(0)
        self._evidence = tuple(
            Check(name=f"check {number}", passed=True, evidence="x" * 400) for number in range(TRIAL_BYTES // 460)
        )

    async def target(self) -> Target:
        return TARGET

    async def evaluate(self, candidate: Candidate, on_stage: Callable[[str], None]) -> Trial:
        return passed(candidate, self._random.lognormvariate(0, 0.3)).model_copy(update={"checks": self._evidence})


class Clocked(Ledger):
    """Says how long it took to keep what was asked and answered, a part of which is waiting for the disk."""

    exchanges_s = 0.0

    def add_request(self, run_id: str, request: ChatRequest) -> bool:
        begun = time.perf_counter()
        added = super().add_request(run_id, request)
        self.exchanges_s += time.perf_counter() - begun
        return added

    def add_reply(self, run_id: str, request: ChatRequest, reply: ChatReply) -> bool:
        begun = time.perf_counter()
        added = super().add_reply(run_id, request, reply)
        self.exchanges_s += time.perf_counter() - begun
        return added


def answer(request: ChatRequest) -> str:
    """Ideas that no other idea is like, and sources of their size."""
    number = random.Random(request.id)
    if request.role is Role.IDEAS:
        ideas = [
            {
                "category": "memory access",
                "title": " ".join(f"{number.randrange(1 << 32):x}" for _ in range(6)),
                "reasoning": "because " * 80,
                "predicted_speedup": 1.5,
            }
            for _ in range(6)
        ]
        return json.dumps({"ideas": ideas})
    return fenced(f"# {request.id}\nclass ModelNew:\n    pass\n" + "# padding\n" * (SOURCE_BYTES // 10))


def run_of(strategy: Strategy, rounds: int) -> Run:
    """Returns a run whose rounds make about 96 candidates each, or one where one program is refined."""
    plan = Plan(strategy=strategy, rounds=rounds, parents=8, ideas=6, next_ideas=6, dry_rounds=10**6, target_fraction=9)
    return Run(
        id=f"run-{strategy.value}",
        problem=PROBLEM,
        arithmetic=Arithmetic.FP32,
        device="cpu",
        languages=LANGUAGES,
        models=("scripted",),
        plan=plan,
        caps=Caps(tokens=10**12),  # what was used is counted, as in a run with a cap
        created=datetime(2026, 11, 22, tzinfo=UTC),
    )


def grow(store: str, strategy: Strategy, nodes: int) -> dict[str, float]:
    """Grows a run to about so many candidates; returns milliseconds a candidate and megabytes."""
    rounds = {Strategy.REFINE: nodes, Strategy.BEST_OF_N: nodes // 12}.get(strategy, 1 + nodes // 96)
    with Clocked(Database(store)) as ledger:
        run = run_of(strategy, rounds)
        ledger.create_run(run)
        begun = time.perf_counter()
        run_search(run, ledger, Roster.of(Teller(answer)), Finder(), lambda _: None)
        spent_s = time.perf_counter() - begun
        made = len(ledger.candidates(run.id))
    each = {"ms each": spent_s * 1e3 / made, "of them exchanges": ledger.exchanges_s * 1e3 / made}
    return {"candidates": made, **each, "MB": _peak_mb()}


def go_on(store: str, strategy: Strategy) -> dict[str, float]:
    """Goes on with a grown run by one more round; returns the seconds until its first request, and megabytes."""
    first: list[float] = []

    def stop(_: ChatRequest) -> ModelUnavailable:
        first.append(time.perf_counter())
        return ModelUnavailable("far enough")

    begun = time.perf_counter()
    with open_ledger(store) as ledger:
        run = ledger.run("latest")
        plan = run.plan.model_copy(update={"rounds": run.plan.rounds + 1})
        try:
            more = run.model_copy(update={"plan": plan})
            run_search(more, ledger, Roster.of(Teller(stop)), Finder(), lambda _: None)
        except ModelUnavailable:
            pass
    return {"resume s": first[0] - begun, "MB": _peak_mb()}


def _peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3


def main() -> None:
    """Prints one line for each strategy."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--strategy", type=Strategy, choices=list(Strategy), action="append")
    parser.add_argument("--part", choices=["grow", "go-on"], help=argparse.SUPPRESS)
    parser.add_argument("--store", help=argparse.SUPPRESS)
    arguments: Any = parser.parse_args()
    if arguments.part:
        strategy = arguments.strategy[0]
        grown = arguments.part == "grow"
        found = grow(arguments.store, strategy, arguments.nodes) if grown else go_on(arguments.store, strategy)
        sys.stdout.write(json.dumps(found))
        return
    sys.stdout.write(f"{platform.processor() or platform.machine()}, {os.cpu_count()} cores, {platform.release()}\n")
    for strategy in arguments.strategy or TREES:
        with tempfile.TemporaryDirectory() as folder:
            store = f"sqlite:///{folder}/agentgen.db"
            grown, gone_on = (_part(part, store, strategy, arguments.nodes) for part in ("grow", "go-on"))
        sys.stdout.write(
            f"{strategy.value}: {grown['candidates']:.0f} candidates, {grown['ms each']:.2f} ms each, of them "
            f"{grown['of them exchanges']:.2f} to keep what was asked and answered; "
            f"{grown['MB']:.0f} MB; resumed in {gone_on['resume s']:.2f} s, {gone_on['MB']:.0f} MB\n"
        )


def _part(part: str, store: str, strategy: Strategy, nodes: int) -> dict[str, float]:
    """Each in a process of its own: its memory is its own, and nothing is in any cache of Python's."""
    command = [sys.executable, __file__, "--part", part, "--store", store, "--strategy", strategy.value]
    return json.loads(subprocess.run([*command, "--nodes", str(nodes)], check=True, stdout=subprocess.PIPE).stdout)


if __name__ == "__main__":
    main()
