"""`agentgen problems import`: what can be judged is taken, the rest is refused with its reason."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli_program import agentgen_program

GOOD = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.exp()


def get_inputs():
    return [torch.rand(64, 64)]


def get_init_inputs():
    return []
"""
FILES = {
    "level1/2_Exp.py": GOOD,
    "level1/10_Square.py": GOOD.replace("x.exp()", "x * x"),
    "level1/3_Zero.py": GOOD.replace("x.exp()", "x - x"),
    "level2/1_Broken.py": "def get_inputs(:\n",
    "level2/2_Dies.py": GOOD.replace("x.exp()", "__import__('os')._exit(3)"),
    "level2/3_Half.py": GOOD.replace("64, 64", "64, 64, dtype=torch.float16"),
}


@pytest.mark.slow
def test_a_folder_is_taken_but_for_what_cannot_be_judged(tmp_path: Path) -> None:
    for place, text in FILES.items():
        (tmp_path / "bench" / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "bench" / place).write_text(text)
    environment = {"AGENTGEN_PROBLEMS": str(tmp_path / "mine")}
    arguments = ("problems", "import", "bench", "--device", "cpu", "--json")
    ended = agentgen_program(*arguments, folder=tmp_path, environment=environment)
    assert ended.code == 1, ended.stderr
    found = {entry["name"]: entry for entry in ended.answer["problems"]}
    taken = {name for name, entry in found.items() if entry["taken"]}
    assert taken == {"level1-2_Exp", "level1-10_Square", "level2-3_Half"}
    assert ended.answer["taken"] == 3
    reasons = {name: " ".join(entry["reasons"]) for name, entry in found.items()}
    assert "zeros passes every value family" in reasons["level1-3_Zero"]
    assert "line 1: no Python" in reasons["level2-1_Broken"]
    assert "the judge ended while it did admit" in reasons["level2-2_Dies"]
    listed = agentgen_program("problems", "list", "--json", folder=tmp_path, environment=environment)
    assert {entry["name"]: entry["arithmetic"] for entry in listed.answer["problems"]} == {
        "level1-2_Exp": "fp32",
        "level1-10_Square": "fp32",
        "level2-3_Half": "fp16",
    }

    forced = agentgen_program(
        "problems", "import", "bench/level1/3_Zero.py", "--name", "nothing", "--device", "cpu", "--force",
        folder=tmp_path, environment=environment,
    )  # fmt: skip
    assert forced.code == 0, forced.stderr
    assert "nothing: forced: zeros passes" in forced.stderr
    assert (tmp_path / "mine" / "nothing" / "problem.yaml").read_text().startswith("# taken by force: zeros passes")
