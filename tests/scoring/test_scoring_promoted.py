"""Cases are put into the file of past failures one after the other, and whole or not at all."""

from __future__ import annotations

import dataclasses
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from past_runs import RUN, kernel, ledger_of, trial

from agentgen.errors import BadInput
from agentgen.records.candidate import Candidate
from agentgen.records.trial import Outcome, Trial
from agentgen.scoring import cases
from agentgen.scoring.failures import entry_of, failures_of
from agentgen.scoring.promoted import Entry, problems_of, put

GOOD, WRONG = (kernel(f"class ModelNew: '{word}'\n") for word in ("good", "wrong"))
PASSED = (GOOD, trial(GOOD, Outcome.PASSED))
BAD_VALUES = (WRONG, trial(WRONG, Outcome.WRONG_VALUES, "relative L2 is 0.5", by=["values: tiny"]))


def entries(folder: Path, *found: tuple[Candidate, Trial]) -> list[Entry]:
    failures = failures_of(ledger_of(folder, PASSED, *found), RUN)
    return [entry_of(one, Path("square"), Path("past_failures"), ["a-model"]) for one in failures]


def dataset(folder: Path) -> Path:
    (folder / "square").mkdir()
    return folder / "past_failures.yaml"


def test_two_who_put_in_cases_at_once_lose_none(tmp_path: Path) -> None:
    path = dataset(tmp_path)
    made = [kernel(f"class ModelNew: '{number}'\n") for number in range(8)]
    refusals = [trial(one, Outcome.CRASHED, f"for {name}") for one, name in zip(made, "abcdefgh", strict=True)]
    found = entries(tmp_path, *zip(made, refusals, strict=True))
    with ThreadPoolExecutor(len(found)) as pool:
        list(pool.map(put, [path] * len(found), [[entry] for entry in found]))
    assert [case.name for case in cases.load(path).cases] == sorted(entry.name for entry in found)


def test_what_is_not_put_in_leaves_no_kernel_and_a_cause_has_one_case(tmp_path: Path) -> None:
    path = dataset(tmp_path)
    (made,) = entries(tmp_path, BAD_VALUES)
    (tmp_path / "square").rmdir()
    with pytest.raises(BadInput, match="square is missing"):
        put(path, [made])
    assert not list(tmp_path.rglob("*.py"))
    assert not path.exists()
    with pytest.raises(BadInput, match="square is missing"):
        put(path, [made], RUN.problem)
    assert not problems_of(path).joinpath(RUN.problem.name).exists()
    put(dataset(tmp_path), [made])
    with pytest.raises(BadInput, match=f"a case of the cause of another already: {made.name}"):
        put(path, [dataclasses.replace(made, name="another")])


@pytest.mark.parametrize("name", ["a: b", "%x", "2026-11-24", "123", "yes", "[x]"])
def test_a_dataset_is_named_after_its_file_whatever_yaml_would_make_of_that(tmp_path: Path, name: str) -> None:
    path = dataset(tmp_path).with_name(f"{name}.yaml")
    put(path, entries(tmp_path, BAD_VALUES))
    assert cases.load(path).name == name
