"""Which kernel is judged where, with judges that are plain classes."""

from __future__ import annotations

import threading
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from made_records import gpu
from whole import evaluated

from agentgen.errors import DeviceLost, JudgeDied, JudgeHangs
from agentgen.records.candidate import Candidate
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Depth, Outcome, Trial
from agentgen.scoring import batch, cases
from agentgen.scoring.benches import Bench, Rota
from agentgen.scoring.cases import Solve
from agentgen.scoring.journal import Journal, Visitor
from agentgen.scoring.verdicts import Verdict

PATIENCE_S = 20.0
DEVICES: tuple[str, ...] = ("cuda:0", "cuda:1")


def visitors(*problems: str) -> list[Visitor]:
    """Returns a case for each, numbered from 0."""
    return [Visitor(str(number), Solve(problem=Path(problem)), "") for number, problem in enumerate(problems)]


def handed_out(rota: Rota, devices: Sequence[str]) -> list[str]:
    """Returns what goes where when the devices ask in this order."""
    found = [(device, rota.next(device)) for device in devices]
    return [f"{device}: {visitor.inputs.problem}{visitor.name}" for device, visitor in found if visitor]


# ---- the rota --------------------------------------------------------------------------------------------------------


def test_one_device_goes_through_the_problems_in_their_order() -> None:
    rota = Rota(visitors("a", "b", "a", "b"))
    assert handed_out(rota, ["x"] * 5) == ["x: a0", "x: a2", "x: b1", "x: b3"]


def test_each_device_has_problems_of_its_own_and_helps_when_none_is_left() -> None:
    rota = Rota(visitors("a", "a", "a", "b", "b", "c", "c", "c"))
    begun = handed_out(rota, ["x", "y", "y", "y", "y", "x"])
    assert begun == ["x: a0", "y: b3", "y: b4", "y: c5", "y: c6", "x: a1"]
    assert handed_out(rota, ["y", "y", "x"]) == ["y: c7", "y: a2"], "it helps, and then nothing is left"


def test_help_goes_to_the_problem_with_the_most_left() -> None:
    rota = Rota(visitors("a", "a", "b", "b", "b", "b", "c"))
    handed_out(rota, ["x", "y", "z"])
    assert handed_out(rota, ["z"]) == ["z: b3"]


def test_a_second_go_begins_when_no_first_is_left() -> None:
    both = [Visitor(f"{one.name}, go {nth}", one.inputs, "", nth) for one in visitors("a", "b") for nth in (1, 2)]
    begun = handed_out(Rota(both), ["x", "y", "x", "y"])
    assert begun == ["x: a0, go 1", "y: b1, go 1", "x: a0, go 2", "y: b1, go 2"]


# ---- a dataset over two devices --------------------------------------------------------------------------------------

HEAD = "name: small\nevaluators: [Decision]\nreport_evaluators: [Confusion, ErrorRates]\ncases:\n"


class House:
    """Opens judges, and knows which device judged which problem."""

    def __init__(self, *, kinds: Sequence[str] = ("a GPU", "a GPU"), meet: bool = True) -> None:
        self.opened: dict[str, list[str]] = {device: [] for device in DEVICES}
        self.open = 0
        self.kinds = dict(zip(DEVICES, kinds, strict=True))
        self.first = threading.Barrier(2) if meet else None
        """Passed by the first kernel of each device, and only while both are at one."""
        self.lock = threading.Lock()
        self.judged: list[tuple[str, str]] = []
        self.stops: list[str] = []

    @contextmanager
    def __call__(self, device: str, folder: Path, arithmetic: Arithmetic | None) -> Generator[Judge]:
        self.opened[device].append(f"{folder.name} in {arithmetic.value}" if arithmetic else folder.name)
        with self.lock:
            self.open += 1
            assert self.open <= len(DEVICES)
        yield Judge(self, device)
        with self.lock:
            self.open -= 1


