"""Cases of a dataset of kernels, each with the verdict that is due: pydantic-evals' YAML, its paths relative to it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from pydantic import ValidationError
from pydantic_evals import Case, Dataset
from yaml import YAMLError

from agentgen.errors import BadInput
from agentgen.records.base import Record
from agentgen.records.candidate import Language
from agentgen.records.problem import DeviceType
from agentgen.records.trial import Depth, Outcome, Trial
from agentgen.scoring.evaluators import REPORT_EVALUATORS, Cause, Decision


class Subject(Record):
    """What is judged; paths are relative to the dataset's file."""

    problem: Path
    """A problem's folder."""
    kernel: Path
    language: Language | None = None
    """None: the name of the kernel's folder."""
    depth: Depth = Depth.JUDGE
    """How far the judge has to go."""


class Verdict(Record):
    """What became of it, or is to become of it."""

    accepted: bool
    outcome: Outcome | None = None
    by: tuple[str, ...] = ()
    """Checks that failed, in full ("values: main"); of an expected verdict, those of which one is to fail, wherever
    ("values"). Empty: any, or none by name."""
    reasons: tuple[str, ...] = ()
    seconds: Mapping[str, float] = {}
    """By stage."""
    median_us: float | None = None
    speedup: float | None = None
    """Against the best baseline raced; None where it was not timed."""

    def caused_by(self, expected: Verdict) -> bool:
        """Whether the refusal is the one that was expected."""
        named = [found for found in self.by for name in expected.by if found == name or found.startswith(f"{name}: ")]
        return (bool(named) or not expected.by) and expected.outcome in (None, self.outcome)

    @classmethod
    def of(cls, trial: Trial) -> Verdict:
        """Returns the verdict of a trial."""
        return cls(
            accepted=trial.accepted,
            outcome=trial.outcome,
            by=tuple(check.name for check in trial.checks if check.passed is False),
            reasons=trial.reasons,
            seconds={str(stage): spent for stage, spent in trial.seconds.items()},
            median_us=trial.timing.median_us if trial.timing else None,
            speedup=trial.speedup.ratio if trial.speedup else None,
        )


class About(Record):
    """What a case is there for."""

    mechanism: str | None = None
    """Of a cheat: how it cheats."""
    technique: str | None = None
    """Of an honest kernel: what a too strict judge would refuse."""
    fools: str | None = None
    """What of a naive harness a cheat fools: `values` or `time`."""
    reference_first: bool = True
    """In which order that harness runs the two."""
    devices: tuple[DeviceType, ...]
    """Where the case can be decided."""


Kernels: TypeAlias = Dataset[Subject, Verdict, About]
KernelCase: TypeAlias = Case[Subject, Verdict, About]


def load(path: Path) -> Kernels:
    """Returns a dataset. Its paths stay as they are, so that a report of it names no machine's folders.

    Raises:
        BadInput: the file cannot be used; names it and says why.
    """
    try:
        found = Dataset[Subject, Verdict, About].from_file(
            path, custom_evaluator_types=(Decision, Cause), custom_report_evaluator_types=REPORT_EVALUATORS
        )
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the dataset {path}: {getattr(error, 'strerror', None) or error}") from error
    except (ValidationError, ValueError, ExceptionGroup, YAMLError) as error:
        raise BadInput(f"{path} is no dataset of kernels: {_reason(error)}") from error
    kernels = [path.parent / case.inputs.kernel for case in found.cases]
    missing = [str(kernel) for kernel in kernels if not kernel.is_file()]
    if missing:
        raise BadInput(f"{path}: {missing[0]} is missing" + (f", and {len(missing) - 1} more" if missing[1:] else ""))
    return found


def on_device(dataset: Kernels, device: DeviceType) -> Kernels:
    """Returns the cases that can be decided on a kind of device, those of one problem together."""
    cases = [case for case in dataset.cases if case.metadata is None or device in case.metadata.devices]
    return _with(dataset, sorted(cases, key=lambda case: str(case.inputs.problem)))


def named(dataset: Kernels, names: Collection[str]) -> Kernels:
    """Returns the cases whose names contain one of `names`."""
    return _with(dataset, [case for case in dataset.cases if any(part in (case.name or "") for part in names)])


def language_of(subject: Subject) -> Language:
    """Returns what a kernel is written in.

    Raises:
        BadInput: neither the case nor the kernel's folder says.
    """
    try:
        return subject.language or Language(subject.kernel.parent.name)
    except ValueError as error:
        raise BadInput(f"{subject.kernel} lies in no folder called after its language: give `language`") from error


def _with(dataset: Kernels, cases: list[Any]) -> Kernels:
    return Dataset(
        name=dataset.name, cases=cases, evaluators=dataset.evaluators, report_evaluators=dataset.report_evaluators
    )


def _reason(error: BaseException) -> str:
    inner: BaseException = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    inner = inner.__cause__ if isinstance(inner.__cause__, ValidationError) else inner
    if isinstance(inner, ValidationError):
        fault = inner.errors()[0]
        return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
    return " ".join(str(inner).split())
