"""What people see while a run goes on: a tree on a terminal, else one plain line per event.

The tree is drawn anew at each event, in the thread that tells it: no second thread reads what is just being changed,
and nothing is left running when the command ends. It shows the busy branches first, then the best ones, and is cut to
the height of the console.

Not covered: a terminal that is resized between two events is redrawn at the next one.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass, field

from rich.console import Console, RenderableType
from rich.live import Live
from rich.text import Text
from rich.tree import Tree

from agentgen.records import events
from agentgen.records.candidate import Candidate
from agentgen.records.idea import Idea
from agentgen.records.score import Score
from agentgen.report import figures
from agentgen.report.table import SHORT_ID, first_reason, outcome_style

Watch = Callable[[events.Event], None]

_ROOT = ""


@contextmanager
def watching(console: Console, title: str) -> Generator[Watch]:
    """Yields what `run_search` tells its events to; the display is closed at the end, also by an exception."""
    if not console.is_terminal:
        yield Lines(console)
        return
    picture = Picture(title)
    # Kept on the screen at the end, below it comes the table.
    with Live(console=console, auto_refresh=False, vertical_overflow="crop") as live:

        def show(event: events.Event) -> None:
            for one in _each(event):  # drawn once: for ten thousand candidates it would take minutes
                picture.take(one)
            live.update(picture.draw(console.height - 1), refresh=True)

        yield show


class Lines:
    """Prints one line per event, for logs and pipes."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._titles: dict[str, str] = {}

    def __call__(self, event: events.Event) -> None:
        """Prints what is worth a line."""
        for one in _each(event):
            text = self._line(one)
            if text:
                # soft_wrap: a line of a log is a line, however wide.
                self._console.print(Text(text), soft_wrap=True)

    def _line(self, event: events.One) -> str | None:
        match event:
            case events.RoundStarted(round=number):
                return f"round {number}"
            case events.IdeasAsked(request=request):
                return f"asking for ideas on {request.parent[:SHORT_ID]}"
            case events.IdeaProposed(idea=idea):
                self._titles[idea.id] = idea.title
                known = f"; known as: {self._titles.get(idea.same_as, idea.same_as)}" if idea.same_as else ""
                return f"idea: {idea.title} ({idea.category.value}{_predicted(idea)}){known}"
            case events.SourceAsked(request=request):
                return f"asking for {request.target} code ({request.role.value} {request.parent[:SHORT_ID]})"
            case events.CandidateWritten(candidate=candidate):
                title = self._titles.get(candidate.idea or "", figures.NOT_MEASURED)
                return f"{candidate.id[:SHORT_ID]} written in {candidate.language.value}: {title}"
            case events.StageStarted(candidate_id=candidate_id, stage=stage):
                return f"{candidate_id[:SHORT_ID]} {stage}"
            case events.TrialDone(score=score):
                return f"{score.candidate[:SHORT_ID]} {_found(score).plain}"
            case events.BranchEnded(request=request, reason=reason):
                return f"branch ended ({request.role.value}, {request.target}): {reason}"
            case events.Enough(reason=reason):
                return f"enough: {reason}"
            case events.RunWaiting(answers=answers, evaluations=evaluations):
                return waiting(answers, evaluations)
            case events.RunEnded(status=status):
                return f"run {status.value}"


