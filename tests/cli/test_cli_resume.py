"""A run through a mailbox, resumed as the answers come. The judge has done its part before: its findings are stored."""

from __future__ import annotations

import json
from pathlib import Path

import made_records
import pytest
from cli_program import Ended, agentgen_program
from stored_runs import answer_the_request, stored_run

from agentgen.records.candidate import Candidate, Language
from agentgen.records.chat import Role
from agentgen.records.problem import Arithmetic
from agentgen.records.run import RunStatus
from agentgen.records.trial import Outcome, Trial
from agentgen.store.ledger import open_ledger

SOURCE = "import torch\n\n\nclass ModelNew(torch.nn.Module):\n    pass  # µ\n"


def passed(candidate: Candidate) -> Trial:
    return Trial(
        candidate=candidate.id,
        problem="relu",
        arithmetic=Arithmetic.FP32,
        machine=made_records.cpu(),
        outcome=Outcome.PASSED,
        timing=made_records.timing(50),
        speedups=(made_records.speedup(2, 1.9, 2.1, baseline_us=100),),
        roofline_fraction=1.0,
    )


def resume(folder: Path, *options: str) -> Ended:
    return agentgen_program("resume", "latest", "--json", *options, folder=folder)


def test_a_run_waits_for_its_mailbox_and_ends_with_the_kernel_on_disk(tmp_path: Path) -> None:
    results = tmp_path / "results"
    mailbox = results / "runs" / "20261121-120000-abcd" / "mailbox"
    with open_ledger(f"sqlite:///{results / 'agentgen.db'}") as ledger:
        run = stored_run(ledger)

    waiting = resume(tmp_path)
    assert (waiting.code, waiting.answer["status"], waiting.answer["kernel"]) == (75, "waiting", None)
    assert "waiting for 1 answer\n" in waiting.stderr
    assert f"agentgen resume {run.id}" in waiting.stderr
    assert str(mailbox) in waiting.stderr

    idea = {"category": "memory access", "title": "Touch [bold]less[/bold]", "reasoning": "It is bound by memory."}
    answer_the_request(mailbox, Role.IDEAS, json.dumps({"ideas": [idea]}))
    assert resume(tmp_path).code == 75
    answer_the_request(mailbox, Role.WRITE, f"```python\n{SOURCE}```\n")
    with open_ledger(f"sqlite:///{results / 'agentgen.db'}") as ledger:
        (row,) = ledger.ideas(run.id)
        candidate = Candidate(source=SOURCE, language=Language.CPP, idea=row.idea.id)
        ledger.add_candidate(run.id, 1, candidate)
        ledger.add_trial(run.id, passed(candidate))

    done = resume(tmp_path)
    assert (done.code, done.answer["status"]) == (0, RunStatus.DONE.value), done.stderr
    assert {"run", "problem", "arithmetic", "device", "model", "trials", "best", "spent"} <= done.answer.keys()
    (trial,) = done.answer["trials"]
    assert (trial["candidate"], trial["idea"], trial["parent"]) == (candidate.id, row.idea.id, None)
    assert (trial["language"], trial["outcome"], trial["round"]) == ("cpp", "PASSED", 1)
    assert (trial["timing"]["median_us"], trial["speedup"]["low"]) == (50, 1.9)
    assert done.answer["best"] == candidate.id
    kernel = Path(done.answer["kernel"])
    assert kernel == results / "runs" / run.id / f"relu-{candidate.id[:8]}.py"
    assert kernel.read_bytes() == SOURCE.encode()
    assert Trial.model_validate_json((kernel.parent / "trial.json").read_text()) == passed(candidate)
    assert "Touch [bold]less[/bold]" in done.stderr
    assert "2.00× [1.90, 2.10]" in done.stderr
    assert made_records.cpu().device in done.stderr


