"""The report that an evaluation is compared with, from the command line's words to the file that is written."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_evals.reporting import ReportCase, ReportCaseFailure
from rich.console import Console

from agentgen.cli.solve import WAITING
from agentgen.cli.tally import UNEXPECTED
from agentgen.errors import BadInput, MachineFailure, StoreUnavailable
from agentgen.report.changes import Compared
from agentgen.scoring import batch
from agentgen.scoring.batch import Report
from agentgen.scoring.faults import may_pass, waits
from agentgen.scoring.times import measurable


@dataclass(frozen=True)
class Baseline:
    """Where it lies, and what it says."""

    path: Path
    report: Report | None
    """None: it is to be written for the first time."""
    update: bool

    def settled(
        self, report: Report, compared_with: Callable[[Report], Compared], console: Console
    ) -> tuple[int, dict[str, Any]]:
        """Compares a report, and writes it where that was asked for.

        Returns:
            The exit code, and what programs are told: also of a baseline that could not be written, for what was found
            is not lost with that.
        """
        waiting = [failure for failure in report.failures if waits(failure)]
        code, told = WAITING if waiting else 0, dict[str, Any]()
        if self.report:
            compared = compared_with(self.report)
            console.print(compared.shown(), soft_wrap=True)  # a change is one line, in a log as well
            code = UNEXPECTED if compared.regression else code
            told = compared.summary()
        if self.update and waiting and len(waiting) == len(report.failures):
            console.print(f"{self.path} is written once all is answered", soft_wrap=True)
            return code, told
        try:
            if words := self.written(report):
                console.print(words, soft_wrap=True)
                code = 0
        except MachineFailure as error:
            return error.exit_code, {**told, **_told(error, console)}
        return code, told

    def written(self, report: Report) -> str:
        """Puts a report in its place, where that was asked for, and says so.

        Raises:
            MachineFailure: it cannot be written; or a case has no verdict that may have one the next time, and nobody
                would miss it again. What fails every time is a finding like any other.
        """
        if not self.update:
            return ""
        if holes := [failure for failure in report.failures if may_pass(failure)]:
            more = f", and {len(holes) - 1} more" if holes[1:] else ""
            reason = " ".join(holes[0].error_message.split())
            raise MachineFailure(
                f"{self.path} stays as it is: no verdict yet on {holes[0].name}{more}: {reason}. The same command "
                "tries that again; --save writes a report with holes"
            )
        batch.save(report, self.path)
        return f"written: {self.path}"


def saved(report: Report, path: Path | None, console: Console) -> dict[str, Any]:
    """Writes a report where that was asked for, and returns what programs are told of it: an error, or nothing. What
    was found is not lost with a report that cannot be written."""
    try:
        if path:
            batch.save(report, path)
    except StoreUnavailable as error:
        return _told(error, console)
    return {}


def _told(error: MachineFailure, console: Console) -> dict[str, Any]:
    console.print(f"agentgen: {error}", soft_wrap=True)
    return {"error": str(error), "exit_code": error.exit_code}


def opened(path: Path | None, *, update: bool, save: Path | None, only: Sequence[str], dataset: str) -> Baseline | None:
    """Returns the baseline that was asked for, of the cases that are evaluated.

    Args:
        path: of `--baseline`; None: there is to be none.
        update: whether it is to be overwritten.
        save: where the new report goes.
        only: parts of the names of the cases that are evaluated; empty: all.
        dataset: name of what is evaluated.

    Raises:
        BadInput: the options make no sense together, the file is no report of this dataset, or what is to be written
            could not be.
    """
    if save:
        _require_writable(save, "report")
    if path is None:
        if update:
            raise BadInput("--update-baseline needs the --baseline that is to be written")
        return None
    if update and only:
        raise BadInput("--update-baseline with --only would take all other cases out of the baseline")
    if save and save.resolve() == path.resolve():
        raise BadInput("--save and --baseline are one file: --update-baseline writes it, once it has been compared")
    if update:
        _require_writable(path, "baseline")
    if update and not path.exists():
        return Baseline(path, None, update)
    report = _read(path)
    if report.name != dataset:
        raise BadInput(f"{path} is a report of the dataset {report.name!r}, not of {dataset!r}")
    return Baseline(path, _restricted(report, only) if only else report, update)


def _require_writable(path: Path, what: str) -> None:
    """Raises BadInput where a report could not be written: that is no news for the end of an evaluation."""
    target = path.resolve()
    if target.is_dir():
        raise BadInput(f"the {what} {path} cannot be written: it is a folder")
    if target.exists() and not target.is_file():
        return  # a pipe, or a terminal
    folder = next(folder for folder in target.parents if folder.exists())
    try:
        tempfile.TemporaryFile(dir=folder).close()  # root may write to every folder, and still makes no file in /proc
    except OSError as error:
        raise BadInput(f"the {what} {path} cannot be written: {folder} is no folder that you can write to") from error


def _read(path: Path) -> Report:
    try:
        report = batch.read(path)
        _About.model_validate(report.experiment_metadata or {})
    except OSError as error:
        raise BadInput(
            f"cannot read the baseline {path}: {error.strerror or error}; --update-baseline makes one"
        ) from error
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise BadInput(f"{path} is no report of agentgen eval: {where}: {fault['msg']}") from error
    for case in report.cases:
        if not all(map(measurable, case.output.races)):
            raise BadInput(f"{path} is no report of agentgen eval: nobody measured such a race of {case.name}")
    return report


class _Commit(BaseModel):
    """Of what agentgen a report is."""

    id: str
    changed: bool


class _Where(BaseModel):
    """A machine, of any version: two are compared field by field."""

    device: str = ""


class _About(BaseModel):
    """What is read of a report beside its cases."""

    date: str | None = None
    commit: _Commit | None = None
    machine: _Where | None = None


def _restricted(report: Report, only: Sequence[str]) -> Report:
    """Returns what the baseline says of the cases that are evaluated."""

    def wanted(case: ReportCase | ReportCaseFailure) -> bool:
        return any(part in (case.source_case_name or case.name) for part in only)

    return replace(
        report,
        cases=[case for case in report.cases if wanted(case)],
        failures=[failure for failure in report.failures if wanted(failure)],
    )
