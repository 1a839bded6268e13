"""An entry holds together: source, certificate, ideas and problem are of one kernel."""

from __future__ import annotations

import pytest
from entry_records import MACHINE, entry, problem, refused
from pydantic import ValidationError

from agentgen.records.candidate import Candidate
from agentgen.records.entry import Entry
from agentgen.records.trial import Depth


def test_its_folder_tells_problem_arithmetic_device_and_kernel() -> None:
    one = entry()
    assert str(one.place) == f"relu/fp32/nvidia-h200/{one.id}"
    odd = entry(machine=MACHINE.model_copy(update={"device": "../../µ AMD (R) EPYC"}))
    assert odd.place.parts[2] == "amd-r-epyc"
    assert entry(machine=MACHINE.model_copy(update={"device": "../.."})).place.parts[2] == "cuda"


def test_the_speedup_over_eager_is_found_wherever_it_stands() -> None:
    one = entry(ratio=2.0)
    assert one.trial.speedup
    assert one.trial.speedup.ratio == 2.0
    assert one.over_eager
    assert one.over_eager.ratio == 3.0


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"candidate": Candidate(source="x = 1\n", language=entry().candidate.language)}, "the trial is that of"),
        ({"problem": problem("other")}, "for relu, not for other"),
        ({"trial": entry().trial.model_copy(update={"depth": Depth.JUDGE})}, "no certificate: PASSED at depth judge"),
        ({"trial": refused(entry().candidate)}, "no certificate: WRONG_VALUES at depth certify"),
        ({"trial": entry().trial.model_copy(update={"timing": None})}, "has no time"),
        ({"trial": entry().trial.model_copy(update={"speedups": ()})}, "has no time"),
        ({"chain": entry("other = 1\n").chain}, "the chain of ideas ends at"),
        ({"chain": ()}, "at least 1 item"),
    ],
)
def test_what_contradicts_itself_is_no_entry(change: dict[str, object], words: str) -> None:
    fields = {name: getattr(entry(), name) for name in Entry.model_fields}
    with pytest.raises(ValidationError, match=words):
        Entry.model_validate({**fields, **change})
