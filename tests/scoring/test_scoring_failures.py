"""What runs could not do: which failures there are, which cases they become, and the file that these are put into."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import pytest
from past_runs import MACHINE, RUN, kernel, ledger_of, trial
from whole import evaluated

from agentgen.errors import BadInput
from agentgen.models.mailbox import ANONYMOUS
from agentgen.records.candidate import Language
from agentgen.records.chat import ChatReply, ChatRequest, Role
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Plan, RunStatus, Strategy
from agentgen.records.trial import Outcome
from agentgen.scoring import cases
from agentgen.scoring.batch import as_expected
from agentgen.scoring.cases import Solve, Subject
from agentgen.scoring.failures import Refused, Unsolved, by_cause, entry_of, failures_of, models_of
from agentgen.scoring.journal import Visitor
from agentgen.scoring.promoted import Entry, known, put, replace
from agentgen.scoring.verdicts import Verdict
from agentgen.store.ledger import Ledger

GOOD, WRONG, CRASHED, WAITS = (kernel(f"class ModelNew: '{word}'\n") for word in ("good", "wrong", "crashed", "waits"))
PASSED = trial(GOOD, Outcome.PASSED)
BAD_VALUES = trial(WRONG, Outcome.WRONG_VALUES, "relative L2 is 0.5", by=["values: tiny"])
SIGNAL = trial(CRASHED, Outcome.CRASHED, "the guest was ended by signal 11")


def refused(ledger: Ledger) -> list[Refused]:
    return [failure for failure in failures_of(ledger, ledger.run(RUN.id)) if isinstance(failure, Refused)]


def entries(ledger: Ledger, *, wrongly: bool = False) -> list[Entry]:
    run = ledger.run(RUN.id)
    models = models_of(ledger, run)
    found = failures_of(ledger, run)
    return [entry_of(one, Path("square"), Path("past_failures"), models, wrongly=wrongly) for one in found]


def dataset(folder: Path) -> Path:
    (folder / "square").mkdir(exist_ok=True)
    return folder / "past_failures.yaml"


def names(path: Path) -> Sequence[str | None]:
    return [case.name for case in cases.load(path).cases]


def test_what_was_refused_is_a_failure_and_what_waits_is_none(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, (GOOD, PASSED), (WRONG, BAD_VALUES), (CRASHED, SIGNAL), (WAITS, None))
    assert [failure.cause for failure in failures_of(ledger, RUN)] == [
        "square, cpp: WRONG_VALUES, values",
        "square, cpp: CRASHED, the guest was ended by signal N",
    ]


def test_the_latest_trial_of_a_candidate_counts(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, (WRONG, BAD_VALUES))
    ledger.add_trial(RUN.id, trial(WRONG, Outcome.PASSED))
    assert failures_of(ledger, RUN) == []


@pytest.mark.parametrize(
    ("status", "outcomes", "unsolved"),
    [
        (RunStatus.DONE, [Outcome.CRASHED], True),
        (RunStatus.DONE, [], True),
        (RunStatus.DONE, [Outcome.CRASHED, Outcome.PASSED], False),
        (RunStatus.DONE, [Outcome.NOT_RUN], False),
        (RunStatus.STOPPED, [Outcome.CRASHED], True),
        (RunStatus.STOPPED, [], False),
        (RunStatus.WAITING, [Outcome.CRASHED], False),
        (RunStatus.OPEN, [Outcome.CRASHED], False),
    ],
)
def test_a_problem_is_unsolved_once_a_run_is_over(
    tmp_path: Path, status: RunStatus, outcomes: Sequence[Outcome], unsolved: bool
) -> None:
    made = [kernel(f"{number}") for number in range(len(outcomes))]
    tried = [(one, trial(one, outcome, "why")) for one, outcome in zip(made, outcomes, strict=True)]
    run = RUN.model_copy(update={"status": status})
    found = failures_of(ledger_of(tmp_path, *tried, run=run), run)
    assert any(isinstance(failure, Unsolved) for failure in found) is unsolved


def test_failures_of_a_cause_are_together(tmp_path: Path) -> None:
    again = kernel("other")
    other = trial(again, Outcome.WRONG_VALUES, "relative L2 is 0.25", by=["values: main"])
    ledger = ledger_of(tmp_path, (GOOD, PASSED), (WRONG, BAD_VALUES), (CRASHED, SIGNAL), (again, other))
    assert [len(found) for found in by_cause(failures_of(ledger, RUN)).values()] == [2, 1]


def test_a_refused_kernel_becomes_a_case_that_its_own_trial_meets(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, (GOOD, PASSED), (WRONG, BAD_VALUES), (CRASHED, SIGNAL))
    path = dataset(tmp_path)
    put(path, entries(ledger))
    loaded = {case.inputs.kernel.name: case for case in cases.kernels(cases.load(path))}
    crashed, wrong = (loaded[f"square-{one.id[:8]}.py"] for one in (CRASHED, WRONG))
    assert wrong.expected_output == Verdict(accepted=False, outcome=Outcome.WRONG_VALUES, by=("values",))
    assert wrong.name == f"square/cpp/{WRONG.id[:8]}"
    assert (tmp_path / wrong.inputs.kernel).read_text() == WRONG.source
    assert cases.language_of(wrong.inputs) is Language.CPP
    assert crashed.expected_output
    assert crashed.expected_output.reasons == ("the guest was ended by signal N",)
    for case, judged in ((crashed, SIGNAL), (wrong, BAD_VALUES)):
        assert case.expected_output
        assert Verdict.of(judged).caused_by(case.expected_output)
        assert case.metadata
        assert case.metadata.devices == ("cpu",)
        assert case.metadata.past
        assert case.metadata.past.models == ("a-model",)
    assert not Verdict.of(BAD_VALUES).caused_by(crashed.expected_output)
    assert "/home/" not in path.read_text()


def test_another_reason_is_another_cause() -> None:
    wanted = Verdict(accepted=False, outcome=Outcome.BUILD_FAILED, reasons=("k.cu(N): error: no x",))
    said = Verdict(accepted=False, outcome=Outcome.BUILD_FAILED, reasons=("k.cu(3): error: no x",))
    other = Verdict(accepted=False, outcome=Outcome.BUILD_FAILED, reasons=("there is no compiler",))
    assert said.caused_by(wanted)
    assert not other.caused_by(wanted)


def test_a_refusal_in_error_must_pass(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path, (GOOD, PASSED), (WRONG, BAD_VALUES))
    (right,) = entries(ledger, wrongly=True)
    (failing,) = entries(ledger)
    assert right.expected == Verdict(accepted=True)
    assert right.key != failing.key  # one does not stand in the other's way


def test_an_unsolved_problem_is_to_be_solved_by_whoever_is_asked(tmp_path: Path) -> None:
    plan = Plan(strategy=Strategy.REFINE, rounds=1)
    run = RUN.model_copy(update={"arithmetic": Arithmetic.BF16, "plan": plan})
    found = failures_of(ledger_of(tmp_path, (CRASHED, SIGNAL), run=run), run)
    path = dataset(tmp_path)
    put(path, [entry_of(found[-1], Path("square"), Path("past_failures"), ["a-model"])])
    (case,) = cases.load(path).cases
    assert case.name == "solve/square in bf16/cpu/cpp"
    assert case.metadata
    assert case.metadata.past
    assert case.metadata.past.cause == "square in bf16, cpp on cpu: unsolved"  # in its own arithmetic it is another one
    assert case.inputs == Solve(
        problem=Path("square"),
        arithmetic=Arithmetic.BF16,
        languages=(Language.CPP,),
        strategy=Strategy.REFINE,
        rounds=1,
    )
    assert case.expected_output == Verdict(accepted=True)
    assert cases.without_unsolved(cases.load(path)).cases == []


@pytest.mark.parametrize("accepted", [True, False])
def test_what_is_due_of_an_unsolved_problem_is_a_solution(tmp_path: Path, accepted: bool) -> None:
    run = failures_of(ledger_of(tmp_path, run=RUN), RUN)
    path = dataset(tmp_path)
    put(path, [entry_of(run[-1], Path("square"), Path("past_failures"), ["a-model"])])
    outcome = Outcome.PASSED if accepted else None  # no kernel was even written

    def solve(_device: str, _visitor: Visitor) -> tuple[Verdict, None]:
        return Verdict(accepted=accepted, outcome=outcome), None

    report = evaluated(path, no_judge, solve=solve)
    (case,) = report.cases
    assert case.evaluator_failures == []
    assert case.assertions["Decision"].value is accepted
    assert as_expected(report) is accepted


def no_judge(_device: str, folder: Path, _arithmetic: Arithmetic | None) -> NoReturn:
    raise AssertionError(f"nothing of {folder} is to be judged")


def test_who_answered_in_a_mailbox_can_be_said(tmp_path: Path) -> None:
    ledger = ledger_of(tmp_path)
    request = ChatRequest(role=Role.IDEAS, problem="square", target="cpu", parent="other", system="s", prompt="p")
    ledger.add_reply(RUN.id, request, ChatReply(text="ideas", model=ANONYMOUS))
    assert models_of(ledger, RUN) == ("a-model", ANONYMOUS)
    assert models_of(ledger, RUN, "somebody") == ("a-model", "somebody")


def test_a_kernel_in_another_arithmetic_is_judged_in_that_again(tmp_path: Path) -> None:
    run = RUN.model_copy(update={"arithmetic": Arithmetic.BF16})
    found = failures_of(ledger_of(tmp_path, (CRASHED, SIGNAL), run=run), run)
    entry = entry_of(found[0], Path("square"), Path("past_failures"), [])
    assert entry.name == f"square in bf16/cpp/{CRASHED.id[:8]}"
    assert isinstance(entry.inputs, Subject)
    assert entry.inputs.arithmetic is Arithmetic.BF16
    assert found[0].cause == "square in bf16, cpp: CRASHED, the guest was ended by signal N"


def test_the_run_on_a_gpu_is_decided_on_a_gpu(tmp_path: Path) -> None:
    gpu = MACHINE.model_copy(update={"device_type": "cuda", "device": "a GPU"})
    judged = trial(WRONG, Outcome.WRONG_VALUES, "why", by=["values: main"], machine=gpu)
    (entry,) = entries(ledger_of(tmp_path, (GOOD, PASSED), (WRONG, judged)))
    assert entry.about.devices == ("cuda",)
    assert entry.about.past
    assert entry.about.past.machine == "a GPU"


def test_cases_come_in_the_order_of_their_names_and_words_of_people_stay(tmp_path: Path) -> None:
    path = dataset(tmp_path)
    made = entries(ledger_of(tmp_path, (GOOD, PASSED), (WRONG, BAD_VALUES), (CRASHED, SIGNAL)))
    first, last = sorted(made, key=lambda entry: entry.name)
    put(path, [last])
    path.write_text("# ours\n" + path.read_text() + "  # the end\n")
    put(path, [first])
    assert names(path) == [first.name, last.name]
    assert path.read_text().startswith("# ours\n")
    assert path.read_text().endswith("  # the end\n")
    assert set(known(path).values()) == {first.name, last.name}
    assert known(path)[first.key] == first.name


LAYOUTS = {
    "lists above": "name: x\nevaluators:\n- Decision\n- Cause\ncases:\n{cases}",
    "lists below": "name: x\ncases:\n{cases}evaluators:\n- Decision\n",
    "cases further in": "name: x\ncases:\n  {indented}evaluators: [Decision]\n",
}
BETWEEN = "- name: square/m\n  inputs: {problem: square, kernel: m/cpp/m.py}\n  metadata: {devices: [cpu]}\n"


@pytest.mark.parametrize("layout", LAYOUTS)
def test_cases_are_put_into_a_dataset_however_it_is_laid_out(tmp_path: Path, layout: str) -> None:
    path = dataset(tmp_path)
    made = entries(ledger_of(tmp_path, (GOOD, PASSED), (WRONG, BAD_VALUES), (CRASHED, SIGNAL)))
    (tmp_path / "m/cpp").mkdir(parents=True)
    (tmp_path / "m/cpp/m.py").write_text("")
    indented = BETWEEN.rstrip().replace("\n", "\n  ") + "\n"
    path.write_text(LAYOUTS[layout].replace("{cases}", BETWEEN).replace("{indented}", indented))
    put(path, made)
    assert names(path) == sorted([*(entry.name for entry in made), "square/m"])
    assert len(cases.load(path).evaluators) == (2 if layout == "lists above" else 1)
    before = path.read_text()
    with pytest.raises(BadInput, match="already"):
        put(path, made)
    assert path.read_text() == before


def test_cases_in_brackets_are_refused_in_a_line_that_names_the_file(tmp_path: Path) -> None:
    path = dataset(tmp_path)
    path.write_text("name: x\ncases: []\n")
    with pytest.raises(BadInput, match=rf"{path}: its cases stand in brackets"):
        put(path, entries(ledger_of(tmp_path, (GOOD, PASSED), (WRONG, BAD_VALUES))))
    assert path.read_text() == "name: x\ncases: []\n"


def test_a_name_is_given_once_and_nothing_is_half_written(tmp_path: Path) -> None:
    path = dataset(tmp_path)
    made = entries(ledger_of(tmp_path, (GOOD, PASSED), (WRONG, BAD_VALUES)))
    put(path, made)
    before = path.read_text()
    with pytest.raises(BadInput, match="already"):
        put(path, made)
    (tmp_path / "square").rmdir()  # such a case would be of no use
    elsewhere = Subject(problem=Path("none"), kernel=Path("past_failures/cpp/none.py"))
    with pytest.raises(BadInput, match=rf"^{path}: .* is missing"):
        put(path, [Entry("x", elsewhere, made[0].about, made[0].expected)])
    assert path.read_text() == before
    assert [file.name for file in tmp_path.glob("*part*")] == []


def test_nothing_is_known_where_nothing_is(tmp_path: Path) -> None:
    assert known(tmp_path / "none.yaml") == {}


def test_the_kernel_of_the_run_stays_beside_smaller_ones(tmp_path: Path) -> None:
    file = tmp_path / "square-12345678.py"
    file.write_text("first")
    replace(file, "second")
    replace(file, "third")
    assert file.read_text() == "third"
    assert (tmp_path / "square-12345678.original.py").read_text() == "first"
