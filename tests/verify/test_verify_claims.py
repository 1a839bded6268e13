"""A guest's answers are claims: nonsense is refused before anything reads it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agentgen.records.trial import Outcome
from agentgen.verify.claims import Claim, FailureClaim

STATE = {"name": "w", "shape": [2, 3], "dtype": "float32", "digest": "00"}
NONSENSE: dict[str, dict[str, Any]] = {
    "empty": {},
    "ok of text": {"ok": "perhaps"},
    "failure of text": {"ok": False, "failure": "it failed"},
    "failure without a kind": {"ok": False, "failure": {"message": "it failed"}},
    "a novel": {"ok": False, "failure": {"kind": "crash", "message": "x" * 20_001}},
    "state of text": {"ok": True, "state": "w"},
    "shape of text": {"ok": True, "state": [{**STATE, "shape": ["two"]}]},
    "shape of halves": {"ok": True, "state": [{**STATE, "shape": [1.5]}]},
    "too many dimensions": {"ok": True, "state": [{**STATE, "shape": [1] * 17}]},
    "too many tensors": {"ok": True, "state": [STATE] * 10_001},
    "seconds of text": {"ok": True, "seconds": "fast"},
    "negative seconds": {"ok": True, "seconds": -1.0},
    "seconds that agree with every clock": {"ok": True, "seconds": float("nan")},
    "endless seconds": {"ok": True, "seconds": float("inf")},
    "builds with more than a build": {"ok": True, "builds": [{"kernel": "k", "speed": "fast"}]},
    "builds of numbers": {"ok": True, "builds": [1, 2]},
    "counts of text": {"ok": True, "dispatched": {"aten.mm": "none"}},
    "no unicode": {"ok": False, "failure": {"kind": "crash", "message": "\ud800"}},
}


@pytest.mark.parametrize("answer", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_is_refused(answer: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Claim.model_validate(json.loads(json.dumps(answer)))


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(st.dictionaries(st.sampled_from([*Claim.model_fields, "other"]), JSON))
def test_whatever_comes_is_a_claim_or_a_validation_error(answer: dict[str, Any]) -> None:
    try:
        claim = Claim.model_validate(answer)
    except ValidationError:
        return
    assert isinstance(claim.ok, bool)


def test_what_is_not_answered_stays_at_its_default() -> None:
    claim = Claim.model_validate({"ok": True, "unknown": [1, 2]})
    assert (claim.failure, claim.state, claim.builds, claim.seconds, claim.dispatched) == (None, [], [], None, {})


@pytest.mark.parametrize(
    ("kind", "outcome"),
    [
        ("build", Outcome.BUILD_FAILED),
        ("memory", Outcome.OUT_OF_MEMORY),
        ("shape", Outcome.WRONG_SHAPE),
        ("layout", Outcome.WRONG_SHAPE),
        ("dtype", Outcome.WRONG_DTYPE),
        ("type", Outcome.CHEATED),
        ("crash", Outcome.CRASHED),
        ("PASSED", Outcome.CRASHED),
        ("", Outcome.CRASHED),
    ],
)
def test_no_failure_that_a_guest_claims_is_a_pass(kind: str, outcome: Outcome) -> None:
    assert FailureClaim(kind=kind, message="").outcome is outcome
