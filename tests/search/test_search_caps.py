"""Caps: what could exceed one is not sent, what is written is evaluated, and a higher cap goes on where it was."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil

import pytest
from search_factories import Answer, ReplayJudge, ScriptedModel, make_run
from search_script import DONE, PLAN, WHOLE, script, told

from agentgen.errors import BadInput, ReplyPending
from agentgen.models.mailbox import MailboxModel
from agentgen.models.roster import Roster
from agentgen.records import events
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.run import Cap, Capped, Caps, RunStatus
from agentgen.search.caps import FIRST_REPLY_TOKENS, FRAME_TOKENS, require_prices
from agentgen.search.loop import SearchResult, run_search
from agentgen.store.ledger import Ledger, open_ledger

INPUT, OUTPUT = 3000, 20_000
EACH = INPUT + OUTPUT


class CountedModel(ScriptedModel):
    """Says of each answer what it took; a million tokens are a dollar."""

    def __init__(
        self,
        answer: Callable[[ChatRequest], Answer] = script,
        *,
        counts: bool = True,
        seconds: float | None = None,
        dearer: float | None = 1.0,
    ) -> None:
        super().__init__(answer)
        self._counts = counts
        self._seconds = seconds
        self._dearer = dearer

    async def ask(self, request: ChatRequest) -> ChatReply:
        """Implements `ChatModel`."""
        said = {"input_tokens": INPUT, "output_tokens": OUTPUT, "cost_usd": EACH / 1e6} if self._counts else {}
        return (await super().ask(request)).model_copy(update={"seconds": self._seconds, **said})

    def price_usd(self, input_tokens: int, output_tokens: int) -> float | None:
        """Implements `ChatModel`."""
        return None if self._dearer is None else (input_tokens + output_tokens) / 1e6 * self._dearer


def capped_search(
    ledger: Ledger,
    model: ScriptedModel,
    caps: Caps,
    judge: ReplayJudge | None = None,
    elapsed_s: Callable[[], float] = lambda: 0.0,
    watch: Callable[[events.Event], None] = lambda _event: None,
) -> SearchResult:
    """Starts the run with these caps, or goes on with it under them."""
    if not ledger.runs():
        ledger.create_run(make_run(PLAN))
    ledger.set_caps("run-1", caps)
    return run_search(ledger.run("run-1"), ledger, Roster.of(model), judge or ReplayJudge(), watch, elapsed_s)


def stop_of(result: SearchResult) -> Capped:
    """Returns the cap that stopped a search."""
    assert result.status is RunStatus.STOPPED
    assert result.capped is not None
    return result.capped


@pytest.fixture(scope="module")
def asked() -> list[ChatRequest]:
    """The requests of the whole run, in order: what is sent under a cap is the beginning of it."""
    model = CountedModel()
    with open_ledger("sqlite://") as ledger:
        assert capped_search(ledger, model, Caps()) == DONE
        assert told(ledger) == WHOLE
    return model.requests


def estimate(asked: list[ChatRequest], number: int) -> int:
    """Returns what a request could take when all before it are answered: a third of its bytes, the largest answer."""
    request = asked[number]
    size = len((request.system + request.prompt).encode())
    return FRAME_TOKENS + ceil(size / 3) + (OUTPUT if number else FIRST_REPLY_TOKENS)


@pytest.mark.parametrize("number", range(11))
def test_tokens_hold_back_the_request_that_could_exceed_them(
    ledger: Ledger, asked: list[ChatRequest], number: int
) -> None:
    enough = number * EACH + estimate(asked, number)
    model, judge = CountedModel(), ReplayJudge()
    seen: list[events.Event] = []
    capped = stop_of(capped_search(ledger, model, Caps(tokens=enough - 1), judge, watch=seen.append))
    assert model.requests == asked[:number]
    assert capped == Capped(
        cap=Cap.TOKENS, limit=enough - 1, spent=number * EACH, waiting=0, next=estimate(asked, number), about=False
    )
    assert ledger.run("run-1").status is RunStatus.STOPPED
    assert seen[-1] == events.RunEnded(RunStatus.STOPPED)
    assert len(ledger.exchanges("run-1")) == number, "what is not sent is not stored"
    told_of = [event.request for event in seen if isinstance(event, events.IdeasAsked | events.SourceAsked)]
    assert told_of == asked[:number], "nor told of"
    written = {row.candidate.id for row in ledger.candidates("run-1")}
    assert judge.evaluated.keys() == written, "what is written is evaluated"

    more = CountedModel()
    capped_search(ledger, more, Caps(tokens=enough))
    assert more.requests, "one token more lets it through, or one that was begun beside it"


@pytest.mark.parametrize("number", [0, 1, 4, 10])
def test_money_holds_back_the_request_that_could_exceed_it(
    ledger: Ledger, asked: list[ChatRequest], number: int
) -> None:
    enough = (number * EACH + estimate(asked, number)) / 1e6
    model = CountedModel()
    capped = stop_of(capped_search(ledger, model, Caps(usd=enough - 1e-6)))
    assert model.requests == asked[:number]
    assert (capped.cap, capped.about) == (Cap.USD, False)
    assert capped.spent == pytest.approx(number * EACH / 1e6)
    assert capped.next == pytest.approx(estimate(asked, number) / 1e6)
    more = CountedModel()
    capped_search(ledger, more, Caps(usd=enough + 1e-6))
    assert more.requests[0] == asked[number]


def test_a_run_goes_on_under_a_higher_cap_and_ends_as_if_there_had_been_none(
    ledger: Ledger, asked: list[ChatRequest]
) -> None:
    sent: list[ChatRequest] = []
    for number in range(1, 12):
        model = CountedModel()
        result = capped_search(ledger, model, Caps(tokens=number * EACH + 5_000))
        sent += model.requests
        if result == DONE:
            break
        assert ledger.spent("run-1").tokens == len(sent) * EACH <= number * EACH + 5_000
    assert sorted(request.id for request in sent) == sorted(request.id for request in asked), "each was paid once"
    assert sorted(told(ledger)) == sorted(WHOLE)
    again = CountedModel()
    assert capped_search(ledger, again, Caps(tokens=1)) == DONE, "what is done stays done under any cap"
    assert not again.requests


@pytest.mark.parametrize("most", [1, 2, 4, 7])
def test_no_more_candidates_are_kept(ledger: Ledger, most: int) -> None:
    model, judge = CountedModel(), ReplayJudge()
    capped = stop_of(capped_search(ledger, model, Caps(candidates=most), judge))
    assert len(told(ledger)) == judge.calls == most
    assert len([request for request in model.requests if request.role is not Role.IDEAS]) == most
    assert (capped.cap, capped.limit, capped.spent) == (Cap.CANDIDATES, most, most)
    more = CountedModel()
    stop_of(capped_search(ledger, more, Caps(candidates=most)))
    assert not more.requests, "those from before count"


def test_a_cap_that_the_plan_just_reaches_stops_nothing(ledger: Ledger) -> None:
    assert capped_search(ledger, CountedModel(), Caps(candidates=len(WHOLE))) == DONE
    assert sorted(told(ledger)) == sorted(WHOLE)


def test_minutes_count_what_the_longest_answer_took_and_begin_anew_when_resumed(
    ledger: Ledger, asked: list[ChatRequest]
) -> None:
    """Each answer takes 40 s of a clock that stands still else: the third would end at 2:00, the fourth at 2:40."""
    for first in (0, 3, 6, 9):
        model = CountedModel(seconds=40)
        result = capped_search(ledger, model, Caps(minutes=2.5), elapsed_s=lambda: 40.0 * len(model.requests))  # noqa: B023
        if result == DONE:
            break
        capped = stop_of(result)
        assert len(model.requests) == 3, first
        assert (capped.cap, capped.spent, capped.next) == (Cap.MINUTES, 2.0, pytest.approx(2 / 3))
    assert sorted(told(ledger)) == sorted(WHOLE)


def test_without_counts_the_texts_are_counted_and_the_line_says_about(ledger: Ledger, asked: list[ChatRequest]) -> None:
    model = CountedModel(counts=False)
    capped = stop_of(capped_search(ledger, model, Caps(tokens=20_000)))
    (first,) = model.requests
    size = len((first.system + first.prompt).encode())
    reply = ledger.exchanges("run-1")[0].reply
    assert reply is not None
    assert capped.spent == FRAME_TOKENS + ceil(size / 3) + ceil(len(reply.text.encode()) / 3)
    assert capped.about
    assert capped.next > FIRST_REPLY_TOKENS, "no answer of that role is known yet"
    assert ledger.spent("run-1").tokens is None, "the ledger keeps it as unknown"


def test_a_reply_without_a_cost_counts_at_the_list_price(ledger: Ledger) -> None:
    model = CountedModel(counts=False, dearer=10)
    capped = stop_of(capped_search(ledger, model, Caps(usd=0.2)))
    assert len(model.requests) == 1
    assert capped.about
    assert 0.02 < capped.spent < 0.2
    assert ledger.spent("run-1").cost_usd is None


def test_money_cannot_be_capped_where_no_price_is_known(tmp_path_factory: pytest.TempPathFactory) -> None:
    mailbox = MailboxModel(tmp_path_factory.mktemp("box"))
    priceless = CountedModel(dearer=None)
    require_prices(Caps(usd=1), [CountedModel(), mailbox])
    require_prices(Caps(tokens=1, minutes=1, candidates=1), [priceless])
    with pytest.raises(BadInput, match="--budget-usd cannot be kept: no price is known for scripted"):
        require_prices(Caps(usd=1), [mailbox, priceless])


def test_requests_that_wait_in_a_mailbox_count_with_all_they_could_take(ledger: Ledger) -> None:
    box: dict[str, str] = {}

    def someone(request: ChatRequest) -> Answer:
        if request.role is Role.IDEAS:
            return script(request)
        return box.get(request.id, ReplyPending("nobody answered yet"))

    caps, model = Caps(candidates=2), CountedModel(someone)
    result = capped_search(ledger, model, caps)
    assert (result.status, result.answers) == (RunStatus.WAITING, 2)
    assert result.capped is not None
    assert (result.capped.spent, result.capped.waiting, result.capped.next) == (0, 2, 1)
    for request in model.asked(Role.WRITE):
        answer = script(request)
        assert isinstance(answer, str)
        box[request.id] = answer
    capped = stop_of(capped_search(ledger, CountedModel(someone), caps))
    assert (capped.spent, capped.waiting) == (2, 0)
    assert [row[1] for row in told(ledger)] == ["Wide", "Tiles"]


def test_a_larger_share_of_tokens_than_a_third_of_the_bytes_is_learnt(ledger: Ledger, asked: list[ChatRequest]) -> None:
    class Dense(CountedModel):
        async def ask(self, request: ChatRequest) -> ChatReply:
            tokens = FRAME_TOKENS + len((request.system + request.prompt).encode())
            return (await super().ask(request)).model_copy(update={"input_tokens": tokens})

    capped = stop_of(capped_search(ledger, Dense(), Caps(tokens=40_000)))
    second = asked[1]
    assert capped.next == FRAME_TOKENS + len((second.system + second.prompt).encode()) + OUTPUT


def test_what_was_used_is_told_as_it_is_stored_and_once_more_on_resuming(ledger: Ledger) -> None:
    seen: list[events.Event] = []
    capped_search(ledger, CountedModel(), Caps(tokens=3 * EACH), watch=seen.append)
    used = [event for event in seen if isinstance(event, events.Used)]
    replies = len([exchange for exchange in ledger.exchanges("run-1") if exchange.reply])
    assert replies > 1
    assert [event.tokens for event in used] == [nth * EACH for nth in range(replies + 1)]
    assert used[-1].usd == pytest.approx(replies * EACH / 1e6)
    assert not used[-1].about
    again: list[events.Event] = []
    capped_search(ledger, CountedModel(counts=False), Caps(tokens=10**7), watch=again.append)
    counted = [event for event in again if isinstance(event, events.Used)]
    assert counted[0] == used[-1]
    assert counted[1].about == {Cap.TOKENS, Cap.USD}
    assert counted[1].tokens > counted[0].tokens


def test_a_run_without_caps_tells_of_no_use_and_each_request_has_its_end(ledger: Ledger) -> None:
    seen: list[events.Event] = []
    capped_search(ledger, CountedModel(), Caps(), watch=seen.append)
    assert not [event for event in seen if isinstance(event, events.Used)]
    sent = [event.request.id for event in seen if isinstance(event, events.RequestSent)]
    over = [event.request.id for event in seen if isinstance(event, events.RequestOver)]
    assert len(sent) == len(ledger.exchanges("run-1"))
    assert sorted(sent) == sorted(over)
