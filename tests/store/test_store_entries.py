"""Folders of the leaderboard: what goes in comes out, and what was touched is refused in one line."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from threading import Barrier

import pytest
from entry_records import DAY, MACHINE, SOURCE, again, entry, problem

from agentgen.errors import BadInput, StoreUnavailable
from agentgen.records.entry import Finding
from agentgen.records.problem import Workload
from agentgen.store import entries


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """The folder of an entry."""
    return entries.add(entry(), tmp_path)


def test_what_is_entered_is_read_as_it_was_to_the_byte(tmp_path: Path, home: Path) -> None:
    assert home == tmp_path / "relu" / "fp32" / "nvidia-h200" / entry().id
    assert sorted(path.name for path in home.iterdir()) == ["entry.json", "kernel.py", "trial.json"]
    assert (home / "kernel.py").read_bytes() == SOURCE.encode()
    assert entries.is_entry(home)
    assert entries.read(home) == entries.Kept(home, entry())
    assert entries.read_all(tmp_path) == ((entries.Kept(home, entry()),), ())
    assert not [path for path in home.parent.iterdir() if path != home]


def test_a_kernel_is_entered_once_whatever_idea_it_is_for(tmp_path: Path, home: Path) -> None:
    for same in (entry(), entry(title="The same code for another idea")):
        with pytest.raises(BadInput, match=rf"{home} is that kernel"):
            entries.add(same, tmp_path)
    elsewhere = entry(machine=MACHINE.model_copy(update={"device": "NVIDIA L40S"}))
    assert entries.add(elsewhere, tmp_path).parts[-2:] == ("nvidia-l40s", elsewhere.id)
    assert len(entries.read_all(tmp_path)[0]) == 2


def test_each_time_that_it_was_judged_again_has_a_line(home: Path) -> None:
    entries.note(home, again())
    entries.note(home, again(Finding.SLOWER))
    assert entries.read(home).again == (again(), again(Finding.SLOWER))
    assert len((home / "reverified.jsonl").read_text().splitlines()) == 2


def test_a_last_line_without_an_end_stays_a_line(home: Path) -> None:
    """As an editor leaves it. Two records in one line would be no entry any more."""
    (home / "reverified.jsonl").write_text(again().model_dump_json())
    entries.note(home, again(Finding.SLOWER))
    assert entries.read(home).again == (again(), again(Finding.SLOWER))


def test_the_latest_time_is_the_last_wherever_a_merge_put_it(home: Path) -> None:
    later = again(Finding.WRONG).model_copy(update={"date": DAY + timedelta(days=1)})
    entries.note(home, later)
    entries.note(home, again())
    assert entries.read(home).again == (again(), later)


def test_one_kernel_that_several_enter_at_once_is_entered_once(tmp_path: Path) -> None:
    count = 8
    barrier = Barrier(count)

    def enter(nth: int) -> bool:
        one = entry(title=f"The same code for idea {nth}")
        barrier.wait()
        try:
            entries.add(one, tmp_path)
        except BadInput:
            return False
        return True

    with ThreadPoolExecutor(count) as pool:
        assert sum(pool.map(enter, range(count))) == 1
    kept, broken = entries.read_all(tmp_path)
    assert (len(kept), broken) == (1, ())


def test_what_was_begun_and_never_finished_keeps_nobody_out(tmp_path: Path) -> None:
    begun = tmp_path / entry().place.parent / ".entry.abc"
    begun.mkdir(parents=True)
    (begun / "kernel.py").write_bytes(SOURCE.encode())
    assert entries.add(entry(), tmp_path).name == entry().id


def test_what_cannot_be_noted_is_said(home: Path) -> None:
    (home / "reverified.jsonl").mkdir()
    with pytest.raises(StoreUnavailable, match=r"reverified.jsonl cannot be written"):
        entries.note(home, again())


def test_a_leaderboard_that_cannot_be_written_is_said(tmp_path: Path) -> None:
    (tmp_path / "relu").write_text("")
    with pytest.raises(StoreUnavailable, match="cannot be written"):
        entries.add(entry(), tmp_path)


def _change(file: Path, key: str, value: object) -> None:
    file.write_text(json.dumps({**json.loads(file.read_text()), key: value}))


def _pipe(file: Path) -> None:
    file.unlink()
    os.mkfifo(file)


def _huge(file: Path) -> None:
    with file.open("ab") as opened:
        opened.truncate(entries.LARGEST + 1)


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "source touched": (lambda home: (home / "kernel.py").write_text("x = 1\n"), r"the source is another one"),
    "line ends": (
        lambda home: (home / "kernel.py").write_bytes(SOURCE.replace("\r\n", "\n").encode()),
        r"the source is another one",
    ),
    "other idea": (lambda home: _change(home / "entry.json", "idea", "0" * 16), "the source is another one"),
    "no text": (lambda home: (home / "kernel.py").write_bytes(b"\xff"), r"kernel.py: no UTF-8"),
    "no source": (lambda home: (home / "kernel.py").unlink(), r"kernel.py is missing"),
    "no trial": (lambda home: (home / "trial.json").unlink(), r"trial.json is missing"),
    "no words": (lambda home: (home / "entry.json").unlink(), r"entry.json is missing"),
    "no JSON": (lambda home: (home / "trial.json").write_text("{"), r"trial.json: Invalid JSON"),
    "deep JSON": (lambda home: (home / "trial.json").write_text("[" * 10**6), r"trial.json: "),
    "other trial": (lambda home: _change(home / "trial.json", "candidate", "0" * 16), r"the trial is that of 0000"),
    "shallow trial": (lambda home: _change(home / "trial.json", "depth", "judge"), r"no certificate"),
    "refused": (lambda home: _change(home / "trial.json", "outcome", "CHEATED"), r"a CHEATED trial has no timing"),
    "no number": (lambda home: _change(home / "trial.json", "roofline_fraction", math.nan), r"a finite number"),
    "new field": (lambda home: _change(home / "entry.json", "sold_by", "me"), r"entry.json: sold_by: Extra inputs"),
    "pipe": (lambda home: _pipe(home / "trial.json"), r"trial.json is no plain file"),
    "folder": (lambda home: (home / "reverified.jsonl").mkdir(), r"reverified.jsonl is no plain file"),
    "huge": (lambda home: _huge(home / "trial.json"), r"16777217 bytes"),
    "no line": (lambda home: (home / "reverified.jsonl").write_text("\nx\n"), r"reverified.jsonl, line 2: Invalid"),
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_entry_is_one_line_and_the_others_stay(tmp_path: Path, home: Path, what: str) -> None:
    other = entries.add(entry("other = 1\n"), tmp_path)
    breaks, words = BROKEN[what]
    breaks(home)
    with pytest.raises(BadInput, match=words) as raised:
        entries.read(home)
    kept, broken = entries.read_all(tmp_path)
    assert [one.folder for one in kept] == [other]
    assert broken == (str(raised.value),)
    assert len(broken[0].splitlines()) == 1
    assert len(broken[0]) < 600


@pytest.mark.parametrize("date", ["9999-12-31T23:59:59-23:59", "0001-01-01T00:00:00+14:00"])
def test_a_date_that_utc_has_not_is_a_broken_entry(tmp_path: Path, home: Path, date: str) -> None:
    """All dates are shown in UTC: one of these would take the whole leaderboard down."""
    entries.note(home, again())
    for name, key in (("reverified.jsonl", "date"), ("entry.json", "certified")):
        file = home / name
        was = file.read_text()
        file.write_text(re.sub(rf'"{key}": ?"[^"]*"', f'"{key}":"{date}"', was))
        found, broken = entries.read_all(tmp_path)
        assert not found
        assert f"{key}: no date that UTC has" in broken[0]
        file.write_text(was)
    assert entries.read_all(tmp_path)[0]


def test_an_entry_that_lies_elsewhere_is_broken(tmp_path: Path, home: Path) -> None:
    place = tmp_path / "relu" / "fp32" / "nvidia-b200"
    place.mkdir()
    home.rename(place / home.name)
    kept, broken = entries.read_all(tmp_path)
    assert not kept
    assert "belongs into relu/fp32/nvidia-h200" in broken[0]


def test_what_was_half_written_and_other_files_are_no_entries(tmp_path: Path, home: Path) -> None:
    (home.parent / ".entry.abc").mkdir()
    (tmp_path / "README.md").write_text("")
    assert entries.read_all(tmp_path) == ((entries.Kept(home, entry()),), ())
    assert entries.read_all(tmp_path / "missing") == ((), ())


def test_problems_differ_by_what_the_judge_goes_by() -> None:
    ours = problem()
    assert entries.differences(ours, ours.model_copy(update={"title": "Words"})) == ()
    theirs = ours.model_copy(update={"reference": "x", "workloads": (Workload(name="main", constants={"n": 3}),)})
    assert entries.differences(ours, theirs) == ("reference", "workloads")
