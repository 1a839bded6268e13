"""A dataset from file to report, with a judge that knows its answers: what is counted, what is said, what is kept."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest
from made_records import cpu
from whole import evaluated

from agentgen.errors import BadInput, DeviceLost, StoreUnavailable
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Check, Depth, Outcome, Trial
from agentgen.report.evaluation import stage_seconds, summary
from agentgen.scoring import batch, cases
from agentgen.scoring.batch import Report

HEAD = """
name: small
evaluators: [Decision, Cause]
report_evaluators: [Confusion, ErrorRates]
cases:
"""
MACHINE = cpu("a CPU")
PLACES = {"values": "values: main"}


class Judge:
    """A source says itself what is to be found: an outcome, then the checks that fail."""

    def evaluate(self, candidate: Candidate, *, depth: Depth) -> Trial:
        outcome, *by = candidate.source.split()
        if outcome == "lost":
            raise DeviceLost("the device is gone")
        return Trial(
            candidate=candidate.id,
            problem="square",
            arithmetic=Arithmetic.FP32,
            machine=MACHINE,
            outcome=Outcome(outcome),
            reasons=("because",) if outcome != "PASSED" else (),
            checks=tuple(Check(name=PLACES.get(name, name), passed=False, evidence="wrong") for name in by),
            seconds={"build": 0.5 + len(candidate.source)},
        )

    def stop(self) -> None:
        """It is never in the middle of anything."""


class Opened:
    """Which judges were opened, and whether they were closed."""

    def __init__(self) -> None:
        self.problems: list[str] = []
        self.open = 0

    @contextmanager
    def __call__(self, _device: str, folder: Path, _arithmetic: Arithmetic | None) -> Generator[Judge]:
        self.problems.append(folder.name)
        self.open += 1
        assert self.open == 1, "two judges at once"
        yield Judge()
        self.open -= 1


def dataset(folder: Path, *lines: tuple[str, str, str], problem: str = "square") -> Path:
    """Writes kernels and a dataset: name, source, the expected verdict in YAML."""
    text = HEAD
    for made in ("cpp", "square", "cube"):
        (folder / made).mkdir(exist_ok=True)
    for name, source, expected in lines:
        (folder / "cpp" / f"{name}.py").write_text(source)
        text += f"- name: {name}\n  inputs: {{problem: {problem}, kernel: cpp/{name}.py}}\n"
        text += f"  metadata: {{devices: [cpu]}}\n  expected_output: {expected}\n"
    path = folder / "small.yaml"
    path.write_text(text)
    return path


def report_of(path: Path, opened: Opened | None = None) -> batch.Report:
    return evaluated(path, opened or Opened())


def rates(report: batch.Report) -> dict[str, tuple[int, int]]:
    found = summary(report)["rates"]
    return {name: (rate["count"], rate["of"]) for name, rate in found.items()}


def test_what_is_expected_is_fine(tmp_path: Path) -> None:
    path = dataset(
        tmp_path,
        ("honest", "PASSED", "{accepted: true}"),
        ("cheat", "WRONG_VALUES values", "{accepted: false, by: [values]}"),
    )
    report = report_of(path)
    assert batch.as_expected(report)
    assert rates(report) == {"false accepts": (0, 1), "false rejects": (0, 1)}


def test_both_errors_are_counted_apart(tmp_path: Path) -> None:
    path = dataset(
        tmp_path,
        ("honest", "CHEATED clocks", "{accepted: true}"),
        ("second", "PASSED", "{accepted: true}"),
        ("cheat", "PASSED", "{accepted: false}"),
    )
    report = report_of(path)
    assert not batch.as_expected(report)
    assert rates(report) == {"false accepts": (1, 1), "false rejects": (1, 2)}


@pytest.mark.parametrize(
    ("found", "expected", "right"),
    [
        ("WRONG_VALUES values", "{accepted: false, by: [one element, values]}", True),
        ("WRONG_VALUES values", "{accepted: false, by: [one element]}", False),
        ("SCREENED_OUT screen", "{accepted: false, by: [one element]}", True),
        ("CRASHED", "{accepted: false, outcome: CRASHED}", True),
        ("TIMED_OUT", "{accepted: false, outcome: CRASHED}", False),
        ("CRASHED", "{accepted: false, outcome: CRASHED, reasons: [because]}", True),
        ("CRASHED", "{accepted: false, outcome: CRASHED, reasons: [something else]}", False),
    ],
)
def test_the_cause_is_looked_at(tmp_path: Path, found: str, expected: str, right: bool) -> None:
    report = report_of(dataset(tmp_path, ("cheat", found, expected)))
    (case,) = report.cases
    assert case.assertions["Decision"].value is True
    assert case.assertions["Cause"].value is right
    assert batch.as_expected(report) is right


def test_a_machine_that_fails_is_no_verdict(tmp_path: Path) -> None:
    path = dataset(tmp_path, ("honest", "lost", "{accepted: true}"), ("second", "PASSED", "{accepted: true}"))
    report = report_of(path)
    assert not batch.as_expected(report)
    assert [failure.name for failure in report.failures] == ["honest"]
    assert rates(report) == {"false accepts": (0, 0), "false rejects": (0, 1)}


def test_one_judge_is_open_at_a_time_and_all_are_closed(tmp_path: Path) -> None:
    first = dataset(tmp_path, ("one", "PASSED", "{accepted: true}"), ("two", "PASSED", "{accepted: true}"))
    text = first.read_text()
    first.write_text(text.replace("problem: square, kernel: cpp/two", "problem: cube, kernel: cpp/two"))
    opened = Opened()
    report_of(first, opened)
    assert opened.problems == ["square", "cube"]
    assert opened.open == 0


def test_each_go_has_judges_of_its_own(tmp_path: Path) -> None:
    path, opened = (
        dataset(tmp_path, ("one", "PASSED", "{accepted: true}"), ("two", "PASSED", "{accepted: true}")),
        Opened(),
    )
    told: list[str] = []
    report = evaluated(path, opened, repeat=3, on_verdict=lambda name, _: told.append(name))
    assert sorted(told) == sorted(case.name for case in report.cases)
    assert [case.name for case in report.cases] == [f"{name} [{nth}/3]" for name in ("one", "two") for nth in (1, 2, 3)]
    assert opened.problems == ["square"] * 3
    assert opened.open == 0


def test_a_report_is_kept_whole_and_names_no_folder_of_this_machine(tmp_path: Path) -> None:
    report = report_of(dataset(tmp_path, ("honest", "PASSED", "{accepted: true}")))
    kept = tmp_path / "deep" / "report.json"
    batch.save(report, kept)
    assert summary(batch.read(kept)) == summary(report)
    assert str(tmp_path) not in kept.read_text()


def test_what_was_kept_stays_whole_until_the_new_report_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kept").write_text("old")
    (tmp_path / "link").symlink_to("kept")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("os.replace", full)
        with pytest.raises(StoreUnavailable, match="No space left"):
            batch.save(Report(name="r", cases=[]), tmp_path / "link")
    assert (tmp_path / "kept").read_text() == "old"
    batch.save(Report(name="r", cases=[]), tmp_path / "link")
    assert batch.read(tmp_path / "kept").name == "r"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["kept", "link"]


def test_seconds_are_those_of_accepted_kernels(tmp_path: Path) -> None:
    path = dataset(tmp_path, ("honest", "PASSED", "{accepted: true}"), ("cheat", "CRASHED", "{accepted: false}"))
    assert stage_seconds(report_of(path)) == {"build": 6.5}


def test_cases_for_another_device_are_left_out(tmp_path: Path) -> None:
    every = cases.load(dataset(tmp_path, ("honest", "PASSED", "{accepted: true}")))
    assert len(cases.on_device(every, "cpu").cases) == 1
    assert cases.on_device(every, "cuda").cases == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name: x\ncases: [{name: a, inputs: {problem: p}, expected_output: {accepted: true}}]", "missing"),
        ("name: x\ncases: [{name: a, inputs: {problem: p, kernle: k}}]", "kernle"),
        ("name: x\ncases: [{name: a, inputs: {problem: p, kernel: k}, expected_output: {accept: true}}]", "accept"),
        ("name: x\nevaluators: [Nonsense]\ncases: []", "Nonsense"),
        ("[", "no dataset"),
        ("name: x\ncases: [{name: a, inputs: {problem: .}}, {inputs: {problem: .}}]", "case 2 has no name"),
        ("name: x\ncases: [{name: '', inputs: {problem: .}}]", "case 1 has no name"),
        ("name: x\ncases: [{name: a, inputs: {problem: ., kernel: cpp/none.py}}]", "cpp/none.py is missing"),
        ("name: x\ncases: [{name: a, inputs: {problem: p, kernel: bad.yaml}}]", "p is missing"),
        ('name: x\ncases: [{name: a, inputs: {problem: "p\\0", kernel: bad.yaml}}]', "is missing"),
        (f"name: x\ncases: {'[' * 3000}{']' * 3000}", "no dataset of cases: it is nested too deep"),
    ],
)
def test_a_bad_dataset_is_one_line(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "bad.yaml"
    path.write_text(text)
    with pytest.raises(BadInput, match=said):
        cases.load(path)


def test_a_dataset_that_is_not_there_is_bad_input(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot read"):
        cases.load(tmp_path / "none.yaml")


def test_the_language_is_the_folder_s_name(tmp_path: Path) -> None:
    subject = cases.Subject(problem=Path("p"), kernel=Path("cuda/k.py"))
    assert cases.language_of(subject) is Language.CUDA
    with pytest.raises(BadInput, match="language"):
        cases.language_of(cases.Subject(problem=Path("p"), kernel=Path("elsewhere/k.py")))
