"""The past failures that are shipped: one case of a cause, and no kernel without a case."""

from __future__ import annotations

from pathlib import Path

from agentgen.scoring import cases
from agentgen.scoring.promoted import known

PATH = Path(__file__).parents[2] / "evals" / "past_failures.yaml"
FOLDER = PATH.with_suffix("")


def test_there_is_one_case_of_a_cause_and_each_says_where_it_comes_from() -> None:
    found = cases.load(PATH).cases
    assert found
    assert len(known(PATH)) == len(found)


def test_cases_are_in_the_order_of_their_names() -> None:
    names = [case.name or "" for case in cases.load(PATH).cases]
    assert names == sorted(names)


def test_each_kernel_belongs_to_a_case() -> None:
    kernels = {PATH.parent / case.inputs.kernel for case in cases.kernels(cases.load(PATH))}
    originals = {kernel.with_suffix(".original.py") for kernel in kernels}
    there = {file for file in FOLDER.glob("*/*.py") if file.parent.parent == FOLDER}
    assert kernels <= there <= kernels | originals


def test_no_machine_s_folder_is_named() -> None:
    assert not [line for line in PATH.read_text().splitlines() if "/home/" in line or "/tmp/" in line]
