"""`agentgen failures`: what runs could not do, by cause; kept as cases of a dataset, and made small."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.kernel import read_source
from agentgen.cli.options import Device, Json, Sandbox, Whole
from agentgen.cli.screen import screen
from agentgen.config import Layer, Settings
from agentgen.errors import BadInput
from agentgen.records.candidate import SHORT_ID, Candidate
from agentgen.records.problem import Problem
from agentgen.records.run import Effort, Run
from agentgen.records.trial import Trial
from agentgen.report.failures import causes_json, causes_table
from agentgen.scoring import cases
from agentgen.scoring.cases import Subject, language_of
from agentgen.scoring.failures import Failure, Refused, Unsolved, by_cause, entry_of, failures_of, models_of
from agentgen.scoring.promoted import Entry, Keys, known, problems_of, put, replace
from agentgen.scoring.shrinking import shrink_failure
from agentgen.scoring.verdicts import Verdict
from agentgen.workers.devices import device_type, find_device

PAST = Path("evals/past_failures.yaml")
NOTHING_SMALLER = 1

app = App(name="failures")
Flag = Annotated[bool, Parameter(negative="", show_default=False)]


@app.default
@app.command(name="list")
def list_failures(
    *,
    run: Annotated[tuple[str, ...], Parameter(negative="", help="Id or folder of a run; repeatable.")] = (),
    dataset: Path = PAST,
    json: Json = False,
) -> int:
    """List the kernels that were refused and the problems that stayed unsolved, by cause.

    Args:
        run: [default: all of the store]
        dataset: Where promoted ones are.
    """
    settings = config.here(Layer())
    promoted = known(dataset)
    with wiring.ledger(settings) as ledger:
        runs = [wiring.find_run(settings, ledger, given)[0] for given in run] if run else ledger.runs()
        causes = by_cause(failure for one in runs for failure in failures_of(ledger, one))
    screen().print(causes_table(causes, promoted))
    if json:
        answer({"runs": len(runs), "causes": causes_json(causes, promoted)})
    return 0


@app.command
def promote(
    run: str,
    /,
    *candidate: str,
    all: Flag = False,
    wrongly_refused: Flag = False,
    model: str | None = None,
    to: Path = PAST,
    json: Json = False,
) -> int:
    """Keep failures of a run as cases: a refused kernel must be refused again for the same; a run without any accepted
    kernel is a problem for other models to solve.

    Args:
        run: Id or folder of a run.
        candidate: First digits of a candidate's id, repeatable. None, without --all: the unsolved problem.
        all: One failure of each cause that the dataset has not.
        wrongly_refused: The judge was wrong: the candidates must be accepted from now on.
        model: Who answered in the mailbox, where the replies do not say.
        to: The dataset; kernels lie in a folder of its name beside it.
    """
    settings, console = config.here(Layer()), screen()
    if all and (candidate or wrongly_refused):
        raise BadInput("--all chooses by itself: give no candidates, nor --wrongly-refused, beside it")
    if wrongly_refused and not candidate:
        raise BadInput("--wrongly-refused needs the candidates that were refused in error")
    promoted = known(to)
    with wiring.ledger(settings) as ledger:
        found, _ = wiring.find_run(settings, ledger, run)
        failures = failures_of(ledger, found)
        models = models_of(ledger, found, model)
    chosen = failures if all else _chosen(found, failures, candidate)
    home = _problem(settings, found.problem, to)
    problem = Path(os.path.relpath(home, to.parent.resolve()))
    made = [entry_of(failure, problem, Path(to.stem), models, wrongly=wrongly_refused) for failure in chosen]
    entries = _new(made, promoted, strict=not all)
    put(to, entries, None if found.problem.name in wiring.problem_names(settings) else found.problem)
    for entry in entries:
        console.print(f"{entry.name}: {entry.key[0]}")
    console.print(f"{len(entries)} of {len(chosen)} failures promoted to {to}")
    if json:
        answer({"run": found.id, "failures": len(chosen), "promoted": [entry.name for entry in entries]})
    return 0


@app.command
def shrink(
    case: str,
    /,
    *,
    dataset: Path = PAST,
    tries: Annotated[Whole, Parameter(help="How often the judge may be asked.")] = 200,
    minutes: Annotated[float, Parameter(help="How long these tries may take.")] = 10.0,
    device: Device = None,
    sandbox: Sandbox = None,
    json: Json = False,
) -> int:
    """Leave out of a past failure's kernel what its failure does not need. The kernel as it came stays beside it, as
    NAME.original.py. Ends with 1 where nothing smaller fails the same way.

    Another fault that shows in the same words takes the place of the first: look at what is left.

    Args:
        case: Name of a case.
        dataset: Where it is.
    """
    if tries < 1 or not minutes > 0:
        raise BadInput("--tries and --minutes have to be above 0: without a try nothing becomes smaller")
    settings = config.here(Layer(device=device, sandbox=sandbox))
    subject, wanted = _to_shrink(dataset, case)
    path, language = dataset.parent / subject.kernel, language_of(subject)
    place = find_device(settings.device, (language,))
    problem = wiring.find_problem(settings, str((dataset.parent / subject.problem).resolve()))
    source = read_source(path)
    start_s = time.monotonic()
    arithmetic = (subject.arithmetic or problem.arithmetic).on(device_type(place))
    with wiring.judge(settings, problem, place, arithmetic, Effort.QUICK) as judge:

        def ask(text: str, timing: bool) -> Trial:
            return judge.evaluate(Candidate(source=text, language=language), timing=timing, depth=subject.depth)

        small = shrink_failure(source, ask, wanted, tries=tries, minutes=minutes)
    if small is None:
        raise BadInput(f"on {place} {case} does not fail as it should: agentgen eval {dataset} --only {case} says how")
    if small.source != source:
        replace(path, small.source)
    lines = [len(text.splitlines()) for text in (source, small.source)]
    seconds = time.monotonic() - start_s
    ended = "no line more can go" if small.finished else "a limit ended it"
    screen().print(f"{path}: {lines[0]} lines, now {lines[1]}; {small.tries} tries in {seconds:.0f} s, {ended}")
    if json:
        answer({"case": case, "lines": lines, "tries": small.tries, "seconds": seconds, "finished": small.finished})
    return 0 if small.source != source else NOTHING_SMALLER


def _to_shrink(dataset: Path, name: str) -> tuple[Subject, Verdict]:
    """Returns a kernel that is to be refused, and the verdict that is due."""
    found = next((case for case in cases.kernels(cases.load(dataset)) if case.name == name), None)
    if found is None:
        raise BadInput(f"{dataset} has no kernel {name}")
    if found.expected_output is None or found.expected_output.accepted:
        raise BadInput(f"{name} is to be accepted: only what fails can be shrunk")
    return found.inputs, found.expected_output


def _chosen(run: Run, failures: Sequence[Failure], given: Sequence[str]) -> list[Failure]:
    """Returns the failures that a command line names."""
    refused = [failure for failure in failures if isinstance(failure, Refused)]
    if not given:
        unsolved: list[Failure] = [failure for failure in failures if isinstance(failure, Unsolved)]
        if not unsolved:
            names = ", ".join(failure.candidate.id[:SHORT_ID] for failure in refused[:8]) or "none"
            raise BadInput(f"run {run.id} is not unsolved: give --all or a refused candidate ({names})")
        return unsolved
    chosen: list[Failure] = []
    for digits in given:
        named = [failure for failure in refused if failure.candidate.id.startswith(digits)]
        if len(named) != 1:
            raise BadInput(f"run {run.id} has {len(named)} refused candidates {digits}…")
        chosen += named
    return chosen


def _new(made: Sequence[Entry], promoted: Keys, *, strict: bool) -> list[Entry]:
    """Returns the cases that a dataset lacks: one of each cause, and none of a kernel that it has.

    Raises:
        BadInput: it lacks not all of them, and `strict`.
    """
    there, new = dict(promoted), list[Entry]()
    for entry in made:
        first = entry.name if entry.name in there.values() else there.get(entry.key)
        if first is None:
            there[entry.key] = entry.name
            new.append(entry)
        elif strict and entry.key not in there:
            raise BadInput(f"{first} is there already, with another verdict that is due: take that case out first")
        elif strict:
            raise BadInput(f"{entry.name} adds nothing: {first} is there, of the same cause ({entry.key[0]})")
    return new


def _problem(settings: Settings, problem: Problem, to: Path) -> Path:
    """Returns the folder of a run's problem; one from outside is to be kept beside the dataset.

    Raises:
        BadInput: it is not there any more as the run knew it.
    """
    folder = settings.problems.resolve() / problem.name
    if problem.name not in wiring.problem_names(settings):
        if problem.neighbours or problem.smaller or any(workload.constants for workload in problem.workloads):
            raise BadInput(
                f"{settings.problems} has no problem {problem.name}, which has workloads that a file of its own cannot "
                "say: add its folder there"
            )
        return problems_of(to) / problem.name
    if wiring.find_problem(settings, str(folder)).reference != problem.reference:
        raise BadInput(f"{folder} is not the problem any more that the run was for: its reference has changed")
    return folder
