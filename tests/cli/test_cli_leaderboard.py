"""`agentgen leaderboard`, and what `reverify` and `leaderboard add` refuse before any judge starts."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
from entry_records import MACHINE, REFERENCE, again, entry, problem
from stored_runs import written_run

from agentgen.cli.leaderboard import named
from agentgen.cli.main import run
from agentgen.records.candidate import Candidate, Language
from agentgen.records.entry import Entry
from agentgen.store import entries

CPU = MACHINE.model_copy(update={"device_type": "cpu", "device": "AMD EPYC", "cores": 2, "triton": None})
DEFINITION = "title: Another title\narithmetic: fp32\nworkloads: [{name: main}]\n"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the problem of the entries, to run commands in, on a machine without a GPU."""
    for name in ("AGENTGEN_STORE", "AGENTGEN_MODEL", "AGENTGEN_BASE_URL", "OPENAI_API_KEY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AGENTGEN_PROBLEMS", str(tmp_path / "problems"))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    folder = tmp_path / "problems" / "relu"
    folder.mkdir(parents=True)
    (folder / "problem.yaml").write_text(DEFINITION)
    (folder / "reference.py").write_text(REFERENCE)
    return tmp_path


def enter(home: Path, one: Entry) -> Path:
    return entries.add(one, entries.root(home / "results"))


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """Returns the one line of a command that cannot be done."""
    assert run(arguments) == 2
    said = capsys.readouterr().err
    assert "Traceback" not in said
    return said.splitlines()[-1]


