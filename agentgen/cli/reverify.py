"""`agentgen reverify`: everything the judge can do, before a kernel is shown around; and again, where it already is."""

from __future__ import annotations

from datetime import UTC, datetime
from os.path import expanduser
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.kernel import REJECTED, Asked, Judged, Subject, evaluate, judged, told
from agentgen.cli.options import ArithmeticOption, Display, DisplayName, Json, KernelDevice, LanguageOption, Sandbox
from agentgen.cli.screen import screen
from agentgen.config import Layer, Settings
from agentgen.errors import BadInput, StoreUnavailable
from agentgen.records.candidate import SHORT_ID
from agentgen.records.entry import Finding, Reverified
from agentgen.records.problem import Problem
from agentgen.records.run import Effort, Run
from agentgen.records.trial import Depth
from agentgen.report.plain import plain
from agentgen.report.solution import read
from agentgen.report.table import best
from agentgen.scoring.again import MORE_GOES, found, suspect
from agentgen.search.tree import Tree
from agentgen.store import entries
from agentgen.store.entries import Kept
from agentgen.workers.devices import device_type, find_device

UNUSABLE = 2
EXIT = {
    Finding.SAME: 0,
    Finding.FASTER: 0,
    Finding.SLOWER: REJECTED,
    Finding.WRONG: REJECTED,
    Finding.ELSEWHERE: UNUSABLE,
    Finding.UNTIMED: UNUSABLE,
}


def reverify(
    *paths: Annotated[
        str,
        Parameter(
            name="PATHS",
            help="An ENTRY's folder, to be compared; a RUN, whose best kernel is meant; or as for verify.",
        ),
    ],
    reference: Path | None = None,
    device: KernelDevice = None,
    language: LanguageOption = None,
    arithmetic: ArithmeticOption = None,
    sandbox: Sandbox = None,
    display: Display = None,
    json: Json = False,
) -> int:
    """Certify one kernel: as bench, then memory and race checkers, a hundred draws, a second measurement.

    An entry of the leaderboard is certified from nothing but its folder, and compared: exit 0 same or faster, 1 slower
    beyond chance or wrong, 2 cannot be compared.

    Args:
        reference: KernelBench-style file that states the problem.
    """
    layer = Layer(device=device, arithmetic=arithmetic, sandbox=sandbox)
    asked = certificate(layer, display, paths, reference, language)
    if len(paths) != 1 or reference:
        return evaluate(asked, as_json=json)
    folder = Path(expanduser(paths[0]))
    if not entries.is_entry(folder):
        subject, run, settings = subject_of(paths[0], None, layer)
        result = judged(subject, asked)
        keep(settings, run, result)
        return told(subject, result.trial, as_json=json)
    if language or arithmetic:
        raise BadInput("an entry says itself what it is: leave --language and --arithmetic out")
    return _again(entries.read(folder), asked, as_json=json)


def certificate(
    layer: Layer,
    display: DisplayName | None,
    paths: tuple[str, ...] = (),
    reference: Path | None = None,
    language: str | None = None,
) -> Asked:
    """Returns what is asked of a kernel that is to be certified."""
    return Asked(paths, reference, layer, language, Effort.FULL, timing=True, display=display, depth=Depth.CERTIFY)


def subject_of(given: str, candidate: str | None, layer: Layer) -> tuple[Subject, Run, Settings]:
    """Returns a kernel of a run, ready to be judged, the run, and settings that find its files.

    Args:
        given: names the run.
        candidate: the beginning of its id; None for the best one.
        layer: device and arithmetic.

    Raises:
        BadInput: there is no such run or kernel.
    """
    settings = config.here(layer)
    with wiring.ledger(settings) as ledger:
        run, settings = wiring.find_run(settings, ledger, given)
        tree = Tree.read(ledger, run)
        top = best(read(ledger, run.id).evaluated) if candidate is None else None
    if candidate is None:
        if top is None:
            raise BadInput(f"run {run.id} has no ranked kernel; give PROBLEM and CANDIDATE")
        candidate = top.candidate
    named = [node.candidate for node in tree.nodes if candidate and node.candidate.id.startswith(candidate)]
    if len(named) != 1:
        known = ", ".join(one.id[:SHORT_ID] for one in named) or "none"
        raise BadInput(f"one candidate of run {run.id} is wanted, and {candidate!r} begins the id of {known}")
    device = find_device(layer.device) if layer.device else run.device.split(",")[0]
    arithmetic = wiring.find_arithmetic(settings, run.problem, device) if layer.arithmetic else run.arithmetic
    title = f"{named[0].id[:SHORT_ID]} of run {run.id}"
    return Subject(title, run.problem, named[0], device, arithmetic), run, settings


