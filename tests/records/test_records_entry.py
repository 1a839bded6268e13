"""An entry holds together: source, certificate, ideas and problem are of one kernel."""

from __future__ import annotations

import made_records
import pytest
from entry_records import MACHINE, REFERENCE, entry, problem, refused
from pydantic import ValidationError

from agentgen.records.candidate import Candidate, Language
from agentgen.records.entry import Entry, Step
from agentgen.records.trial import Depth, Trial


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


def race(**change: float) -> Trial:
    """Returns the certificate with one figure of its first race changed."""
    trial = entry().trial
    return trial.model_copy(update={"speedups": (trial.speedups[0].model_copy(update=change), trial.speedups[1])})


@pytest.mark.parametrize(
    ("trial", "words"),
    [
        (race(low=50.0), "does not lie within its interval"),
        (race(ratio=50.0), "does not lie within its interval"),
        (race(low=-1.0), "does not lie within its interval"),
        (entry().trial.model_copy(update={"speedups": entry().trial.speedups[::-1]}), "not over the fastest baseline"),
        (
            entry().trial.model_copy(update={"timing": made_records.timing(1.0, 90.0, 110.0)}),
            "within its quartiles",
        ),
    ],
)
def test_no_entry_has_figures_that_nobody_can_have_measured(trial: Trial, words: str) -> None:
    """They would stand first, or show what is not so, and judging again would compare them with nothing."""
    with pytest.raises(ValidationError, match=words):
        Entry.model_validate({**dict(entry()), "trial": trial})


def test_an_entry_is_told_by_its_idea_or_by_what_its_program_changed() -> None:
    one = entry()
    assert one.idea
    assert one.words == one.idea.title
    candidate = Candidate(source="# Change: wider  loads\nimport torch\n", language=one.candidate.language)
    trial = one.trial.model_copy(update={"candidate": candidate.id})
    step = one.chain[-1].model_copy(update={"candidate": candidate.id, "idea": None, "repair": 0})
    found = Entry.model_validate({**dict(one), "candidate": candidate, "trial": trial, "chain": (step,)})
    assert found.words == "wider loads"


def told(step: Step, **change: object) -> Step:
    assert step.idea
    return step.model_copy(update={"idea": step.idea.model_copy(update=change)})


def test_an_idea_on_a_kernel_and_a_repair_of_it_are_a_chain() -> None:
    """Ideas of a chain are on the kernels before them; what the last one tells is the kernel's own."""
    one = entry()
    first = one.chain[0].model_copy(update={"candidate": "f" * 16, "repair": 0})
    assert first.idea
    second = told(first.model_copy(update={"candidate": "e" * 16}), parent=first.candidate)
    assert second.idea
    candidate = Candidate(source="x", language=Language.TRITON, idea=second.idea.id, parent="e" * 16, repair=1)
    last = second.model_copy(update={"candidate": candidate.id, "repair": 1})
    trial = one.trial.model_copy(update={"candidate": candidate.id})
    fields = {**dict(one), "candidate": candidate, "trial": trial}
    whole = (first, second, last)
    assert Entry.model_validate({**fields, "chain": whole}).chain == whole

    other, elsewhere = told(first, title="Another idea"), told(first, parent="d" * 16)
    for chain, words in (
        ((first, second, told(last, title="Another idea")), "another language, repair or idea"),
        ((first, second, last.model_copy(update={"idea": None})), "another language, repair or idea"),
        ((first, second, last.model_copy(update={"language": Language.CUDA})), "another language, repair or idea"),
        ((first, second, last.model_copy(update={"repair": 2})), "another language, repair or idea"),
        ((first, second, last.model_copy(update={"written_by": "me"})), "another author"),
        ((second, first, last), "is not its parent"),
        ((elsewhere, second, last), "on the reference"),
        ((second, last), "on the reference"),
        ((first, other.model_copy(update={"candidate": "e" * 16}), last), "does not follow"),
    ):
        with pytest.raises(ValidationError, match=words):
            Entry.model_validate({**fields, "chain": chain})
    with pytest.raises(ValidationError, match="on the reference"):
        Entry.model_validate({**dict(one), "problem": problem(reference=REFERENCE + "# easier\n")})
