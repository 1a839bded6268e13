"""fast_p of saved reports: which have one, what is drawn of it, and what is said of the others."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

import pytest
from site_records import CPU, report

from agentgen.report.evaluation import share
from agentgen.report.site import curves
from agentgen.scoring import batch
from agentgen.scoring.rates import Rate
from agentgen.scoring.summaries import Outcomes

RATIOS = [9.3, 1.9, None, 1.2, 0.8, None, 333.0]


def saved(folder: Path, file: str = "headline.json", **fields: Any) -> Path:
    batch.save(report(RATIOS, **fields), folder / file)
    return folder / file


def test_a_curve_steps_down_where_a_speedup_lies_and_counts_as_the_report_does(tmp_path: Path) -> None:
    saved(tmp_path)
    found, others, broken = curves.read_all(tmp_path)
    assert (others, broken) == ((), ())
    (one,) = curves.curves(found)
    best, eager = (line.path for line in one.chart.lines if "V" in line.path and line.style in ("best", "base"))
    assert [best.count("V"), eager.count("V")] == [5, 5]
    level = {float(y) for y in re.findall(r"(?:V|M[\d.]+ )([\d.]+)", best)}
    unit = (one.chart.bottom - one.chart.top) / 7
    assert {round((one.chart.bottom - y) / unit, 1) for y in level} == {5, 4, 3, 2, 1, 0}
    assert [line.name for line in one.chart.lines if line.name] == [
        "over the best baseline, n = 7",
        "over eager, n = 7",
    ]
    assert one.heads == ("", "over the best baseline", "over eager")
    row = {name: cells for name, *cells in one.rows}
    assert row["right and honest"] == [share(5, 7, 5 / 7, *Rate(5, 7).interval())] * 2
    assert row["more than 1×"][0].startswith("4 of 7   57% [18%, 90%]")
    assert row["more than 1.5×"][1].startswith("4 of 7")  # 1.8 over eager
    table = next(found for found in report(RATIOS).analyses if found.title == "fast_p over eager")
    counted = {row[0]: f"{row[1]} of {row[2]}" for row in getattr(table, "rows", [])}
    assert all(row[f"more than {p:g}×"][1].startswith(counted[p]) for p in (1.0, 1.5, 2.0, 5.0))


def test_machine_day_and_models_are_named_and_hostile_ones_are_words(tmp_path: Path) -> None:
    saved(tmp_path, "a.json", machine=CPU)
    saved(tmp_path, "b.json", machine=None, date=None, models="none")
    saved(tmp_path, "c.json", models=[["</script>"], 3])
    a, b, c = curves.curves(curves.read_all(tmp_path)[0])
    assert a.about == "AMD EPYC, 2 cores, torch 2.11.0, Python 3.12.3 · 2026-11-22 · answered by gpt-oss-120b"
    assert b.about == "machine not told · day not told"
    assert c.about.endswith("answered by ['</script>'], 3")
    assert a.chart.x_ticks == b.chart.x_ticks


def test_reports_that_fast_p_was_not_asked_of_are_left_out_with_a_reason(tmp_path: Path) -> None:
    saved(tmp_path, "judge.json", name="judge", over=[Outcomes()])
    found, others, broken = curves.read_all(tmp_path)
    assert (found, broken) == ((), ())
    assert others == ("judge.json: no fast_p: the dataset judge does not ask for it",)
    shipped = Path(__file__).parents[2] / "results" / "evals"
    found, others, broken = curves.read_all(shipped)
    assert broken == ()
    assert len(found) + len(others) == len(list(shipped.glob("*.json"))) > 0
    assert curves.read_all(tmp_path / "missing") == ((), (), ())


def test_what_cannot_be_read_is_a_line(tmp_path: Path) -> None:
    whole = json.loads(saved(tmp_path, "a.json").read_text())
    (tmp_path / "b.json").write_text("{")
    (tmp_path / "c.json").mkdir()
    (tmp_path / "d.json").write_text(json.dumps({**whole, "cases": "\x1b[2J" * 1000}))
    metadata = {"machine": {"device": "../x"}}
    (tmp_path / "e.json").write_text(json.dumps({**whole, "experiment_metadata": metadata}))
    os.mkfifo(tmp_path / "f.json")
    found, others, broken = curves.read_all(tmp_path)
    assert [one.name for one in found] == ["a.json"]
    assert others == ()
    words = ("Invalid JSON", "no plain file", "cases: ", "device_type: Field required", "no plain file")
    for line, wanted in zip(broken, words, strict=True):
        assert wanted in line
        assert len(line) < 500
        assert "\n" not in line


@pytest.mark.parametrize("ratios", [[None], [0.01], [1e9], [1.0] * 300])
def test_any_speedup_stays_on_the_chart(tmp_path: Path, ratios: list[float | None]) -> None:
    batch.save(report(ratios), tmp_path / "a.json")
    (one,) = curves.curves(curves.read_all(tmp_path)[0])
    for line in one.chart.lines:
        for x in re.findall(r"[MH]([\d.]+)", line.path):
            assert one.chart.left <= float(x) <= one.chart.right
