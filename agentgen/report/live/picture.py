"""The picture of a run: where it stands in a few rows, and below them its tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from rich.text import Text

from agentgen.records import events
from agentgen.records.candidate import SHORT_ID, Candidate
from agentgen.records.run import Caps
from agentgen.records.score import Score
from agentgen.report import figures
from agentgen.report.caps import against
from agentgen.report.live.lines import awaited, each, waiting
from agentgen.report.live.tree import WAITS, LiveTree, row
from agentgen.report.plain import plain

WAITING_FOR_DEVICE: Final = "wait for the device"


class Picture:
    """What is known of a run. Times are seconds of the monotonic clock."""

    def __init__(self, title: str, caps: Caps, start_s: float) -> None:
        """Takes what stands above, the caps of the run, and when the command began."""
        self._title = plain(title)
        self._caps = caps
        self._start_s = start_s
        self._round = 0
        self._last = ""
        """What was last said of the run as a whole."""
        self._judge_s: float | None = None
        """Since when the judge is starting."""
        self._asked: dict[str, tuple[str, float]] = {}
        """What models are at work on, by request, since when."""
        self._used: events.Used | None = None
        self._ideas: set[str] = set()
        self._ended: set[str] = set()
        """Requests without a usable answer."""
        self._candidates: dict[str, Candidate] = {}
        self._accepted: set[str] = set()
        self._rejected: set[str] = set()
        self._not_run: set[str] = set()
        self._best: Score | None = None
        self._tree = LiveTree()

    def take(self, event: events.Event, now_s: float) -> None:
        """Adds what is told; what was told before changes nothing."""
        for one in each(event):
            self._take(one, now_s)

    def draw(self, width: int, height: int, now_s: float) -> Text:
        """Returns at most so many rows; each is cut at the right where it is drawn."""
        status = self._status(now_s)
        # By what one would miss first, where the window is low.
        count = min(len(status), max(1, height // 2))
        kept = sorted(sorted(range(len(status)), key=lambda nth: status[nth][0])[:count])
        rows = [status[nth][1] for nth in kept][: max(height, 0)]
        return Text("\n", no_wrap=True, overflow="ellipsis").join(
            [*rows, *self._tree.rows(height - len(rows), width, now_s)]
        )

    def _take(self, event: events.One, now_s: float) -> None:
        match event:
            case events.JudgeStarting():
                self._judge_s = now_s
            case events.JudgeReady():
                self._judge_s = None
            case events.RequestSent(request=request):
                self._asked[request.id] = (request.role.value, now_s)
            case events.RequestOver(request=request):
                self._asked.pop(request.id, None)
            case events.Used():
                self._used = event
            case events.StageStarted(candidate_id=candidate_id, stage=stage):
                self._tree.begin(candidate_id, WAITING_FOR_DEVICE if stage == WAITS else plain(stage), now_s)
            case _:
                self._grow(event, now_s)

    def _grow(self, event: events.One, now_s: float) -> None:
        match event:
            case events.IdeaProposed(idea=idea):
                self._ideas.add(idea.id)
                self._tree.add_idea(idea)
            case events.CandidateWritten(candidate=candidate):
                self._candidates[candidate.id] = candidate
                self._tree.add_candidate(candidate, now_s)
            case events.TrialDone(score=score):
                kind = self._accepted if score.accepted else self._rejected if score.failed else self._not_run
                kind.add(score.candidate)
                self._tree.end(score)
                best = self._best.speedup.low if self._best and self._best.speedup else 0.0
                if score.accepted and score.speedup and score.speedup.low > best:
                    self._best = score
            case events.BranchEnded(request=request):
                self._ended.add(request.id)
            case _:
                self._hear(event)

    def _hear(self, event: events.One) -> None:
        """Takes what is said of the run as a whole."""
        match event:
            case events.RoundStarted(round=number):
                self._round, self._last = number, ""
            case events.Enough(reason=reason):
                self._last = plain(reason)
            case events.RunWaiting(answers=answers, evaluations=evaluations):
                self._last = waiting(answers, evaluations)
            case events.AnswersAwaited(folders=folders):
                self._last = plain(awaited(folders))
            case events.RunEnded(status=status):
                self._last = self._last or status.value
                self._judge_s = None
                self._asked.clear()
                self._tree.halt()
            case _:
                pass

    def _status(self, now_s: float) -> list[tuple[int, Text]]:
        """Returns the rows above the tree in their order, and how much each matters; 0 the most."""
        head = [self._title, figures.clock(now_s - self._start_s), *([f"round {self._round}"] if self._round else [])]
        rows = [(0, row(" · ".join(head), "bold")), (4, row(self._counted()))]
        if doing := self._doing(now_s):
            rows.append((1, row(doing, "yellow")))
        if caps := against(self._caps, self._used, len(self._candidates), (now_s - self._start_s) / 60):
            rows.append((3, row(caps)))
        return [*rows, (2, row(self._leader(), "green" if self._best else "default"))]

    def _counted(self) -> str:
        not_run = f", {len(self._not_run)} not run" if self._not_run else ""
        ended = f" · {_number(len(self._ended), 'branch', 'branches')} ended" if self._ended else ""
        made = f"{_number(len(self._ideas), 'idea')} · {_number(len(self._candidates), 'candidate')}"
        return f"{made} · {len(self._accepted)} accepted, {len(self._rejected)} rejected{not_run}{ended}"

    def _doing(self, now_s: float) -> str:
        """Returns how many things are under way of each kind, and for how long the first of them is."""
        if self._judge_s is not None:
            since = figures.clock(now_s - self._judge_s)
            return f"the judge starts {since}: it looks at the device and times the baselines"
        asked = _queues(self._asked.values(), now_s)
        judged = _queues(self._tree.stages, now_s)
        parts = [f"asked: {asked}" if asked else "", f"judged: {judged}" if judged else "", self._last]
        return " · ".join(part for part in parts if part)

    def _leader(self) -> str:
        best = self._best
        if best is None or best.speedup is None:
            return "best: none yet"
        roofline = f", {figures.percent(best.roofline_fraction)} of the roofline" if best.roofline_fraction else ""
        language = self._candidates[best.candidate].language.value if best.candidate in self._candidates else ""
        name = f"best: {best.candidate[:SHORT_ID]} {language} {figures.time(best.median_us)}"
        return f"{name}, {figures.speedup(best.speedup)} against {plain(best.speedup.baseline)}{roofline}"


def _queues(steps: Iterable[tuple[str, float]], now_s: float) -> str:
    """Returns for example `2 write 1:10 min, 1 ideas 12 s`: how many of a kind, and since when the longest."""
    begun: defaultdict[str, list[float]] = defaultdict(list)
    for name, since_s in steps:
        begun[name].append(since_s)
    return ", ".join(f"{len(since)} {name} {figures.clock(now_s - min(since))}" for name, since in begun.items())


def _number(count: int, one: str, more: str = "") -> str:
    return f"{count} {one if count == 1 else more or f'{one}s'}"