class Judge:
    """Finds what the source says."""

    def __init__(self, house: House, device: str) -> None:
        self._house = house
        self._device = device
        self._stopped = threading.Event()

    def evaluate(self, candidate: Candidate, *, depth: Depth) -> Trial:
        house, source = self._house, candidate.source
        if house.first and not any(device == self._device for device, _ in house.judged):
            house.first.wait(PATIENCE_S)
        if source.startswith("hangs"):
            assert self._stopped.wait(PATIENCE_S), "nobody stopped it"
            raise JudgeDied("it was stopped")
        if source.startswith("late"):
            assert self._stopped.wait(PATIENCE_S), "nobody stopped it"
        with house.lock:
            house.judged.append((self._device, source))
        if source.startswith("lost"):
            raise DeviceLost("the device is gone")
        if source.startswith("never"):
            raise JudgeHangs("it was not done in time")
        return Trial(
            candidate=candidate.id,
            problem="square",
            arithmetic=Arithmetic.FP32,
            machine=gpu(house.kinds[self._device]),
            outcome=Outcome.PASSED,
        )

    def stop(self) -> None:
        self._house.stops.append(self._device)
        self._stopped.set()


def dataset(folder: Path, *kernels: tuple[str, str]) -> Path:
    """Writes kernels and a dataset: problem and source of each."""
    (folder / "cuda").mkdir()
    text = HEAD
    for number, (problem, source) in enumerate(kernels):
        (folder / "cuda" / f"{number}.py").write_text(source)
        (folder / problem).mkdir(exist_ok=True)
        text += f"- {{name: k{number}, inputs: {{problem: {problem}, kernel: cuda/{number}.py}}, "
        text += "metadata: {devices: [cuda]}, expected_output: {accepted: true}}\n"
    path = folder / "small.yaml"
    path.write_text(text)
    return path


def test_two_devices_judge_at_once_each_its_own_problem(tmp_path: Path) -> None:
    path, house = dataset(tmp_path, *[(problem, f"# {problem}{n}") for problem in "ab" for n in range(4)]), House()
    threads: set[int] = set()

    def on_verdict(_name: str, _verdict: Verdict) -> None:
        threads.add(threading.get_ident())

    report = evaluated(path, house, DEVICES, on_verdict=on_verdict)
    assert batch.as_expected(report)
    assert [case.name for case in report.cases] == [f"k{number}" for number in range(8)]
    assert sorted(source for _, source in house.judged) == [f"# {problem}{n}" for problem in "ab" for n in range(4)]
    assert (house.opened["cuda:0"][0], house.opened["cuda:1"][0]) == ("a", "b")
    assert house.open == 0
    assert threads == {threading.get_ident()}, "what is shown is shown by one thread"


def test_a_kernel_is_judged_to_the_byte(tmp_path: Path) -> None:
    """Its line ends are part of its id, as verify and the leaderboard have it."""
    house = House(meet=False)
    evaluated(dataset(tmp_path, ("a", "x = 1\r\ny = 2\r")), house, devices=DEVICES[:1])
    assert house.judged == [(DEVICES[0], "x = 1\r\ny = 2\r")]


def test_what_is_waited_for_is_not_in_a_case_s_time(tmp_path: Path) -> None:
    path, house = dataset(tmp_path, *[("a", f"# {n}") for n in range(6)]), House(meet=False)

    def slowly(_name: str, _verdict: Verdict) -> None:
        threading.Event().wait(0.05)

    report = evaluated(path, house, DEVICES[:1], on_verdict=slowly)
    first, *_, last = report.cases
    assert last.total_duration < first.total_duration + 0.15, "it waited for five before it"


def test_a_device_that_fails_is_a_failure_of_its_case_and_the_rest_is_judged(tmp_path: Path) -> None:
    path = dataset(tmp_path, ("a", "lost"), ("b", "# 1"), ("b", "# 2"), ("a", "# 3"))
    report = evaluated(path, House(), DEVICES)
    assert [failure.name for failure in report.failures] == ["k0"]
    assert [case.name for case in report.cases] == ["k1", "k2", "k3"]


@pytest.mark.parametrize(("source", "tries"), [("lost", 3), ("never", 1)])
def test_a_machine_that_fails_is_tried_again_and_a_judge_that_hangs_is_not(
    tmp_path: Path, source: str, tries: int
) -> None:
    house = House(meet=False)
    report = evaluated(dataset(tmp_path, ("a", source)), house, DEVICES[:1])
    assert [failure.name for failure in report.failures] == ["k0"]
    assert [judged for _, judged in house.judged] == [source] * tries


