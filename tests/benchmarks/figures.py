"""Figures of a run of `evaluation.py`: pure arithmetic and text, over rows as they are written to its file."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from judged import ON_DEVICE

STAGES = ("open", "start", "build", "check", "state", "audit", "time", "general", "other")
"""Of ours. `open`: a judge's opening, once for all candidates of a problem; `other`: what of an evaluation's wall time
is in none of its stages."""
PLAIN_STAGES = ("import", "context", "build", "correctness", "inputs", "timing", "other")
REPRODUCED_WITHIN = 0.3
EXPECTED: Mapping[tuple[str, str], Mapping[str, float]] = {
    ("softmax", "triton"): {"import": 2.4, "context": 0.1, "correctness": 7.9, "inputs": 2.8, "wall": 14.6},
    ("softmax", "cuda"): {
        "import": 2.5,
        "context": 0.1,
        "build": 35.6,
        "correctness": 6.8,
        "inputs": 2.6,
        "wall": 48.7,
    },
    ("layernorm", "cuda"): {
        "import": 2.2,
        "context": 0.1,
        "build": 34.0,
        "correctness": 1.7,
        "inputs": 0.6,
        "wall": 40.4,
    },
}
"""Seconds of KernelBench's evaluator on one NVIDIA H200, by (problem, language)."""

Row = Mapping[str, Any]


def summary(judged: Sequence[Row], plain: Sequence[Row], wall_s: float) -> dict[str, Any]:
    """Returns what a run comes to; `wall_s` is that of all judged together."""
    found: dict[str, Any] = {
        "judged": len(judged),
        "judged_wall_s": wall_s,
        "judged_per_minute": 60 * len(judged) / wall_s if wall_s else None,
        "on_device": on_device_share(judged, wall_s),
        "stages": stages(judged),
        "unexpected": [row["name"] for row in judged if row["accepted"] is not row["honest"]],
    }
    done = [row for row in plain if row["error"] is None]
    plain_s = sum(row["wall_s"] for row in done)
    found["plain"] = len(done)
    found["plain_failed"] = len(plain) - len(done)
    found["plain_per_minute"] = 60 * len(done) / plain_s if done else None
    if done and judged:
        found["times_as_many"] = found["judged_per_minute"] / found["plain_per_minute"]
    found["pairs"] = pairs(judged, done)
    found["reproduced"] = reproduced(done)
    return found


def on_device_share(judged: Iterable[Row], wall_s: float) -> float | None:
    """Returns the share of the wall time in which the device checked or timed: from above, as these stages include
    the judge's own work between windows."""
    busy = sum(row["stages"].get(stage, 0.0) for row in judged for stage in ON_DEVICE)
    return busy / wall_s if wall_s else None


def stages(judged: Sequence[Row]) -> dict[str, dict[str, float]]:
    """Returns each stage's number of candidates that came so far, their median, and the mean over all candidates, in
    seconds."""
    table: dict[str, dict[str, float]] = {}
    for stage in STAGES:
        spent = [value for row in judged if (value := _of_stage(row, stage)) is not None]
        if spent:
            mean = sum(spent) / len(judged)
            table[stage] = {"n": len(spent), "median_s": statistics.median(spent), "mean_of_all_s": mean}
    return table


def pairs(judged: Sequence[Row], plain: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns, by problem and language, both evaluators' median seconds: ours over honest kernels."""
    rows: list[dict[str, Any]] = []
    for key in sorted({(row["problem"], row["language"]) for row in plain}):
        theirs = [row for row in plain if (row["problem"], row["language"]) == key]
        ours = [row["seconds"] for row in judged if (row["problem"], row["language"]) == key and row["honest"]]
        of_stages = {stage: statistics.median(_of_plain(row, stage) for row in theirs) for stage in PLAIN_STAGES}
        wall_s = statistics.median(row["wall_s"] for row in theirs)
        rows.append(
            {
                "problem": key[0],
                "language": key[1],
                "plain_n": len(theirs),
                "plain": {**of_stages, "wall": wall_s},
                "judged_n": len(ours),
                "judged_s": statistics.median(ours) if ours else None,
            }
        )
    return rows


def reproduced(plain: Sequence[Row]) -> list[dict[str, Any]]:
    """Returns each stage of which a figure is published, and whether ours is within 30% of it."""
    rows: list[dict[str, Any]] = []
    for pair in pairs((), plain):
        name = pair["problem"].removeprefix("problems/")
        for stage, expected in EXPECTED.get((name, pair["language"]), {}).items():
            found = pair["plain"][stage]
            within = abs(found - expected) <= REPRODUCED_WITHIN * expected
            place = {"problem": name, "language": pair["language"], "stage": stage}
            rows.append({**place, "expected_s": expected, "found_s": found, "within": within})
    return rows


def table(found: Mapping[str, Any]) -> str:
    """Returns a summary as text."""
    lines = [f"{'stage':12} {'n':>4} {'median s':>9} {'mean of all s':>14}"]
    for stage, spent in found["stages"].items():
        lines.append(f"{stage:12} {spent['n']:4} {spent['median_s']:9.3f} {spent['mean_of_all_s']:14.3f}")
    lines.append(f"judged: n {found['judged']}, {found['judged_wall_s']:.1f} s, {_rate(found['judged_per_minute'])}")
    if found["on_device"] is not None:
        lines.append(f"of the wall time in {' + '.join(ON_DEVICE)}: {found['on_device']:.0%}")
    lines.append(f"unexpected verdicts: {', '.join(found['unexpected']) or 'none'}")
    lines.append(f"plain: n {found['plain']}, {found['plain_failed']} failed, {_rate(found['plain_per_minute'])}")
    for pair in found["pairs"]:
        spent = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in pair["plain"].items())
        ours = "none" if pair["judged_s"] is None else f"{pair['judged_s']:.2f} s (n {pair['judged_n']})"
        lines.append(f"  {pair['problem']} {pair['language']} (n {pair['plain_n']}): {spent}; judged: {ours}")
    for row in found["reproduced"]:
        place = f"{row['problem']} {row['language']} {row['stage']}"
        words = "within 30%" if row["within"] else "NOT within 30%"
        lines.append(f"  {place}: {row['found_s']:.2f} s, published {row['expected_s']:.2f} s: {words}")
    if "times_as_many" in found:
        lines.append(f"judged a minute / plain a minute: {found['times_as_many']:.2f}")
    return "\n".join(lines) + "\n"


def _rate(per_minute: float | None) -> str:
    return "no rate" if per_minute is None else f"{per_minute:.2f} a minute"


def _of_stage(row: Row, stage: str) -> float | None:
    if stage == "open":
        return row["opened_s"] or None
    if stage == "other":
        return row["seconds"] - sum(row["stages"].values())
    return row["stages"].get(stage)


def _of_plain(row: Row, stage: str) -> float:
    """`draws` lies within `correctness`."""
    if stage == "other":
        return row["wall_s"] - sum(row["seconds"][known] for known in PLAIN_STAGES[:-1])
    return row["seconds"][stage]
