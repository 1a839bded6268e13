"""A run in plain lines, for logs and pipes: one for each event that is worth it."""

from __future__ import annotations

from rich.console import Console
from rich.text import Text

from agentgen.records import events
from agentgen.records.candidate import SHORT_ID
from agentgen.records.idea import Idea
from agentgen.report import figures
from agentgen.report.live.tree import found
from agentgen.report.plain import plain


class Lines:
    """Prints what it is told."""

    def __init__(self, console: Console) -> None:
        """Takes where to print."""
        self._console = console
        self._titles: dict[str, str] = {}

    def __call__(self, event: events.Event) -> None:
        """Prints what is worth a line."""
        for one in each(event):
            if text := self._line(one) or self._told(one):
                # soft_wrap: a line of a log is a line, however wide.
                self._console.print(Text(plain(text)), soft_wrap=True)

    def _line(self, event: events.One) -> str | None:
        """Returns what is said of an idea or a candidate."""
        match event:
            case events.IdeaProposed(idea=idea):
                self._titles[idea.id] = plain(idea.title)
                known = f"; known as: {self._titles.get(idea.same_as, idea.same_as)}" if idea.same_as else ""
                return f"idea: {self._titles[idea.id]} ({idea.category.value}{_predicted(idea)}){known}"
            case events.CandidateWritten(candidate=candidate):
                title = self._titles.get(candidate.idea or "") or plain(candidate.change or figures.NOT_MEASURED)
                return f"{candidate.id[:SHORT_ID]} written in {candidate.language.value}: {title}"
            case events.StageStarted(candidate_id=candidate_id, stage=stage):
                return f"{candidate_id[:SHORT_ID]} {stage}"
            case events.TrialDone(score=score):
                return f"{score.candidate[:SHORT_ID]} {found(score).plain}"
            case _:
                return None

    def _told(self, event: events.One) -> str | None:
        """Returns what is said of requests and of the run as a whole."""
        match event:
            case events.JudgeStarting():
                return "the judge starts: it looks at the device and times the baselines"
            case events.RoundStarted(round=number):
                return f"round {number}"
            case events.IdeasAsked(request=request):
                return f"asking for ideas on {request.parent[:SHORT_ID]}"
            case events.SourceAsked(request=request):
                return f"asking for {request.target} code ({request.role.value} {request.parent[:SHORT_ID]})"
            case events.BranchEnded(request=request, reason=reason):
                return f"branch ended ({request.role.value}, {request.target}): {reason}"
            case events.Enough(reason=reason):
                return f"enough: {reason}"
            case events.RunWaiting(answers=answers, evaluations=evaluations):
                return waiting(answers, evaluations)
            case events.AnswersAwaited(folders=folders):
                return awaited(folders)
            case events.RunEnded(status=status):
                return f"run {status.value}"
            case _:  # what moves a clock or a sum
                return None


def each(event: events.Event) -> tuple[events.One, ...]:
    """Returns what an event tells."""
    return event.told if isinstance(event, events.Recalled) else (event,)


def waiting(answers: int, evaluations: int) -> str:
    """Returns what a run waits for."""
    parts: list[str] = []
    if answers:
        parts.append(f"{answers} {'answer' if answers == 1 else 'answers'}")
    if evaluations:
        parts.append(f"{evaluations} {'evaluation' if evaluations == 1 else 'evaluations'} on the run's device")
    return f"waiting for {' and '.join(parts)}"


def awaited(folders: tuple[str, ...]) -> str:
    """Returns where answers are waited for."""
    return f"waiting for answers in {', '.join(folders)}"


def _predicted(idea: Idea) -> str:
    return f", predicted {idea.predicted_speedup:.2g}×" if idea.predicted_speedup else ""