def test_two_kinds_of_devices_are_not_mixed_up(tmp_path: Path) -> None:
    path, house = dataset(tmp_path, ("a", "# 0"), ("b", "# 1")), House(kinds=("a GPU", "another GPU"))
    report = evaluated(path, house, DEVICES)
    assert (len(report.cases), len(report.failures)) == (1, 1)
    assert "another kind of machine" in report.failures[0].error_message


def test_an_interrupt_ends_all_judges(tmp_path: Path) -> None:
    path, house = dataset(tmp_path, ("a", "# 0"), ("b", "hangs"), ("a", "# 2"), ("a", "# 3")), House()

    def interrupt(_name: str, _verdict: Verdict) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        evaluated(path, house, DEVICES, on_verdict=interrupt)
    assert sorted(house.stops) == list(DEVICES)
    assert house.open == 0
    assert [source for _, source in house.judged] == ["# 0"]


def test_at_the_end_each_device_is_left_by_the_thread_that_judged_there(tmp_path: Path) -> None:
    path = dataset(tmp_path, ("a", "# 0"), ("b", "# 1"))
    house, left = House(), dict[str, str]()

    def leave(device: str) -> None:
        left[device] = threading.current_thread().name

    evaluated(path, house, DEVICES, at_end=leave)
    assert left == {device: f"bench of {device}" for device in DEVICES}


def test_a_kernel_that_takes_too_long_is_a_failure_and_the_next_has_a_new_judge(tmp_path: Path) -> None:
    path = dataset(tmp_path, ("a", "hangs"), ("a", "# 1"), ("a", "# 2"))
    house = House(meet=False)
    report = evaluated(path, house, DEVICES[:1], limit_s=0.3)
    assert [failure.name for failure in report.failures] == ["k0"]
    assert "no verdict within" in report.failures[0].error_message
    assert [case.name for case in report.cases] == ["k1", "k2"]
    assert house.opened["cuda:0"] == ["a", "a"]


def test_a_kernel_is_judged_in_the_arithmetic_of_its_case(tmp_path: Path) -> None:
    path, house = dataset(tmp_path, ("a", "# 0"), ("a", "# 1"), ("a", "# 2")), House(meet=False)
    path.write_text(path.read_text().replace("cuda/1.py", "cuda/1.py, arithmetic: bf16"))
    evaluated(path, house, DEVICES[:1])
    assert house.opened["cuda:0"] == ["a", "a in bf16", "a"]
    in_order = cases.on_device(cases.load(path), "cuda").cases
    assert [case.name for case in in_order] == ["k0", "k2", "k1"], "a judge stays open for all that it can do"


def test_a_verdict_that_comes_while_the_limit_interrupts_counts(tmp_path: Path) -> None:
    path = dataset(tmp_path, ("a", "late"), ("a", "# 1"))
    house = House(meet=False)
    report = evaluated(path, house, DEVICES[:1], limit_s=0.3)
    assert ([case.name for case in report.cases], report.failures) == (["k0", "k1"], [])
    assert house.opened["cuda:0"] == ["a", "a"], "one that a stop has reached answers nobody any more"


def test_a_search_is_stopped_with_its_bench(tmp_path: Path) -> None:
    (tmp_path / "p").mkdir()
    path = tmp_path / "two.yaml"
    path.write_text("name: two\ncases: [{name: a, inputs: {problem: p}}, {name: b, inputs: {problem: p}}]")
    stopped, begun = threading.Event(), list[str]()

    def solve(_device: str, visitor: Visitor) -> tuple[Verdict, None]:
        begun.append(visitor.name)
        if visitor.name == "b":
            assert stopped.wait(PATIENCE_S), "nobody stopped it"
            raise JudgeDied("it was stopped")
        return Verdict(accepted=False), None

    def interrupt(_name: str, _verdict: Verdict) -> None:
        raise KeyboardInterrupt

    cases_of, benches = cases.load(path), list[Bench]()
    for device in DEVICES:
        benches.append(Bench(device, tmp_path, House(), solve, stop_solving=lambda _device: stopped.set()))
    with pytest.raises(KeyboardInterrupt):
        batch.evaluate(cases_of, benches, Journal(tmp_path / "j.jsonl", tmp_path), interrupt)
    assert stopped.is_set()
    assert sorted(begun) == ["a", "b"], "and none is begun again"
