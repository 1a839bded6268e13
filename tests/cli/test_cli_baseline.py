"""What is given of a baseline: combinations that make no sense, files that are none, and what is written."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import made_records
import pytest
from cli_program import agentgen_program
from pydantic_evals.reporting import EvaluationReport, ReportCase, ReportCaseFailure
from rich.console import Console

from agentgen.cli import eval as command
from agentgen.cli.baseline import Baseline, opened
from agentgen.cli.tally import Tally
from agentgen.errors import BadInput, MachineFailure
from agentgen.report.changes import Compared
from agentgen.scoring import batch
from agentgen.scoring.batch import Report
from agentgen.scoring.cases import About, Inputs, Solve
from agentgen.scoring.gate import Change, Kind
from agentgen.scoring.verdicts import Verdict


def report(*failed: str, name: str = "small", message: str = "DeviceLost: gone") -> Report:
    failures = [
        ReportCaseFailure[Inputs, Verdict, About](
            name=case,
            inputs=Solve(problem=Path("p")),
            metadata=None,
            expected_output=None,
            error_message=message,
            error_stacktrace="",
        )
        for case in failed
    ]
    return EvaluationReport(name=name, cases=[], failures=failures)


def test_no_baseline_is_none() -> None:
    assert opened(None, update=False, save=None, only=(), dataset="small") is None


def test_combinations_that_make_no_sense(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    batch.save(report(), path)
    with pytest.raises(BadInput, match="--update-baseline needs"):
        opened(None, update=True, save=None, only=(), dataset="small")
    with pytest.raises(BadInput, match="take all other cases out"):
        opened(path, update=True, save=None, only=("a",), dataset="small")
    with pytest.raises(BadInput, match="are one file"):
        opened(path, update=False, save=tmp_path / "." / "b.json", only=(), dataset="small")


def test_files_that_are_no_baseline(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    with pytest.raises(BadInput, match=r"cannot read the baseline .*No such file"):
        opened(path, update=False, save=None, only=(), dataset="small")
    path.write_text('{"name": "small"}')
    with pytest.raises(BadInput, match=r"is no report of agentgen eval: cases"):
        opened(path, update=True, save=None, only=(), dataset="small")
    batch.save(report(name="other"), path)
    with pytest.raises(BadInput, match="of the dataset 'other', not of 'small'"):
        opened(path, update=True, save=None, only=(), dataset="small")


@pytest.mark.parametrize(
    ("about", "where"),
    [
        ({"commit": -1}, "commit"),
        ({"commit": {"id": 3, "changed": False}}, "commit.id"),
        ({"machine": 1e300}, "machine"),
        ({"machine": {"device": []}}, "machine.device"),
        ({"date": 7}, "date"),
    ],
)
def test_a_baseline_that_was_edited_is_refused_before_anything_is_done(
    tmp_path: Path, about: dict[str, object], where: str
) -> None:
    edited = report()
    edited.experiment_metadata = about
    batch.save(edited, tmp_path / "b.json")
    with pytest.raises(BadInput, match=rf"is no report of agentgen eval: {where}: "):
        opened(tmp_path / "b.json", update=False, save=None, only=(), dataset="small")


@pytest.mark.parametrize(
    "edited", [{"high": -1.0}, {"high": 1e300}, {"low": 3.0}, {"ratio": 0.0}, {"baseline_us": 0.0}]
)
def test_a_race_that_nobody_measured_is_refused(tmp_path: Path, edited: dict[str, float]) -> None:
    race = made_records.speedup(2.0, 1.9, 2.1).model_copy(update=edited)
    judged = ReportCase[Inputs, Verdict, About](
        name="a",
        metadata=None,
        expected_output=None,
        metrics={},
        attributes={},
        scores={},
        labels={},
        assertions={},
        inputs=Solve(problem=Path("p")),
        output=Verdict(accepted=True, races=(race,)),
        task_duration=1.0,
        total_duration=1.0,
    )
    batch.save(EvaluationReport(name="small", cases=[judged]), tmp_path / "b.json")
    with pytest.raises(BadInput, match=r"nobody measured such a race of a|races.0.ratio: "):
        opened(tmp_path / "b.json", update=False, save=None, only=(), dataset="small")


def test_what_is_not_evaluated_is_not_compared(tmp_path: Path) -> None:
    batch.save(report("one", "two"), tmp_path / "b.json")
    found = opened(tmp_path / "b.json", update=False, save=None, only=("tw",), dataset="small")
    assert found
    assert found.report
    assert [failure.name for failure in found.report.failures] == ["two"]


def test_the_first_baseline_is_written_and_only_where_that_was_asked_for(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "b.json"
    found = opened(path, update=True, save=None, only=(), dataset="small")
    assert found == Baseline(path, None, update=True)
    assert found
    found.written(report())
    assert batch.read(path).name == "small"
    Baseline(path, batch.read(path), update=False).written(report("one"))
    assert batch.read(path).failures == []


def test_a_report_with_holes_becomes_no_baseline(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    batch.save(report(), path)
    said = "stays as it is: no verdict yet on one, and 1 more: DeviceLost: gone"
    with pytest.raises(MachineFailure, match=said):
        Baseline(path, batch.read(path), update=True).written(report("one", "two"))
    assert batch.read(path).failures == []


def test_what_fails_every_time_may_stand_in_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    Baseline(path, None, update=True).written(report("one", message="NothingRecorded: no replies"))
    assert [failure.error_message for failure in batch.read(path).failures] == ["NothingRecorded: no replies"]


def test_a_baseline_that_could_never_be_written_is_refused_at_once(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"cannot be written: .*file is no folder"):
        opened(tmp_path / "file" / "b.json", update=True, save=None, only=(), dataset="small")


@pytest.mark.parametrize(
    ("path", "why"), [(".", "it is a folder"), ("/proc/none/r.json", "/proc is no folder that you can write to")]
)
def test_a_report_that_could_never_be_saved_is_refused_at_once(tmp_path: Path, path: str, why: str) -> None:
    for update, save in ((False, tmp_path / path), (True, None)):
        with pytest.raises(BadInput, match=why):
            opened(tmp_path / path if update else None, update=update, save=save, only=(), dataset="small")


WAITS = "ReplyPending: run r is waiting for 1 answer"


@pytest.mark.parametrize(
    ("found", "kind", "update", "code"),
    [
        (report(), Kind.NEW, False, 0),
        (report(), Kind.LOST, False, 1),
        (report(), Kind.LOST, True, 0),
        (report("one", message="NothingRecorded: none"), None, True, 0),  # the first one, whatever is in it
        (report("one"), Kind.LOST, False, 1),
        (report("one"), None, True, 2),
        (report("one"), Kind.LOST, True, 2),
        (report("one", message=WAITS), Kind.LOST, False, 1),
        (report("one", message=WAITS), Kind.LOST, True, 1),  # nothing is written before all is answered
        (report("one", message=WAITS), Kind.NEW, False, 75),
        (report("one", message=WAITS), Kind.NEW, True, 75),
        (report("one", message=WAITS), None, True, 75),
    ],
)
def test_how_it_ends(tmp_path: Path, found: Report, kind: Kind | None, update: bool, code: int) -> None:
    path = tmp_path / "b.json"
    old = report() if kind else None
    changes = (Change(kind=kind, case="a"),) if kind else ()
    ended, told = Baseline(path, old, update).settled(
        found, lambda old: Compared(old, changes, {}), Console(quiet=True)
    )
    assert ended == code
    assert path.exists() is (update and code == 0)
    assert ("error" in told) is (code == 2)
    assert ("changes" in told) is (kind is not None), "also where it could not be written, or answers are missing"


def test_some_that_wait_beside_others_that_failed_before(tmp_path: Path) -> None:
    found = report("one")
    found.failures += report("two", message=WAITS).failures
    baseline = Baseline(tmp_path / "b.json", report("one"), update=False)
    assert baseline.settled(found, lambda old: Compared(old, (), {}), Console(quiet=True))[0] == 75


def test_a_disk_that_is_full_loses_nothing_that_was_found(tmp_path: Path) -> None:
    path = tmp_path / "b.json"
    path.mkdir()  # nothing can be put in the place of a folder
    baseline = Baseline(path, report(), update=True)
    code, told = baseline.settled(report(), lambda old: Compared(old, (), {}), Console(quiet=True))
    assert (code, told["regression"]) == (2, False)
    assert "cannot be written" in told["error"]


class Rehearsed:
    """An evaluation that finds nothing wrong, while something happens to the place of its baseline."""

    def __init__(self, happens: Callable[[], None]) -> None:
        self._happens = happens
        self.console = Console(quiet=True)
        self.ended = self.may_go_on = False

    def begun(self, *_: object) -> Rehearsed:
        return self

    def __call__(self, *_: object) -> tuple[Report, Tally]:
        self._happens()
        return report(), Tally(self.console, 0)

    def end(self) -> None:
        self.ended = True


@pytest.mark.parametrize(("fails", "code"), [(True, 2), (False, 0)])
def test_what_is_kept_is_removed_once_the_baseline_is_written(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    fails: bool,
    code: int,
) -> None:
    path, case = tmp_path / "b.json", "{name: a, inputs: {problem: .}, metadata: {devices: [cpu]}}"
    (tmp_path / "small.yaml").write_text(f"name: small\ncases: [{case}]\n")
    evaluating = Rehearsed(path.mkdir if fails else lambda: None)
    monkeypatch.setattr(command, "Evaluating", evaluating.begun)
    found = command.evaluate(tmp_path / "small.yaml", device="cpu", baseline=path, update_baseline=True, json=True)
    assert found == code
    told = json.loads(capsys.readouterr().out)
    assert (told["dataset"], told["as_expected"], "error" in told) == ("small", True, fails)
    assert evaluating.ended is not fails


def test_a_report_that_cannot_be_saved_loses_nothing_that_was_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, case = tmp_path / "r.json", "{name: a, inputs: {problem: .}, metadata: {devices: [cpu]}}"
    (tmp_path / "small.yaml").write_text(f"name: small\ncases: [{case}]\n")
    evaluating = Rehearsed(path.mkdir)
    monkeypatch.setattr(command, "Evaluating", evaluating.begun)
    assert command.evaluate(tmp_path / "small.yaml", device="cpu", save=path, json=True) == 2
    said = capsys.readouterr()
    told = json.loads(said.out)
    assert (told["dataset"], told["exit_code"], "cannot be written" in told["error"]) == ("small", 2, True)
    assert (said.err.count("r.json"), evaluating.ended) == (1, False)


def test_the_command_line_refuses_before_anything_is_judged(tmp_path: Path) -> None:
    (tmp_path / "small.yaml").write_text("name: small\ncases: []\n")
    ended = agentgen_program("eval", "small.yaml", "--device", "cpu", "--update-baseline", "--json", folder=tmp_path)
    assert ended.code == 2
    assert ended.answer["error"] == "--update-baseline needs the --baseline that is to be written"
    assert ended.stderr.splitlines() == [f"agentgen: {ended.answer['error']}"]
