"""Past failures: what runs could not do, by cause, each of which can become a case of a dataset.

A kernel that was refused becomes a case to be judged: it must be refused again, for the same. A problem of which a run
has found no accepted kernel becomes one to be solved, by whatever model is asked next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentgen.models.mailbox import ANONYMOUS
from agentgen.records.candidate import SHORT_ID, Candidate
from agentgen.records.problem import Arithmetic, DeviceType
from agentgen.records.run import Run, RunStatus
from agentgen.records.trial import Depth, Outcome, Trial
from agentgen.scoring.cases import About, Past, Solve, Subject
from agentgen.scoring.causes import cause_of, failed_checks, how_wrong, plain_reason
from agentgen.scoring.promoted import Entry
from agentgen.scoring.verdicts import Verdict
from agentgen.store.ledger import Ledger

_NO_FAILURE = (Outcome.PASSED, Outcome.NOT_RUN)


@dataclass(frozen=True)
class Refused:
    """A kernel that was not accepted."""

    run: Run
    candidate: Candidate
    trial: Trial

    @property
    def cause(self) -> str:
        """Why, the same for all that fail alike."""
        trial, by = self.trial, failed_checks(self.trial, self.run.problem)
        language = self.candidate.language.value
        reason, how = plain_reason(trial.reasons), how_wrong(trial, self.run.problem)
        return cause_of(named(self.run), language, trial.outcome, by, reason, how)

    @property
    def device_type(self) -> DeviceType:
        """Where it failed."""
        return self.trial.machine.device_type


@dataclass(frozen=True)
class Unsolved:
    """A run that is over and has no accepted kernel."""

    run: Run
    trials: tuple[Trial, ...]

    @property
    def cause(self) -> str:
        """Which problem, how."""
        languages = " and ".join(language.value for language in self.run.languages)
        return f"{named(self.run)}, {languages} on {self.device_type}: unsolved"

    @property
    def device_type(self) -> DeviceType:
        """Where it was to be solved."""
        return self.run.device_type


Failure = Refused | Unsolved


def failures_of(ledger: Ledger, run: Run) -> list[Failure]:
    """Returns what a run could not do: its kernels that were refused, oldest first, then its problem."""
    trials = {trial.candidate: trial for trial in ledger.trials(run.id)}  # the latest of each
    found: list[Failure] = [
        Refused(run, row.candidate, trial)
        for row in ledger.candidates(run.id)
        if (trial := trials.get(row.candidate.id)) and trial.outcome not in _NO_FAILURE
    ]
    if _is_unsolved(ledger, run, trials.values()):
        found.append(Unsolved(run, tuple(trials.values())))
    return found


def _is_unsolved(ledger: Ledger, run: Run, trials: Iterable[Trial]) -> bool:
    """Of a run that is not over nobody knows, nor where candidates were only compiled, nor where none was tried."""
    outcomes = {trial.outcome for trial in trials}
    if run.status not in (RunStatus.DONE, RunStatus.STOPPED) or outcomes & set(_NO_FAILURE):
        return False
    answered = run.status is RunStatus.DONE and bool(ledger.answered(run.id))
    return bool(outcomes) or answered


def by_cause(failures: Iterable[Failure]) -> dict[str, list[Failure]]:
    """Returns failures by their causes, in the order in which these first came."""
    found: dict[str, list[Failure]] = {}
    for failure in failures:
        found.setdefault(failure.cause, []).append(failure)
    return found


def models_of(ledger: Ledger, run: Run, anonymous: str | None = None) -> tuple[str, ...]:
    """Returns who answered a run's requests. What the run was told may name a folder of its machine.

    Args:
        ledger: with the run.
        run: that has replies or none.
        anonymous: who gave those that name nobody.
    """
    answered = (exchange.reply.model for exchange in ledger.exchanges(run.id) if exchange.reply)
    return tuple(dict.fromkeys(anonymous or name if name == ANONYMOUS else name for name in answered))


def entry_of(failure: Failure, problem: Path, folder: Path, models: Sequence[str], *, wrongly: bool = False) -> Entry:
    """Returns the case that a failure becomes.

    Args:
        failure: of a run.
        problem: where its problem lies, relative to the dataset.
        folder: of the dataset's kernels, relative to it too.
        models: who answered.
        wrongly: the kernel is right: it must be accepted from now on.
    """
    run = failure.run
    machine = run.target.machine.device if run.target else "not known"
    past = Past(
        cause=failure.cause,
        run=run.id,
        date=run.created.date(),
        models=tuple(models),
        machine=failure.trial.machine.device if isinstance(failure, Refused) else machine,
    )
    about = About(devices=(failure.device_type,), past=past)
    if isinstance(failure, Unsolved):
        inputs = Solve(
            problem=problem,
            arithmetic=_other_arithmetic(run),
            languages=run.languages,
            strategy=run.plan.strategy,
            rounds=run.plan.rounds,
            effort=run.effort,
            caps=run.caps,
        )
        name = "/".join(["solve", named(run), failure.device_type, *(one.value for one in run.languages)])
        return Entry(name, inputs, about, Verdict(accepted=True))
    return _to_judge(failure, problem, folder, about, wrongly=wrongly)


def _to_judge(failure: Refused, problem: Path, folder: Path, about: About, *, wrongly: bool) -> Entry:
    candidate, trial, run = failure.candidate, failure.trial, failure.run
    language, short = candidate.language.value, candidate.id[:SHORT_ID]
    by = failed_checks(trial, run.problem)
    refusal = Verdict(
        accepted=False,
        outcome=trial.outcome,
        by=by,
        reasons=() if by else (plain_reason(trial.reasons),),
    )
    depth = trial.depth if trial.depth is Depth.CERTIFY else Depth.JUDGE
    return Entry(
        name=f"{named(run)}/{language}/{short}",
        inputs=Subject(
            problem=problem,
            kernel=folder / language / f"{run.problem.name}-{short}.py",
            arithmetic=_other_arithmetic(run),
            depth=depth,
        ),
        about=about,
        expected=Verdict(accepted=True) if wrongly else refusal,
        source=candidate.source,
    )


def named(run: Run) -> str:
    """Returns the problem of a run, with the arithmetic where it is not the problem's own: `conv2d in fp32`."""
    other = _other_arithmetic(run)
    return f"{run.problem.name} in {other.value}" if other else run.problem.name


def _other_arithmetic(run: Run) -> Arithmetic | None:
    return None if run.arithmetic is run.problem.arithmetic.on(run.device_type) else run.arithmetic