def test_a_cap_ends_a_run_that_a_higher_one_lets_go_on(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path / 'results' / 'agentgen.db'}") as ledger:
        run = stored_run(ledger)
    stopped = resume(tmp_path, "--budget-tokens", "1000", "--budget-usd", "0.5")
    assert (stopped.code, stopped.answer["status"]) == (0, "stopped"), stopped.stderr
    assert stopped.answer["caps"] == {"usd": 0.5, "tokens": 1000, "minutes": None, "candidates": None}
    capped = stopped.answer["stopped_by"]
    assert (capped["cap"], capped["limit"], capped["spent"], capped["unit"]) == ("--budget-tokens", 1000, 0, "tokens")
    assert capped["next"] > 1000
    spent = stopped.answer["spent"]
    assert (spent["usd"], spent["tokens"], spent["candidates"], spent["requests"]) == (0, 0, 0, 0)
    assert 0 < spent["minutes"] < 2
    lines = stopped.stderr.splitlines()
    (said,) = (line for line in lines if line.startswith("stopped by --budget-tokens 1000: 0 spent, the next request"))
    assert said.endswith(f"could take {capped['next']:,.0f}")
    assert f"agentgen resume {run.id} --budget-tokens" in stopped.stderr
    assert not list((tmp_path / "results" / "runs" / run.id).glob("mailbox/*.request.md")), "nothing was sent"
    assert resume(tmp_path).answer["stopped_by"] == capped, "the run keeps its caps"

    waiting = resume(tmp_path, "--budget-tokens", "100000")
    assert (waiting.code, waiting.answer["status"], waiting.answer["stopped_by"]) == (75, "waiting", None)
    assert (waiting.answer["caps"]["tokens"], waiting.answer["caps"]["usd"]) == (100_000, 0.5)


def test_what_a_capped_run_found_is_on_disk(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'results' / 'agentgen.db'}"
    with open_ledger(store) as ledger:
        run = stored_run(ledger, rounds=2)
    folder = tmp_path / "results" / "runs" / run.id
    assert resume(tmp_path).code == 75
    idea = {"category": "memory access", "title": "Touch less", "reasoning": "It is bound by memory."}
    answer_the_request(folder / "mailbox", Role.IDEAS, json.dumps({"ideas": [idea]}))
    assert resume(tmp_path).code == 75
    answer_the_request(folder / "mailbox", Role.WRITE, f"```python\n{SOURCE}```\n")
    with open_ledger(store) as ledger:
        (row,) = ledger.ideas(run.id)
        candidate = Candidate(source=SOURCE, language=Language.CPP, idea=row.idea.id)
        ledger.add_candidate(run.id, 1, candidate)
        ledger.add_trial(run.id, passed(candidate).model_copy(update={"roofline_fraction": 0.5}))  # it would go on
    stopped = resume(tmp_path, "--max-candidates", "1")
    assert (stopped.code, stopped.answer["status"], stopped.answer["best"]) == (0, "stopped", candidate.id)
    assert Path(stopped.answer["kernel"]) == folder / f"relu-{candidate.id[:8]}.py"
    assert Path(stopped.answer["kernel"]).read_bytes() == SOURCE.encode()
    assert stopped.answer["stopped_by"]["cap"] == "--max-candidates"
    assert (stopped.answer["spent"]["tokens"], stopped.answer["spent"]["usd"]) == (None, None), "nobody said"
    assert "stopped by --max-candidates 1: 1 kept\n" in stopped.stderr
    assert "spent: tokens unknown, cost unknown" in stopped.stderr


@pytest.mark.parametrize("command", ["resume", "evaluate"])
def test_a_run_is_not_taken_to_another_kind_of_device(tmp_path: Path, command: str) -> None:
    with open_ledger(f"sqlite:///{tmp_path / 'results' / 'agentgen.db'}") as ledger:
        run = stored_run(ledger, device="cuda:0,cuda:1")
    ended = agentgen_program(command, "latest", "--device", "cpu", "--json", folder=tmp_path)
    assert (ended.code, ended.answer["exit_code"]) == (2, 2)
    assert f"run {run.id} is one for cuda:0,cuda:1" in ended.answer["error"]


def test_a_run_on_several_devices_keeps_them(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path / 'results' / 'agentgen.db'}") as ledger:
        stored_run(ledger, device="cuda:0,cuda:1")
    waiting = resume(tmp_path)
    assert (waiting.code, waiting.answer["device"]) == (75, "cuda:0,cuda:1")
    assert "in fp32 on cuda:" in waiting.stderr
