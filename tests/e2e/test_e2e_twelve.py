"""Each of our problems is solved on a CPU: a scripted model proposes one idea and writes an honest C++ kernel."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path

import pytest
from e2e_square import command, environment

ROOT = Path(__file__).parents[2]
PROBLEMS = sorted(folder.parent.name for folder in (ROOT / "problems").glob("*/problem.yaml"))
IDEA = {
    "category": "compute and instructions",
    "title": "Plain loops",
    "reasoning": "Right first.",
    "predicted_speedup": 1.0,
}


class Colleague(threading.Thread):
    """Answers what lies in a mailbox until told to stop."""

    def __init__(self, mailbox: Path, source: str) -> None:
        super().__init__(daemon=True)
        self._mailbox = mailbox
        self._replies = {"ideas": json.dumps({"ideas": [IDEA]}), "write": f"```python\n{source}\n```\n"}
        self.gone = threading.Event()
        self.answered: list[str] = []

    def run(self) -> None:
        while not self.gone.wait(0.1):
            for request in self._mailbox.glob("*.request.md"):
                reply = request.with_name(request.name.replace(".request.", ".reply."))
                role = request.name.partition("-")[0]
                if not reply.exists() and role in self._replies:
                    reply.write_text(self._replies[role])
                    self.answered.append(role)


def test_there_are_twelve() -> None:
    assert len(PROBLEMS) == 12
    for language in ("cpp", "triton"):
        assert sorted(file.stem for file in (ROOT / "tests" / "honest" / language).glob("*.py")) == PROBLEMS


@pytest.mark.slow
@pytest.mark.parametrize("problem", PROBLEMS)
def test_a_problem_is_solved_on_a_cpu(problem: str, tmp_path: Path) -> None:
    mailbox = tmp_path / "mailbox"
    colleague = Colleague(mailbox, (ROOT / "tests" / "honest" / "cpp" / f"{problem}.py").read_text())
    colleague.start()
    arguments = ["solve", problem, "--device", "cpu", "--rounds", "1", "--model", f"mailbox:{mailbox}", "--wait"]
    done = subprocess.run(
        command(*arguments, "--json"),
        cwd=tmp_path,
        env={**environment(tmp_path), "AGENTGEN_PROBLEMS": str(ROOT / "problems")},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    colleague.gone.set()
    assert done.returncode == 0, done.stderr
    answer = json.loads(done.stdout)
    (trial,) = answer["trials"]
    assert trial["outcome"] == "PASSED", trial["reasons"]
    assert trial["timing"]["median_us"] > 0
    assert answer["best"] == trial["candidate"]
    assert colleague.answered == ["ideas", "write"]
