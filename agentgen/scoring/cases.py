"""Cases of a dataset: kernels to be judged, each with the verdict that is due, and problems to be solved.

pydantic-evals' YAML; paths are relative to the file.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import date
from pathlib import Path
from typing import Any, TypeAlias, cast

from pydantic import PositiveInt, ValidationError
from pydantic_core import ErrorDetails
from pydantic_evals import Case, Dataset
from yaml import YAMLError

from agentgen.errors import BadInput
from agentgen.records.base import Record
from agentgen.records.candidate import Language
from agentgen.records.problem import Arithmetic, DeviceType
from agentgen.records.run import Caps, Effort, Strategy
from agentgen.records.trial import Depth
from agentgen.scoring.evaluators import EVALUATORS
from agentgen.scoring.summaries import REPORT_EVALUATORS
from agentgen.scoring.verdicts import Verdict


class Subject(Record):
    """What is judged; paths are relative to the dataset's file."""

    problem: Path
    """A problem's folder."""
    kernel: Path
    language: Language | None = None
    """None: the name of the kernel's folder."""
    arithmetic: Arithmetic | None = None
    """In which it is judged; None: the problem's own."""
    depth: Depth = Depth.JUDGE
    """How far the judge has to go."""


class Solve(Record):
    """A problem to be solved: a search, of which the best kernel counts.

    What is not given is as for `agentgen solve`, but for arithmetic and effort: these two depend on no settings of
    whoever evaluates.
    """

    problem: Path
    """A problem's folder, or a KernelBench-style file, relative to the dataset's file."""
    arithmetic: Arithmetic | None = None
    """None: the problem's own."""
    languages: tuple[Language, ...] = ()
    models: tuple[str, ...] = ()
    """Those of the command line come before these, and these before those of the environment. A folder of a recording
    or a mailbox is relative to the dataset's file too."""
    strategy: Strategy | None = None
    rounds: PositiveInt | None = None
    effort: Effort = Effort.QUICK
    caps: Caps = Caps()


Inputs: TypeAlias = Subject | Solve
"""Of a case; told apart by their fields."""


class Past(Record):
    """Where a case comes from that was a failure of a run."""

    cause: str
    """As `scoring.causes` puts it; a dataset has one case of a cause."""
    run: str
    date: date
    """Of the run."""
    models: tuple[str, ...]
    """Who answered in it."""
    machine: str
    """What failed where."""


class About(Record):
    """What a case is there for."""

    mechanism: str | None = None
    """Of a cheat: how it cheats."""
    technique: str | None = None
    """Of an honest kernel: what a too strict judge would refuse."""
    fools: str | None = None
    """What of a naive harness a cheat fools: `values` or `time`; or `judge`, where it is honest but for steps that only
    this judge has."""
    reference_first: bool = True
    """In which order that harness runs the two."""
    devices: tuple[DeviceType, ...]
    """Where the case can be decided."""
    past: Past | None = None
    """Of a past failure."""


Cases: TypeAlias = Dataset[Inputs, Verdict, About]
KernelCase: TypeAlias = Case[Subject, Verdict, About]


def load(path: Path, root: Path | None = None) -> Cases:
    """Returns a dataset, all of whose files are there. Its paths stay as they are, so that a report of it names no
    machine's folders.

    Args:
        path: of the file.
        root: what the paths in it are relative to; None: the file.

    Raises:
        BadInput: the file cannot be used; names it and says why.
    """
    try:
        found = Dataset[Inputs, Verdict, About].from_file(
            path, custom_evaluator_types=EVALUATORS, custom_report_evaluator_types=REPORT_EVALUATORS
        )
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the dataset {path}: {getattr(error, 'strerror', None) or error}") from error
    except RecursionError as error:
        raise BadInput(f"{path} is no dataset of cases: it is nested too deep") from error
    except (ValidationError, ValueError, ExceptionGroup, YAMLError) as error:
        raise BadInput(f"{path} is no dataset of cases: {_reason(error)}") from error
    if unnamed := [place for place, case in enumerate(found.cases, 1) if not case.name]:
        raise BadInput(f"{path}: case {unnamed[0]} has no name: give it one, by which it is found again")
    root = path.parent if root is None else root
    files = [root / case.inputs.kernel for case in kernels(found)]
    problems = [root / case.inputs.problem for case in found.cases]
    missing = [str(one) for one in (*files, *problems) if not (one.is_file() or (one in problems and one.is_dir()))]
    if missing:
        raise BadInput(f"{path}: {missing[0]} is missing" + (f", and {len(missing) - 1} more" if missing[1:] else ""))
    return found