def test_the_leaderboard_is_shown_to_people_and_programs(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = enter(home, entry("a = 1\n", 4.0))
    enter(home, entry("b = 1\n", 2.0))
    entries.note(folder, again())
    assert run(["leaderboard", "--json"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert answer["broken"] == []
    assert [(one["rank"], one["median_us"]) for one in answer["entries"]] == [(1, 50.0), (2, 100.0)]
    assert answer["entries"][0]["entry"] == str(folder)
    assert "relu in fp32 on NVIDIA H200" in said.err
    assert "2026-11-22: same" in said.err
    assert run(["leaderboard", "--by", "model", "--json"]) == 0
    assert [one["entries"] for one in json.loads(capsys.readouterr().out)["models"]] == [2]


def test_markdown_goes_to_stdout_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = enter(home, entry())
    assert run(["leaderboard", "--markdown"]) == 0
    said = capsys.readouterr()
    assert f"]({folder.relative_to(home)})" in said.out
    assert said.err == ""
    assert run(["leaderboard", "--markdown", "--by", "model"]) == 0
    assert "| gpt-oss-120b | 1 | 1 | 1 |" in capsys.readouterr().out
    assert "stdout has room for one" in refused(capsys, "leaderboard", "--markdown", "--json")


def test_an_empty_leaderboard_is_none_that_is_broken(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["leaderboard", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"entries": [], "broken": []}


def test_a_broken_entry_is_said_and_the_others_shown(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    enter(home, entry("a = 1\n"))
    broken = enter(home, entry("b = 1\n"))
    about = json.loads((broken / "entry.json").read_text())
    (broken / "entry.json").write_text(json.dumps({**about, "\x1b[2J\u202e\nx": 1}))
    for options in ([], ["--json"], ["--markdown"]):
        assert run(["leaderboard", *options]) == 1
        said = capsys.readouterr()
        (line,) = (line for line in said.err.splitlines() if "left out: " in line)
        assert line == f"left out: {broken}/entry.json: \\x1b[2J\\u202e x: Extra inputs are not permitted"
        assert not {"\x1b", "\u202e"} & set(said.err + said.out)
        if options == ["--json"]:
            answer = json.loads(said.out)
            assert len(answer["entries"]) == len(answer["broken"]) == 1
            assert "\x1b[2J\u202e" in answer["broken"][0]


# ---- --html ----------------------------------------------------------------------------------------------------------


def test_a_site_is_written_and_said(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    enter(home, entry())
    evals = home / "results" / "evals"
    evals.mkdir()
    shutil.copy(Path(__file__).parents[2] / "results" / "evals" / "judge-h200.json", evals)
    assert run(["leaderboard", "--html", "site", "--json"]) == 0
    said = capsys.readouterr()
    answer = json.loads(said.out)
    assert answer["html"] == "site"
    assert answer["bytes"] == sum(file.stat().st_size for file in (home / "site").rglob("*.[hp]*"))
    assert [one["kernel"] for one in answer["entries"]] == [entry().id]
    assert (answer["fast_p"], len(answer["without_fast_p"])) == ([], 1)
    assert "site: site/index.html (1 kernels, fast_p of 0 reports, " in said.err
    assert "judge-h200.json: no fast_p: the dataset judge does not ask for it" in said.err
    page = home / "site" / "kernels" / f"relu-fp32-nvidia-h200-{entry().id}.html"
    assert f"agentgen reverify results/kernels/relu/fp32/nvidia-h200/{entry().id}" in page.read_text()


def test_a_site_says_what_is_broken_and_ends_with_1(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (enter(home, entry()) / "kernel.py").write_text("x = 1\n")
    (home / "reports").mkdir()
    (home / "reports" / "a.json").write_text("{")
    assert run(["leaderboard", "--html", "site", "--evals", "reports", "--json"]) == 1
    said = capsys.readouterr()
    assert said.err.count("left out: ") == len(json.loads(said.out)["broken"]) == 2
    text = (home / "site" / "index.html").read_text()
    assert "the source is another one" in text
    assert "reports/a.json is no report of agentgen eval: Invalid JSON" in text
    assert str(home) not in text


def test_what_makes_no_sense_with_a_site_is_refused(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for option in (("--markdown",), ("--by", "model")):
        assert "leave --markdown and --by out" in refused(capsys, "leaderboard", "--html", "site", *option)
    assert "is no folder of reports" in refused(capsys, "leaderboard", "--html", "site", "--evals", "missing")
    assert "give --html DIR too" in refused(capsys, "leaderboard", "--evals", "results")
    assert "no site of agentgen" in refused(capsys, "leaderboard", "--html", "problems")
    assert not (home / "site").exists()


# ---- reverify ENTRY --------------------------------------------------------------------------------------------------


def test_an_entry_needs_its_device(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(enter(home, entry()))
    assert "no device cuda:0 on this machine" in refused(capsys, "reverify", folder)
    assert "one for NVIDIA H200: it cannot be judged on cpu" in refused(capsys, "reverify", folder, "--device", "cpu")
    assert not list(home.glob("results/kernels/**/reverified.jsonl"))


def test_an_entry_of_a_problem_that_changed_cannot_be_compared(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = str(enter(home, entry(machine=CPU)))
    (home / "problems" / "relu" / "reference.py").write_text(REFERENCE + "# easier\n")
    assert "the problem relu is another one in the catalog (reference differ)" in refused(capsys, "reverify", folder)
    unknown = str(enter(home, entry(machine=CPU, of=problem("gone"))))
    assert "no problem is called 'gone'" in refused(capsys, "reverify", unknown)


def test_an_entry_says_itself_what_it_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = enter(home, entry(machine=CPU))
    for option in (("--language", "cuda"), ("--arithmetic", "fp16")):
        assert "says itself what it is" in refused(capsys, "reverify", str(folder), *option)
    (folder / "kernel.py").write_text("x = 1\n")
    assert "the source is another one" in refused(capsys, "reverify", str(folder))
    (folder / "kernel.py").unlink()
    assert "kernel.py is missing" in refused(capsys, "reverify", str(folder))


# ---- leaderboard add -------------------------------------------------------------------------------------------------

FIRST, SECOND = (
    Candidate(source=f"# {name}\nclass ModelNew: ...\n", language=Language.CPP) for name in ("first", "second")
)


def test_only_kernels_of_a_run_that_a_model_wrote_are_entered(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert "there is no run yet" in refused(capsys, "leaderboard", "add", "latest")
    written_run(home, problem(), FIRST, SECOND)
    assert "has no ranked kernel" in refused(capsys, "leaderboard", "add", "latest")
    assert "begins the id of none" in refused(capsys, "leaderboard", "add", "latest", "zzz")
    assert "begins the id of none" in refused(capsys, "leaderboard", "add", "latest", "")
    said = refused(capsys, "leaderboard", "add", "latest", SECOND.id[:8])
    assert f"no model's reply in run 20261122-120000-abcd holds {SECOND.id}: only the search enters kernels" in said
    assert not list(home.glob("results/kernels/*"))


def test_who_answered_a_mailbox_without_a_name_can_be_named() -> None:
    (step,) = entry().chain
    unnamed = step.model_copy(update={"idea_by": "mailbox", "written_by": "mailbox"})
    assert named([unnamed], None) == (unnamed,)
    (told,) = named([unnamed], "a model")
    assert (told.idea_by, told.written_by) == ("a model", "a model")
    assert named([step], "a model") == (step,), "who has a name keeps it"


def test_a_kernel_for_another_problem_of_that_name_is_not_entered(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written_run(home, problem(reference=REFERENCE + "# easier\n"), FIRST)
    said = refused(capsys, "leaderboard", "add", "latest", FIRST.id)
    assert "is another one in the catalog (reference differ)" in said
