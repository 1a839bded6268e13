"""How often does the judge call identical code faster, and does it find a planted difference?

    python tests/benchmarks/identical.py conv2d --comparisons 100 --out result.json     (on a GPU, from the repository)

The candidate is the reference itself, in fresh guests, raced against eager torch in the judge as every candidate is;
then against eager torch slowed by a kernel of a known share of its time. The figures are in docs/verification.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import OwnWork, Problem
from agentgen.records.run import Effort
from agentgen.records.trial import EAGER, Speedup
from agentgen.store.catalog import load
from agentgen.verify.checks.audit import Audit
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings
from agentgen.verify.judge import Judge
from agentgen.verify.session import Session
from agentgen.verify.timing import race, speedup

RACES_A_GUEST = 10
NEVER = 1 << 30


def main() -> None:
    """Writes every comparison, and prints the counts."""
    parser = argparse.ArgumentParser()
    parser.add_argument("problem")
    parser.add_argument("--comparisons", type=int, default=100)
    parser.add_argument("--planted", type=float, default=0.03)
    parser.add_argument("--out", type=Path, required=True)
    arguments: Any = parser.parse_args()
    problem = load(arguments.problem, Path("problems")).model_copy(update={"own_work": OwnWork.LIBRARY})
    judge = Judge(problem, "cuda:0", problem.arithmetic, Effort.QUICK)
    quiet_us = judge.target().baselines_us[EAGER]
    eager = judge.main.reference.call
    identical = compare(judge, eager, arguments.comparisons)
    planted = compare(judge, slowed(eager, arguments.planted * quiet_us), max(10, arguments.comparisons // 5))
    judge.close()
    machine = judge.machine.model_dump(mode="json")
    result: dict[str, Any] = {"problem": problem.name, "quiet_us": quiet_us, "machine": machine}
    for name, rows in (("identical", identical), ("planted", planted)):
        result[name] = rows
        sys.stdout.write(f"{problem.name} {name}: {summary(rows)}\n")
    arguments.out.write_text(json.dumps(result, indent=1))


def summary(rows: list[dict[str, Any]]) -> str:
    """Returns the counts in one line."""
    ratios = sorted(row["ratio"] for row in rows)
    return (
        f"n {len(rows)}, called faster {sum(row['faster'] for row in rows)}, interval above 1 "
        f"{sum(row['low'] > 1 for row in rows)}, below 1 {sum(row['high'] < 1 for row in rows)}, ratios "
        f"{ratios[0]:.4f} {ratios[len(ratios) // 2]:.4f} {ratios[-1]:.4f}, "
        f"{max(row['seconds'] for row in rows):.2f} s at most"
    )


def reference_as_candidate(problem: Problem) -> Candidate:
    """Returns the reference's own module as a candidate."""
    return Candidate(source=f"{problem.reference}\n\nclass ModelNew(Model):\n    pass\n", language=Language.CUDA)


def slowed(call: Callable[..., Any], extra_us: float) -> Callable[..., Any]:
    """Returns `call` followed by a kernel that does nothing for `extra_us`."""
    cycles = int(extra_us * _cycles_a_us())

    def slow(*inputs: torch.Tensor) -> Any:
        answer = call(*inputs)
        torch.cuda._sleep(cycles)  # pyright: ignore[reportPrivateUsage]
        return answer

    return slow


def _cycles_a_us() -> float:
    first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    for _ in range(2):  # the first one finds an idle clock
        first.record()
        torch.cuda._sleep(20_000_000)  # pyright: ignore[reportPrivateUsage]
        last.record()
        torch.cuda.synchronize()
    return 20_000_000 / (1e3 * first.elapsed_time(last))


def compare(judge: Judge, baseline: Callable[..., Any], comparisons: int) -> list[dict[str, Any]]:
    """Races the reference against `baseline`, in a fresh guest every tenth time."""
    candidate = reference_as_candidate(judge.problem)
    rows: list[dict[str, Any]] = []
    session: Session | None = None
    watch = judge.stopwatch(judge.main)
    quiet = judge.target().baselines_us
    calls = watch.calls(quiet[EAGER])
    judge.main.draw_weights()
    judge.main.draw_inputs(Family.NORMAL)
    for done in range(comparisons):
        if done % RACES_A_GUEST == 0:
            if session:
                session.close()
            session = judge.guests.first(candidate)
            session.load(candidate, judge.arithmetic)
            session.construct(judge.main)
            session.set_weights(judge.main)
            session.run(judge.main, 3)
        assert session
        # The audits of a judged race (up to 0.1 s each, between windows) would only make this longer.
        audit = Audit(judge.main, judge.arithmetic, calls, every=NEVER, findings=Findings())
        start = time.perf_counter()
        result = race(watch, session, {EAGER: baseline}, quiet, quiet[EAGER], audit)
        seconds = time.perf_counter() - start
        found: Speedup = speedup(EAGER, [result], result.median_us)
        rows.append({**found.model_dump(mode="json"), "candidate_us": result.median_us, "seconds": seconds})
    if session:
        session.close()
    return rows


if __name__ == "__main__":
    main()
