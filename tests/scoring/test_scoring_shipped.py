"""The datasets that are shipped: what they say of themselves is so."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from agentgen.errors import BadInput
from agentgen.records.problem import Arithmetic, DeviceType
from agentgen.scoring import cases
from agentgen.scoring.cases import Solve, Subject
from agentgen.store import catalog

EVALS = Path(__file__).parents[2] / "evals"
PROBLEMS = EVALS.parent / "problems"
LEVEL_1 = EVALS / "kernelbench_level1.yaml"


def solved(path: Path, root: Path | None = None) -> list[Solve]:
    """Returns the problems of a dataset."""
    return [case.inputs for case in cases.load(path, root).cases if isinstance(case.inputs, Solve)]


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a checkout of KernelBench would hold, as far as names go."""
    (tmp_path / "KernelBench" / "level1").mkdir(parents=True)
    for line in LEVEL_1.read_text().splitlines():
        if "problem: " in line:
            (tmp_path / line.split("problem: ")[1].rstrip("}")).write_text("")
    return tmp_path


@pytest.mark.parametrize("device_type", ["cpu", "cuda"])
def test_the_smoke_test_has_both_kinds_of_cases_and_every_verdict_that_is_due(device_type: DeviceType) -> None:
    smoke = cases.on_device(cases.load(EVALS / "smoke.yaml"), device_type).cases
    assert {type(case.inputs) for case in smoke} == {Solve, Subject}
    due = [case.expected_output for case in smoke]
    assert {verdict.accepted for verdict in due if verdict} == {True, False}
    assert all(due)


def test_a_kernel_of_the_smoke_test_is_a_case_of_the_judge_s_own_set() -> None:
    judge = {case.name: case for case in cases.load(EVALS / "judge.yaml").cases}
    for case in cases.kernels(cases.load(EVALS / "smoke.yaml")):
        assert judge[case.name] == case


def test_recorded_means_that_there_is_a_recording() -> None:
    for dataset in ("smoke", "headline"):
        for case in solved(EVALS / f"{dataset}.yaml"):
            recorded = catalog.recording(case.problem.name, PROBLEMS).is_dir()
            assert (case.models == ("recorded",)) is recorded


@pytest.mark.parametrize("target", ["cpp", "cuda", "triton"])
def test_every_problem_comes_with_recorded_replies(target: str) -> None:
    for problem in catalog.names(PROBLEMS):
        assert list(catalog.recording(problem, PROBLEMS).glob(f"write-{target}-*.reply.md")), problem


def test_the_headline_problems_are_solved_in_fp32_too_where_that_is_not_their_own() -> None:
    headline = solved(EVALS / "headline.yaml")
    own = {case.problem.name: catalog.load(case.problem.name, PROBLEMS).arithmetic for case in headline}
    other = {case.problem.name for case in headline if case.arithmetic is Arithmetic.FP32}
    assert other == {name for name, arithmetic in own.items() if arithmetic is not Arithmetic.FP32}
    assert {case.problem.name for case in headline if case.arithmetic is None} == set(own)


def test_level_1_is_numbered_from_1_to_100(checkout: Path) -> None:
    names = [case.problem.name for case in solved(LEVEL_1, checkout)]
    assert [int(name.split("_")[0]) for name in names] == list(range(1, 101))


def test_a_checkout_without_one_of_them_is_refused_by_its_name(checkout: Path) -> None:
    (checkout / "KernelBench" / "level1" / "19_ReLU.py").unlink()
    with pytest.raises(BadInput, match=r"19_ReLU\.py is missing"):
        cases.load(LEVEL_1, checkout)


def test_the_schema_knows_both_kinds_of_cases_and_every_evaluator() -> None:
    schema = cases.schema()
    kinds = schema["$defs"]
    assert kinds["Solve"]["properties"].keys() == Solve.model_fields.keys()
    assert kinds["Subject"]["additionalProperties"] is False
    text = json.dumps(schema)  # report evaluators are named outside of the definitions
    assert all(f'"{kind.__name__}"' in text for kind in (*cases.EVALUATORS, *cases.REPORT_EVALUATORS))
