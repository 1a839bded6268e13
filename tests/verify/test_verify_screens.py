"""What is refused by its text alone, and what is not."""

from __future__ import annotations

import pytest

from agentgen.records.candidate import Candidate, Language
from agentgen.records.trial import Outcome
from agentgen.verify.screens import MAX_SOURCE_BYTES, screen
from agentgen.verify.session import Rejected

MODEL = "class ModelNew: ..."


def rejection(source: str) -> Rejected:
    with pytest.raises(Rejected) as raised:
        screen(Candidate(source=source, language=Language.CPP))
    return raised.value


@pytest.mark.parametrize(
    "source",
    [
        MODEL,
        f"from agentgen import jit\n{MODEL}",
        f"import agentgen.jit as jit\n{MODEL}",
        f"from agentgen.jit import cpp\n{MODEL}",
        f"import agentgen\n{MODEL}",
        f"import agentgenerator\nimport torch, triton\n{MODEL}",
        "def ModelNew(*args): ...",
        "ModelNew = type('ModelNew', (), {})",
        "from torch.nn import ReLU as ModelNew",
        f"import os; os.system('true')  # the jail's business\n{MODEL}",
    ],
)
def test_an_ordinary_candidate_passes(source: str) -> None:
    screen(Candidate(source=source, language=Language.CPP))


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class ModelNew:\n    def forward(self x): ...", "no Python: line 2: "),
        ("def f(:\n" + MODEL, "no Python: line 1: "),
        (MODEL + "\0", "null bytes"),
        ("x = " + "(" * 1000, "too many nested parentheses"),
        ("x = " + "-" * 100_000 + "1\n" + MODEL, "no Python"),
        ("x = y" + ".z" * 100_000 + "\n" + MODEL, "no Python"),
        ("```python\nclass ModelNew: ...\n```", "no Python: line 1"),
        ("", "defines no ModelNew at its top level"),
        ("class Model: ...", "defines no ModelNew"),
        ("def f():\n    class ModelNew: ...", "defines no ModelNew"),
    ],
)
def test_what_cannot_be_built(source: str, said: str) -> None:
    rejected = rejection(source)
    assert rejected.outcome is Outcome.BUILD_FAILED
    assert said in rejected.reasons[0]
    assert "\n" not in rejected.reasons[0]


@pytest.mark.parametrize(
    ("line", "module"),
    [
        ("import agentgen.verify.judge", "agentgen.verify.judge"),
        ("from agentgen.verify import draws", "agentgen.verify"),
        ("from agentgen import sandbox", "agentgen.sandbox"),
        ("from agentgen import jit, records", "agentgen.records"),
        ("def f():\n    import agentgen.sandbox.wire", "agentgen.sandbox.wire"),
        ("import torch, agentgen.errors", "agentgen.errors"),
        ("import agentgen.jitter", "agentgen.jitter"),
    ],
)
def test_reaching_into_agentgen_is_screened_out(line: str, module: str) -> None:
    rejected = rejection(f"{MODEL}\n{line}")
    assert rejected.outcome is Outcome.SCREENED_OUT
    assert f"imports {module};" in rejected.reasons[0]
    assert rejected.reasons[0].startswith(f"line {2 + line.count(chr(10))}:")


def test_a_source_has_a_size_limit_in_bytes() -> None:
    filler = MAX_SOURCE_BYTES - len(MODEL) - 2
    screen(Candidate(source=f"{MODEL}\n#{'x' * filler}", language=Language.CPP))
    assert rejection(f"{MODEL}\n#{'x' * filler}x").outcome is Outcome.SCREENED_OUT
    assert rejection(f"{MODEL}\n#{'é' * filler}").outcome is Outcome.SCREENED_OUT