def schema() -> dict[str, Any]:
    """Returns the JSON schema of a dataset's file, with our evaluators among pydantic-evals' own, for editors."""
    return Dataset[Inputs, Verdict, About].model_json_schema_with_evaluators(
        custom_evaluator_types=EVALUATORS, custom_report_evaluator_types=REPORT_EVALUATORS
    )


def on_device(dataset: Cases, device: DeviceType) -> Cases:
    """Returns the cases that can be decided on a kind of device, those of one judge together."""
    cases = [case for case in dataset.cases if case.metadata is None or device in case.metadata.devices]
    return _with(dataset, sorted(cases, key=_judge_of))


def _judge_of(case: Case[Inputs, Verdict, About]) -> tuple[str, str]:
    """A judge is of one problem in one arithmetic."""
    return str(case.inputs.problem), case.inputs.arithmetic or ""


def named(dataset: Cases, names: Collection[str]) -> Cases:
    """Returns the cases whose names contain one of `names`."""
    return _with(dataset, [case for case in dataset.cases if any(part in (case.name or "") for part in names)])


def called(dataset: Cases, names: Collection[str]) -> Cases:
    """Returns the cases of exactly these names."""
    return _with(dataset, [case for case in dataset.cases if case.name in names])


def without_unsolved(dataset: Cases) -> Cases:
    """Returns the cases without the problems that earlier models could not solve: those are for the next model."""
    left = [case for case in dataset.cases if not (isinstance(case.inputs, Solve) and _is_past(case.metadata))]
    return _with(dataset, left)


def kernels(dataset: Cases) -> list[KernelCase]:
    """Returns the cases in which a kernel is judged."""
    return [cast(KernelCase, case) for case in dataset.cases if isinstance(case.inputs, Subject)]


def language_of(subject: Subject) -> Language:
    """Returns what a kernel is written in.

    Raises:
        BadInput: neither the case nor the kernel's folder says.
    """
    try:
        return subject.language or Language(subject.kernel.parent.name)
    except ValueError as error:
        raise BadInput(f"{subject.kernel} lies in no folder called after its language: give `language`") from error


def _is_past(about: About | None) -> bool:
    return about is not None and about.past is not None


def _with(dataset: Cases, cases: list[Any]) -> Cases:
    return Dataset(
        name=dataset.name, cases=cases, evaluators=dataset.evaluators, report_evaluators=dataset.report_evaluators
    )


def _reason(error: BaseException) -> str:
    inner: BaseException = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
    inner = inner.__cause__ if isinstance(inner.__cause__, ValidationError) else inner
    if isinstance(inner, ValidationError):
        fault = _fault(inner)
        return f"{'.'.join(map(str, fault['loc']))}: {fault['msg']}"
    return " ".join(str(inner).split())


def _fault(error: ValidationError) -> ErrorDetails:
    """Returns the first fault; of a case without a kernel, that of a problem to be solved."""
    faults = error.errors()
    no_kernel = {fault["loc"][:-2] for fault in faults if fault["loc"][-2:] == (Subject.__name__, "kernel")}
    meant = (one for one in faults if any(one["loc"][: len(case) + 1] == (*case, Solve.__name__) for case in no_kernel))
    return next(meant, faults[0])
