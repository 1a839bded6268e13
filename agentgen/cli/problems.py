"""`agentgen problems`: which there are, and what one is."""

from __future__ import annotations

from collections.abc import Mapping

from cyclopts import App

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import Json
from agentgen.cli.screen import screen
from agentgen.config import Layer
from agentgen.records.problem import Problem, Scalar
from agentgen.report.layout import table

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
    console.print(shown)
    console.print(problem.reference)
    if json:
        answer(problem.model_dump(mode="json"))
    return 0


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