def keep(settings: Settings, run: Run, result: Judged) -> None:
    """Keeps in its run what a certificate says otherwise than the run does: that a kernel is refused, and can be
    promoted (`agentgen failures`), or that it is not any more; then of its races those with the run's own baselines,
    for kernels of a run are ranked by these. Else the run's own trial stands. Kept is what was found as the run judges:
    in its arithmetic, at its workload, on its machine."""
    trial, target = result.trial, run.target
    here = trial.arithmetic, result.workload, trial.machine.id
    if target is None or here != (run.arithmetic, target.workload, target.machine.id):
        return
    console, added = screen(), False
    raced = tuple(one for one in trial.speedups if one.baseline in target.baselines_us)
    try:
        with wiring.ledger(settings) as ledger:
            before = ledger.trial(run.id, trial.candidate)
            if before and before.accepted != trial.accepted:
                with wiring.packed(settings, ledger, run):
                    added = ledger.add_trial(run.id, trial.model_copy(update={"speedups": raced}))
                console.print(f"kept in run {run.id}: {before.outcome.value} -> {trial.outcome.value}")
    except StoreUnavailable as error:  # what was found is told still
        where = "the folder of " if added else ""
        console.print(f"what was found is not kept in {where}run {run.id}: {plain(str(error))}", style="yellow")


def require_unchanged(problem: Problem, layer: Layer) -> None:
    """Raises BadInput where a problem is not, or not any more, what the catalog has under its name."""
    known = wiring.find_problem(config.here(layer), problem.name)
    if differing := entries.differences(problem, known):
        raise BadInput(
            f"the problem {problem.name} is another one in the catalog ({', '.join(differing)} differ): its kernels "
            "cannot be compared"
        )


def _again(kept: Kept, asked: Asked, *, as_json: bool) -> int:
    """Judges an entry again, notes what it came to, and returns the exit code."""
    entry, console = kept.entry, screen(asked.display)
    require_unchanged(entry.problem, asked.layer)
    kind = entry.trial.machine.device_type
    device = find_device(asked.layer.device or ("cpu" if kind == "cpu" else "cuda:0"))
    if device_type(device) != kind:
        raise BadInput(f"the entry is one for {entry.trial.machine.device}: it cannot be judged on {device}")
    title = f"{entry.id[:SHORT_ID]} of the leaderboard"
    subject = Subject(title, entry.problem, entry.candidate, device, entry.trial.arithmetic)
    first = judged(subject, asked)
    trials = [first.trial]
    if first.workload == entry.problem.main.name and suspect(entry, first.trial):
        console.meanwhile.print(
            f"it looks slower: {MORE_GOES} more certificates, each by a judge of its own, are to tell"
        )
        trials += [judged(subject, asked).trial for _ in range(MORE_GOES)]
    result = found(entry, trials, first.workload, datetime.now(UTC))
    console.print(f"{result.finding.value}: {plain(result.words)}")
    try:
        entries.note(kept.folder, result)
    except StoreUnavailable as error:
        console.print(f"what was found is not noted: {plain(str(error))}", style="yellow")
    if as_json:
        answer(_json(kept, result))
    return EXIT[result.finding]


def _json(kept: Kept, result: Reverified) -> dict[str, object]:
    trial = kept.entry.trial
    return {
        "verdict": result.finding.value,
        "entry": str(kept.folder),
        "kernel": kept.entry.id,
        "problem": trial.problem,
        "arithmetic": trial.arithmetic.value,
        "device": trial.machine.device,
        "certified": {
            "date": kept.entry.origin.certified.isoformat(),
            "median_us": trial.timing.median_us if trial.timing else None,
            "speedup": trial.speedup.model_dump(mode="json") if trial.speedup else None,
        },
        "now": result.model_dump(mode="json", exclude={"finding"}),
    }
