"""The notes that an implementer gets beside an idea, by its category and the kind of device."""

from __future__ import annotations

from importlib.resources import files

import pytest
from search_factories import PROBLEM, TARGET, empty_tree, make_run

from agentgen.records.candidate import Language
from agentgen.records.idea import Category, Idea
from agentgen.records.run import Plan
from agentgen.search.ideas import ideas_request
from agentgen.search.prompts import render
from agentgen.search.strategies import Growth
from agentgen.search.write import write_request

NOTES_BYTES = 4_500
"""About 1,100 tokens: what one category's notes may cost in each request for code."""
WRITE_BYTES = 16_500
"""About 4,100 tokens: a request for code with its rules, less what the problem, the idea and the parent add."""
IDEAS_BYTES = 10_500

NAMES = [f"{category.name.lower()}-{device}" for category in Category for device in ("cpu", "cuda")]
RUN = make_run(Plan(), languages=tuple(Language))


def test_each_category_has_notes_for_each_kind_of_device() -> None:
    folder = files("agentgen.search.prompts").joinpath("playbook")
    assert {entry.name for entry in folder.iterdir()} == {f"{name}.md" for name in NAMES}


@pytest.mark.parametrize("name", NAMES)
def test_notes_are_dense_and_short(name: str) -> None:
    text = render(f"playbook/{name}")
    lines = text.split("\n")
    assert 8 <= len(lines) <= 15
    assert all(line.startswith("- ") for line in lines)
    assert len(text.encode()) <= NOTES_BYTES


KINDS = [(Language.CPP, "cpu"), (Language.CUDA, "cuda"), (Language.TRITON, "cuda")]


@pytest.mark.parametrize(("language", "kind"), KINDS)
@pytest.mark.parametrize("category", Category)
def test_an_implementer_gets_the_notes_of_the_ideas_category(category: Category, language: Language, kind: str) -> None:
    idea = Idea(parent="root", category=category, title="Some idea", reasoning="For a reason.")
    request = write_request(empty_tree(RUN), TARGET, idea, language, 1, None)
    for name in NAMES:
        assert (render(f"playbook/{name}") in request.prompt) == (name == f"{category.name.lower()}-{kind}")


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_requests_stay_within_their_budget(device: str) -> None:
    run = RUN.model_copy(update={"device": device})
    tree = empty_tree(run)
    for category in Category:
        idea = Idea(parent="root", category=category, title="Some idea", reasoning="For a reason.")
        for language in Language:
            request = write_request(tree, TARGET, idea, language, 1, None)
            assert len((request.system + request.prompt).encode()) <= WRITE_BYTES + len(PROBLEM.reference)
    request = ideas_request(tree, TARGET, Growth(None, 0, 4), 1)
    assert len((request.system + request.prompt).encode()) <= IDEAS_BYTES + len(PROBLEM.reference)
