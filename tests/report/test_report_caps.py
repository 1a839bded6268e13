"""What a run has used and what stopped it, in one line each; what is not known is never 0."""

from __future__ import annotations

import pytest

from agentgen.records.run import Cap, Capped
from agentgen.report.caps import capped_json, capped_line, spent_json, spent_line
from agentgen.store.rows import Spent

TOKENS = Capped(cap=Cap.TOKENS, limit=20_000, spent=18_734, waiting=0, next=2_100, about=False)
KNOWN = Spent(requests=3, input_tokens=1_200, output_tokens=300, cost_usd=0.0)
UNKNOWN = Spent(requests=3, input_tokens=1_200, output_tokens=None, cost_usd=None)


@pytest.mark.parametrize(
    ("capped", "line"),
    [
        (TOKENS, "stopped by --budget-tokens 20000: 18,734 spent, the next request could take 2,100"),
        (
            TOKENS.model_copy(update={"about": True, "waiting": 900}),
            "stopped by --budget-tokens 20000: about 18,734 spent, 900 could go to unanswered requests, "
            "the next request could take 2,100",
        ),
        (
            Capped(cap=Cap.USD, limit=0.5, spent=0.43217, waiting=0, next=0.125, about=False),
            "stopped by --budget-usd 0.5: 0.4322 spent, the next request could take 0.1250",
        ),
        (
            Capped(cap=Cap.MINUTES, limit=10, spent=9.84, waiting=0, next=0.52, about=False),
            "stopped by --budget-minutes 10: 9.8 spent, the next request could take 0.5",
        ),
        (
            Capped(cap=Cap.CANDIDATES, limit=4, spent=4, waiting=0, next=1, about=False),
            "stopped by --max-candidates 4: 4 kept",
        ),
    ],
)
def test_the_line_says_which_cap_and_why(capped: Capped, line: str) -> None:
    assert capped_line(capped) == line


def test_what_is_not_known_is_said_so() -> None:
    assert spent_line(KNOWN, 4, 3.14) == "spent: 1,500 tokens, 0.0000 USD, 3.1 minutes, 4 candidates"
    assert spent_line(UNKNOWN, 4, 3.14) == "spent: tokens unknown, cost unknown, 3.1 minutes, 4 candidates"
    assert (spent_json(KNOWN, 4, 3.14)["tokens"], spent_json(KNOWN, 4, 3.14)["usd"]) == (1_500, 0.0)
    unknown = spent_json(UNKNOWN, 4, 3.14)
    assert unknown["tokens"] is unknown["usd"] is unknown["output_tokens"] is None
    assert (unknown["minutes"], unknown["candidates"], unknown["input_tokens"]) == (3.14, 4, 1_200)


def test_json_names_the_cap_with_its_unit() -> None:
    assert capped_json(None) is None
    assert capped_json(TOKENS) == {
        "cap": "--budget-tokens",
        "limit": 20_000,
        "spent": 18_734,
        "waiting": 0,
        "next": 2_100,
        "about": False,
        "unit": "tokens",
    }
