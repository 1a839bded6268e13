"""The report that an evaluation is compared with, from the command line's words to the file that is written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pydantic import ValidationError
from pydantic_evals.reporting import ReportCase, ReportCaseFailure

from agentgen.errors import BadInput, MachineFailure
from agentgen.scoring import batch
from agentgen.scoring.batch import Report


@dataclass(frozen=True)
class Baseline:
    """Where it lies, and what it says."""

    path: Path
    report: Report | None
    """None: it is to be written for the first time."""
    update: bool

    def written(self, report: Report) -> str:
        """Puts a report in its place, where that was asked for, and says so.

        Raises:
            MachineFailure: the report is not whole: cases would never be missed again.
        """
        if not self.update:
            return ""
        if report.failures:
            count = len(report.failures)
            raise MachineFailure(
                f"{self.path} stays as it is: the machine failed {count} of the cases. Evaluate again, or write one "
                "with holes by --save"
            )
        batch.save(report, self.path)
        return f"written: {self.path}"


def opened(path: Path | None, *, update: bool, save: Path | None, only: Sequence[str], dataset: str) -> Baseline | None:
    """Returns the baseline that was asked for, of the cases that are evaluated.

    Args:
        path: of `--baseline`; None: there is to be none.
        update: whether it is to be overwritten.
        save: where the new report goes.
        only: parts of the names of the cases that are evaluated; empty: all.
        dataset: name of what is evaluated.

    Raises:
        BadInput: the options make no sense together, or the file is no report of this dataset.
    """
    if path is None:
        if update:
            raise BadInput("--update-baseline needs the --baseline that is to be written")
        return None
    if update and only:
        raise BadInput("--update-baseline with --only would take all other cases out of the baseline")
    if save and save.resolve() == path.resolve():
        raise BadInput("--save and --baseline are one file: --update-baseline writes it, once it has been compared")
    if update and not path.exists():
        return Baseline(path, None, update)
    report = _read(path)
    if report.name != dataset:
        raise BadInput(f"{path} is a report of the dataset {report.name!r}, not of {dataset!r}")
    return Baseline(path, _restricted(report, only) if only else report, update)


def _read(path: Path) -> Report:
    try:
        return batch.read(path)
    except OSError as error:
        raise BadInput(
            f"cannot read the baseline {path}: {error.strerror or error}; --update-baseline makes one"
        ) from error
    except ValidationError as error:
        fault = error.errors()[0]
        where = ".".join(map(str, fault["loc"]))
        raise BadInput(f"{path} is no report of agentgen eval: {where}: {fault['msg']}") from error


def _restricted(report: Report, only: Sequence[str]) -> Report:
    """Returns what the baseline says of the cases that are evaluated."""

    def wanted(case: ReportCase | ReportCaseFailure) -> bool:
        return any(part in (case.source_case_name or case.name) for part in only)

    return replace(
        report,
        cases=[case for case in report.cases if wanted(case)],
        failures=[failure for failure in report.failures if wanted(failure)],
    )