@dataclass
class Picture:
    """What is known of a run so far, drawn as a tree: idea, its candidates, the ideas had on those, and so on."""

    title: str
    round: int = 0
    doing: str = ""
    ended: int = 0
    """Branches without a usable answer."""
    nodes: dict[str, Idea | Candidate] = field(default_factory=dict[str, "Idea | Candidate"])
    """By id, in the order they came, so that a parent stands before its children."""
    children: dict[str, list[str]] = field(default_factory=lambda: {_ROOT: []})
    stages: dict[str, str] = field(default_factory=dict[str, str])
    """Of candidates under evaluation."""
    scores: dict[str, Score] = field(default_factory=dict[str, Score])

    def take(self, event: events.One) -> None:
        """Adds what an event tells."""
        match event:
            case events.RoundStarted(round=number):
                self.round = number
            case events.IdeasAsked() | events.SourceAsked():
                self.doing = f"asking for {event.request.role.value} ({event.request.target})"
            case events.IdeaProposed(idea=idea):
                self._place(idea, idea.parent)
            case events.CandidateWritten(candidate=candidate):
                # A repair hangs below the candidate it repairs, a first implementation below its idea.
                self._place(candidate, (candidate.parent if candidate.repair else candidate.idea) or _ROOT)
            case events.StageStarted(candidate_id=candidate_id, stage=stage):
                self.stages[candidate_id] = stage
                self.doing = f"{candidate_id[:SHORT_ID]} {stage}"
            case events.TrialDone(score=score):
                self.stages.pop(score.candidate, None)
                self.scores[score.candidate] = score
            case events.BranchEnded():
                self.ended += 1
            case events.Enough(reason=reason):
                self.doing = reason
            case events.RunWaiting(answers=answers, evaluations=evaluations):
                self.doing = waiting(answers, evaluations)
            case events.RunEnded(status=status):
                self.doing = status.value

    def _place(self, node: Idea | Candidate, parent: str) -> None:
        """Only below what is already there: an id that comes again (a repair undone) cannot close a ring."""
        if node.id not in self.nodes:
            self.nodes[node.id] = node
            self.children[node.id] = []
            self.children[parent if parent in self.nodes else _ROOT].append(node.id)

    def draw(self, height: int) -> RenderableType:
        """Returns the tree in at most `height` rows, at least two."""
        tree = Tree(self._headline(), guide_style="dim")
        rows = height - 2  # beside the headline, and the line that counts what was left out
        interest = self._interest()
        hidden = 0
        stack = [(tree, _ROOT)]
        while stack:
            parent, node_id = stack.pop()
            branch = parent
            if node_id != _ROOT and rows > 0:
                branch = parent.add(self._label(self.nodes[node_id]))
                rows -= 1
            elif node_id != _ROOT:
                hidden += 1
            ranked = sorted(self.children[node_id], key=interest.__getitem__, reverse=True)
            stack += [(branch, child) for child in reversed(ranked)]
        if hidden:
            tree.add(_row(f"… {hidden} more", style="dim"))
        return tree

    def _headline(self) -> Text:
        ideas = sum(isinstance(node, Idea) for node in self.nodes.values())
        parts = [self.title, f"round {self.round}", f"{ideas} ideas", f"{len(self.scores)} evaluated"]
        if self.ended:
            parts.append(f"{self.ended} branches ended")
        return _row(" · ".join([*parts, self.doing] if self.doing else parts), style="bold")

    def _interest(self) -> dict[str, tuple[bool, float]]:
        """Returns, for each branch, whether it is busy and the best lower end of a speedup in it."""
        interest: dict[str, tuple[bool, float]] = {}
        for node_id in reversed(self.nodes):
            score = self.scores.get(node_id)
            accepted = 0.0 if score is not None and score.accepted else -1.0
            own = (node_id in self.stages, score.speedup.low if score and score.speedup else accepted)
            branch = [own, *(interest[child] for child in self.children[node_id])]
            interest[node_id] = (any(busy for busy, _ in branch), max(low for _, low in branch))
        return interest

    def _label(self, node: Idea | Candidate) -> Text:
        if isinstance(node, Idea):
            return _row(f"{node.title} (known)" if node.same_as else node.title, style="default")
        label = _row(f"{node.id[:SHORT_ID]} {node.language.value}", style="cyan").append(" ")
        if node.id in self.scores:
            return label.append_text(_found(self.scores[node.id]))
        return label.append(self.stages.get(node.id, "waits"), style="yellow")


def _each(event: events.Event) -> tuple[events.One, ...]:
    return event.told if isinstance(event, events.Recalled) else (event,)


def waiting(answers: int, evaluations: int) -> str:
    """Returns what a run waits for."""
    parts: list[str] = []
    if answers:
        parts.append(f"{answers} {'answer' if answers == 1 else 'answers'}")
    if evaluations:
        parts.append(f"{evaluations} {'evaluation' if evaluations == 1 else 'evaluations'} on the run's device")
    return f"waiting for {' and '.join(parts)}"


def _predicted(idea: Idea) -> str:
    return f", predicted {idea.predicted_speedup:.2g}×" if idea.predicted_speedup else ""


def _found(score: Score) -> Text:
    text = Text(score.outcome.value, style=outcome_style(score.outcome))
    if score.median_us is not None:
        text.append(f" {figures.time(score.median_us)}, {figures.speedup(score.speedup)}", style="default")
    elif score.reason:
        text.append(f" {first_reason([score.reason])}", style="default")
    elif score.accepted:
        text.append(" not timed", style="default")
    return text


def _row(text: str, style: str) -> Text:
    """Returns a text that takes one row however narrow the console: the height is counted in rows."""
    return Text(" ".join(text.split()), style=style, no_wrap=True, overflow="ellipsis")
