"""The way to a kernel, with its ideas, what became of them, and whose they are."""

from __future__ import annotations

import json

from search_factories import make_candidate, make_run, passed

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.idea import Category, Idea
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Plan, Run
from agentgen.records.trial import Outcome, Trial
from agentgen.search.chain import author, chain
from agentgen.search.tree import Tree
from agentgen.store.ledger import Ledger, open_ledger

FIRST, BROKEN, SECOND = (f"# {name}\nclass ModelNew: ...\n" for name in ("first", "broken", "second"))


def idea(parent: str, title: str, predicted: float | None = None) -> Idea:
    return Idea(parent=parent, category=Category.PRECISION, title=title, reasoning="why", predicted_speedup=predicted)


def say(ledger: Ledger, run: Run, role: Role, parent: str, text: str, model: str, target: str = "cpp") -> None:
    request = ChatRequest(role=role, problem="addrow", target=target, parent=parent, system="s", prompt=f"p{text}")
    ledger.add_request(run.id, request)
    ledger.add_reply(run.id, request, ChatReply(text=text, model=model))


def ideas_text(*ideas: Idea) -> str:
    kept = {"category", "title", "reasoning"}
    listed = [{**one.model_dump(mode="json", include=kept), "predicted_speedup": 9.0} for one in ideas]
    return json.dumps({"ideas": listed})


def told(source: str) -> str:
    return f"Here it is.\n```python\n{source}```\n"


def crashed(candidate: Candidate) -> Trial:
    good = passed(candidate, 1.0)
    none = {"timing": None, "speedups": (), "roofline_fraction": None, "neighbours": ()}
    return good.model_copy(update={"outcome": Outcome.CRASHED, "reasons": ("signal 11",), **none})


def test_each_step_has_its_idea_its_fate_and_its_authors() -> None:
    run = make_run(Plan())
    root = run.problem.root(Arithmetic.FP32)
    one = idea(root, "Read wider", 1.5)
    first = make_candidate(FIRST, one)
    two = idea(first.id, "Split the operands", 2.0)
    broken = Candidate(source=BROKEN, language=Language.CPP, idea=two.id, parent=first.id)
    second = Candidate(source=SECOND, language=Language.CPP, idea=two.id, parent=broken.id, repair=1)
    with open_ledger("sqlite://") as ledger:
        ledger.create_run(run)
        ledger.add_idea(run.id, 1, one)
        ledger.add_idea(run.id, 2, two)
        for candidate, trial in ((first, passed(first, 1.4)), (broken, crashed(broken)), (second, passed(second, 2.8))):
            ledger.add_candidate(run.id, 1, candidate)
            ledger.add_trial(run.id, trial)
        say(ledger, run, Role.IDEAS, root, ideas_text(one), "thinker", "cpu")
        say(ledger, run, Role.WRITE, one.id, told(FIRST), "writer")
        say(ledger, run, Role.WRITE, two.id, told(BROKEN), "writer")
        say(ledger, run, Role.REPAIR, broken.id, told(SECOND), "mender")
        tree = Tree.read(ledger, run)
        node = tree.node(second.id)
        assert node
        steps = chain(tree, node, ledger.exchanges(run.id))
    assert [step.candidate for step in steps] == [first.id, broken.id, second.id]
    assert [step.idea for step in steps] == [one, two, two]
    assert [step.repair for step in steps] == [0, 0, 1]
    assert [step.idea_by for step in steps] == ["thinker", None, None], "nobody was asked for the second idea"
    assert [step.written_by for step in steps] == ["writer", "writer", "mender"]
    assert [step.score and step.score.outcome for step in steps] == ["PASSED", "CRASHED", "PASSED"]
    fates = [step.became for step in steps]
    assert fates[0]
    assert fates[0].gain
    assert fates[0].gain.ratio == 1.4
    assert fates[2]
    assert fates[2].candidates == 2
    assert fates[2].gain
    assert abs(fates[2].gain.ratio - 2.0) < 1e-9
    assert fates[1] == fates[2]


def test_a_step_without_an_idea_has_what_its_program_changed() -> None:
    run = make_run(Plan())
    first = Candidate(source=f"# Change: wider loads\n{FIRST}", language=Language.CPP)
    with open_ledger("sqlite://") as ledger:
        ledger.create_run(run)
        ledger.add_candidate(run.id, 1, first)
        tree = Tree.read(ledger, run)
        node = tree.node(first.id)
        assert node
        (step,) = chain(tree, node, ())
    assert (step.idea, step.change) == (None, "wider loads")


def test_an_author_is_who_said_the_source_to_the_byte_in_that_language() -> None:
    run = make_run(Plan())
    one = idea(run.problem.root(Arithmetic.FP32), "Read wider")
    with open_ledger("sqlite://") as ledger:
        ledger.create_run(run)
        say(ledger, run, Role.WRITE, one.id, told(FIRST), "writer")
        exchanges = ledger.exchanges(run.id)
    assert author(make_candidate(FIRST, one), exchanges) == "writer"
    assert author(make_candidate(FIRST.replace("first", "frist"), one), exchanges) is None
    assert author(make_candidate(FIRST, one, Language.CUDA), exchanges) is None
    assert author(make_candidate(FIRST, one), ()) is None
