"""What a search tells in a short run."""

from __future__ import annotations

from report_records import candidate, failed, idea, passed

from agentgen.records import events
from agentgen.records.chat import ChatRequest, Role
from agentgen.records.idea import Idea
from agentgen.records.score import Score
from agentgen.records.trial import Outcome, Trial

TILE = idea("Tile the [bold]output[/bold]")
PACK = idea("Pack the weights")
FIRST = candidate("first", TILE)
BROKEN = candidate("broken", PACK)
MENDED = candidate("mended", PACK, parent=BROKEN.id, repair=1)
DEEPER = idea("Prefetch", parent=FIRST.id)
REQUEST = ChatRequest(role=Role.WRITE, problem="conv2d", target="cpp", parent=TILE.id, system="s", prompt="p")


def done(round: int, trial: Trial) -> events.TrialDone:
    """Returns what is told of a trial."""
    return events.TrialDone(round, Score.of(trial))


STORY: tuple[events.One, ...] = (
    events.RoundStarted(1),
    events.IdeasAsked(1, REQUEST),
    events.IdeaProposed(1, TILE),
    events.IdeaProposed(1, PACK),
    events.SourceAsked(1, REQUEST),
    events.CandidateWritten(1, FIRST),
    events.CandidateWritten(1, BROKEN),
    events.BranchEnded(REQUEST, "nothing is recorded"),
    events.StageStarted(FIRST.id, "build"),
    done(1, passed(FIRST, 1.4, 1.35, 1.45)),
    done(1, failed(BROKEN, Outcome.BUILD_FAILED, "line 3")),
    events.CandidateWritten(1, MENDED),
    events.StageStarted(MENDED.id, "check"),
    events.RoundStarted(2),
    events.IdeaProposed(2, DEEPER),
)

ESCAPES = "\x1b[2J\x1b]0;owned\x07 \u202eback\u200b [red]loud[/red] {0}\r\n\tsecond \x9b1A " + "long " * 200_000
"""A megabyte that would clear the screen, set the title, turn writing round, colour it and go on in other lines."""
_HOSTILE_IDEA = Idea.model_construct(
    parent="root", category=PACK.category, title=ESCAPES, reasoning="r", predicted_speedup=None, same_as=None
)
_HOSTILE = candidate("hostile", _HOSTILE_IDEA)
_HOSTILE_REQUEST = ChatRequest(
    role=Role.WRITE, problem="p", target=ESCAPES[:40], parent=ESCAPES[:30], system="s", prompt="p"
)
HOSTILE: tuple[events.One, ...] = (
    events.IdeaProposed(1, _HOSTILE_IDEA),
    events.IdeaProposed(1, idea("known").model_copy(update={"same_as": ESCAPES[:20]})),
    events.SourceAsked(1, _HOSTILE_REQUEST),
    events.RequestSent(_HOSTILE_REQUEST),
    events.CandidateWritten(1, _HOSTILE),
    events.StageStarted(_HOSTILE.id, ESCAPES),
    done(1, failed(candidate("other", _HOSTILE_IDEA), Outcome.CRASHED, ESCAPES)),
    done(1, failed(_HOSTILE, Outcome.CRASHED, ESCAPES)),
    events.BranchEnded(_HOSTILE_REQUEST, ESCAPES),
    events.AnswersAwaited((ESCAPES,)),
    events.Enough(ESCAPES),
)
