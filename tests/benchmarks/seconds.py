"""How long does the judge take for a kernel, stage by stage?

    python tests/benchmarks/seconds.py --device cuda:0 --out seconds.json \\
        softmax=tests/honest/triton/softmax.py softmax=tests/honest/cuda/softmax_online.py      (from the repository)

Each kernel is judged several times in a row by one open judge of its problem, which is told of none that comes next: no
candidate is built ahead. Medians; what is there is written after every kernel. The table is in docs/verification.md.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import groupby
from pathlib import Path
from statistics import median
from typing import Any

from mix import CATALOG, device_type

from agentgen.records.candidate import Candidate, Language
from agentgen.records.run import Effort
from agentgen.records.trial import Trial
from agentgen.store import catalog
from agentgen.workers.local import LocalJudge

STAGES = ("start", "build", "check", "state", "audit", "time", "general")


def main() -> None:
    """Judges, writes, prints."""
    parser = argparse.ArgumentParser()
    parser.add_argument("kernels", nargs="+", help="PROBLEM=FILE in a folder named for its language")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--trials", type=int, default=5)
    parser.add_argument("--out", type=Path, required=True)
    arguments: Any = parser.parse_args()
    pairs = [kernel.split("=", 1) for kernel in arguments.kernels]
    rows: list[dict[str, Any]] = []
    for problem, files in groupby(pairs, key=lambda pair: pair[0]):
        stated = catalog.load(problem, CATALOG)
        arithmetic = stated.arithmetic.on(device_type(arguments.device))
        with LocalJudge(stated, arguments.device, arithmetic, Effort.QUICK) as judge:
            start = time.perf_counter()
            judge.target()
            opened_s = time.perf_counter() - start
            for _, file in files:
                rows.append({"problem": problem, "opened_s": opened_s, **judged(judge, Path(file), arguments.trials)})
                arguments.out.write_text(json.dumps(rows, indent=1))
                sys.stdout.write(line(rows[-1]))


def judged(judge: LocalJudge, file: Path, trials: int) -> dict[str, Any]:
    """Returns what some trials of a kernel say, and their seconds."""
    candidate = Candidate(source=file.read_text(encoding="utf-8"), language=Language(file.parent.name))
    walls: list[float] = []
    seen: list[Trial] = []
    for _ in range(trials):
        start = time.perf_counter()
        seen.append(judge.evaluate(candidate))
        walls.append(time.perf_counter() - start)
    return {
        "kernel": file.name,
        "language": candidate.language.value,
        "machine": seen[0].machine.model_dump(mode="json"),
        "outcomes": [trial.outcome.value for trial in seen],
        "speedups": [trial.speedup.ratio if trial.speedup else None for trial in seen],
        "seconds": [{str(stage): spent for stage, spent in trial.seconds.items()} for trial in seen],
        "wall_s": walls,
    }


def line(row: dict[str, Any]) -> str:
    """Returns a row of the table: medians by stage, of whole trials, and of trials up to their timing."""
    stages = [median(trial.get(stage, 0.0) for trial in row["seconds"]) for stage in STAGES]
    timed = median(wall - trial.get("general", 0.0) for wall, trial in zip(row["wall_s"], row["seconds"], strict=True))
    cells = [f"{row['problem']}, {row['language']} ({row['kernel']})", str(len(row["wall_s"]))]
    cells += [f"{spent:.2f}" for spent in (*stages, timed, median(row["wall_s"]))]
    told = f"{', '.join(sorted(set(row['outcomes'])))}; {row['speedups'][0] or 0:.2f} times torch"
    return f"| {' | '.join(cells)} | {told}; opened in {row['opened_s']:.1f} s\n"


if __name__ == "__main__":
    main()
