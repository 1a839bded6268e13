"""`agentgen report`: where the page goes, and what is said when it cannot be made."""

from __future__ import annotations

from pathlib import Path

import made_records
import pytest
from cli_program import agentgen_program

from agentgen.records.candidate import Candidate, Language
from agentgen.store.ledger import open_ledger
from agentgen.store.transfer import pack

RUN = "20261122-120000-abcd"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with a run of one kernel that was not judged yet, in the store and in a folder of its own."""
    (tmp_path / "results").mkdir()
    with open_ledger(f"sqlite:///{tmp_path}/results/agentgen.db") as ledger:
        ledger.create_run(made_records.run())
        ledger.add_candidate(RUN, 1, Candidate(source="a kernel", language=Language.CPP))
        pack(ledger, RUN, tmp_path / "elsewhere" / "runs" / RUN)
    return tmp_path


def test_the_page_goes_to_the_runs_folder_or_where_it_is_wanted(home: Path) -> None:
    usual = agentgen_program("report", "latest", "--json", folder=home)
    file = home / "results" / "runs" / RUN / "report.html"
    assert (usual.code, usual.answer["candidates"]) == (0, 1)
    assert usual.answer["run"] == RUN  # and all that solve says of a run
    assert [(one["language"], one["outcome"]) for one in usual.answer["trials"]] == [("cpp", None)]
    assert (usual.answer["problem"], usual.answer["best"], usual.answer["kernel"]) == ("relu", None, None)
    assert usual.answer["spent"]["requests"] == 0
    assert (home / usual.answer["html"]).resolve() == file
    assert file.stat().st_size == usual.answer["bytes"]
    assert "relu" in file.read_text(encoding="utf-8")

    wanted = agentgen_program("report", RUN[:12], "--html", "deep/down/page.html", folder=home)
    assert (wanted.code, wanted.stdout) == (0, "")
    assert wanted.stderr == f"page: deep/down/page.html ({file.stat().st_size / 1000:.0f} kB, 1 candidates)\n"
    assert (home / "deep/down/page.html").read_bytes() == file.read_bytes()


def test_a_run_from_elsewhere_has_its_page_in_its_own_folder(home: Path, tmp_path: Path) -> None:
    folder = home / "elsewhere" / "runs" / RUN
    ended = agentgen_program("report", str(folder), folder=tmp_path)
    assert ended.code == 0
    assert (folder / "report.html").is_file()


def test_what_cannot_be_done_is_said_in_one_line(home: Path) -> None:
    (home / "file").write_text("")
    for arguments, words in (
        (("report", "nothing"), "nothing"),
        (("report", "latest", "--html", "file/page.html"), "the page cannot be written to file/page.html: "),
    ):
        ended = agentgen_program(*arguments, folder=home)
        assert (ended.code, ended.stdout) == (2, "")
        assert words in ended.stderr
        assert ended.stderr.count("\n") == 1
