"""`agentgen problems`: which there are, what one is, and taking more of them from outside."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from os.path import expanduser
from pathlib import Path

from cyclopts import App

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import ArithmeticOption, Device, Force, Json
from agentgen.cli.screen import screen
from agentgen.config import Layer, Settings
from agentgen.errors import BadInput
from agentgen.records.problem import Problem, Scalar
from agentgen.report.layout import table
from agentgen.store import foreign
from agentgen.workers.devices import find_device
from agentgen.workers.local import Inspector

REFUSED = 1

app = App(name="problems")


@app.default
@app.command(name="list")
def list_problems(*, json: Json = False) -> int:
    """List the problems."""
    settings = config.here(Layer())
    problems = [wiring.find_problem(settings, name) for name in wiring.problem_names(settings)]
    shown = table(None, "problem", "arithmetic", "own work", "recorded", "title")
    recorded = {problem.name: wiring.is_recorded(settings, problem) for problem in problems}
    for problem in problems:
        work = problem.own_work.value
        mark = "yes" if recorded[problem.name] else "no"
        shown.add_row(problem.name, problem.arithmetic.value, work, mark, problem.title)
    screen().print(shown)
    if json:
        answer({"problems": [_summary(problem, recorded[problem.name]) for problem in problems]})
    return 0


@app.command
def show(name: str, /, *, json: Json = False) -> int:
    """Show one problem with its workloads and its reference.

    Args:
        name: Name of a problem, folder of one, or a KernelBench-style file (.py).
    """
    settings = config.here(Layer())
    problem = wiring.find_problem(settings, name)
    console = screen()
    console.print(f"{problem.name}: {problem.title}")
    console.print(f"arithmetic {problem.arithmetic.value}, own work {problem.own_work.value}")
    shown = table(None, "workload", "constants", "on a CPU")
    for workload in problem.workloads:
        shown.add_row(workload.name, _constants(workload.constants), _constants(workload.constants_on("cpu")))
    for workload in problem.smaller:
        shown.add_row(workload.name, _constants(workload.constants), "only where a GPU has no room for main")
    for workload in problem.neighbours:
        on_cpu = _constants(workload.constants_on("cpu"))
        shown.add_row(f"neighbour: {workload.name}", _constants(workload.constants), on_cpu)
    console.print(shown)
    console.print(problem.reference)
    if json:
        answer(problem.model_dump(mode="json"))
    return 0


@app.command(name="import")
def take(
    path: Path,
    /,
    *,
    name: str | None = None,
    arithmetic: ArithmeticOption = None,
    device: Device = None,
    force: Force = False,
    json: Json = False,
) -> int:
    """Take problems from outside: a KernelBench-style file, or a folder of them. Ends with 1 where one was refused.

    A problem is refused when it cannot be judged: zeros, an input or a constant pass for its answer, two calls on one
    input differ, a call changes its input, or it does not run (in float64).

    Args:
        path: File or folder.
        name: Of the problem, for a single file. [default: the file's]
    """
    settings = config.here(Layer(device=device, arithmetic=arithmetic))
    files = foreign.references(Path(expanduser(path)))
    if name and len(files) > 1:
        raise BadInput(f"--name is for one problem, and {path} holds {len(files)}")
    chosen = find_device(settings.device)
    console = screen()
    found: list[Found] = []
    with Inspector(chosen) as inspector:
        for own_name, file in files:
            found.append(_take_one(settings, inspector, name or own_name, file, chosen, force=force))
            console.print(found[-1].line)
    count = sum(one.taken for one in found)
    console.print(f"{count} of {len(found)} taken into {settings.problems}")
    if json:
        answer({"device": chosen, "taken": count, "problems": [asdict(one) for one in found]})
    return 0 if count == len(found) else REFUSED


@dataclass(frozen=True, slots=True)
class Found:
    """What became of one file."""

    name: str
    file: str
    taken: bool
    reasons: tuple[str, ...]
    """Why it is refused, or would have been."""
    seconds: float | None
    """Of looking at it."""

    @property
    def line(self) -> str:
        """For a person."""
        verdict = ("forced: " if self.reasons else "taken") if self.taken else "refused: "
        return f"{self.name}: {verdict}{'; '.join(self.reasons)}"


def _take_one(settings: Settings, inspector: Inspector, name: str, file: Path, device: str, *, force: bool) -> Found:
    """Looks at one file and adds it to the catalog unless something speaks against it."""
    seconds = None
    try:
        problem = wiring.foreign_problem(settings, file, name)
        name, admission = problem.name, inspector.admit(problem, wiring.find_arithmetic(settings, problem, device))
        reasons, seconds = admission.reasons, admission.seconds
        taken = force or not reasons
        if taken:
            foreign.add(problem, settings.problems, f"taken by force: {'; '.join(reasons)}" if reasons else None)
    except BadInput as error:
        reasons, taken = (str(error),), False
    return Found(name, str(file), taken, reasons, seconds)


def _summary(problem: Problem, recorded: bool) -> dict[str, object]:
    return {
        "name": problem.name,
        "title": problem.title,
        "arithmetic": problem.arithmetic.value,
        "own_work": problem.own_work.value,
        "workloads": [workload.name for workload in problem.workloads],
        "recorded": recorded,
    }


def _constants(constants: Mapping[str, Scalar]) -> str:
    return ", ".join(f"{name} {value}" for name, value in constants.items()) or "as in the reference"
