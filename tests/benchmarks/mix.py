"""A mix of candidates whose verdict is known: honest kernels and cheats of the judge's own evaluation set.

On a CPU in C++, of the small problems of `tests/problems`; on a GPU in Triton and CUDA, of softmax, LayerNorm, conv2d,
matmul and an affine map, at the sizes of `problems/` as well (cheats only of `tests/problems`: their verdict is known
there).
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import DeviceType, Problem
from agentgen.records.trial import Depth
from agentgen.scoring.cases import KernelCase, kernels, language_of, load, on_device
from agentgen.store import catalog

ROOT = Path(__file__).resolve().parents[2]
DATASET = ROOT / "evals" / "judge.yaml"
CATALOG = ROOT / "problems"
HOSTILE_SHARE = 1 / 3
LANGUAGES: dict[DeviceType, tuple[Language, ...]] = {
    "cpu": (Language.CPP,),
    "cuda": (Language.TRITON, Language.CUDA),
}
PROBLEMS = ("affine", "conv2d", "layernorm", "matmul", "norm", "softmax")
MORE: dict[DeviceType, tuple[tuple[str, str], ...]] = {
    "cpu": (),
    "cuda": (("problems/softmax", "cuda/softmax_online"), ("problems/softmax", "cuda/softmax_several_kernels")),
}
"""Honest kernels that are also right at the size of another problem than the set's own."""


@dataclass(frozen=True)
class Entry:
    """One candidate, and what is known of it."""

    name: str
    kind: str
    """`honest`, `cheat`, or the name of a fault."""
    problem: Path
    """The problem's folder."""
    candidate: Candidate

    @property
    def place(self) -> str:
        """The problem's folder in the repository: there are two problems of some names."""
        return self.problem.relative_to(ROOT).as_posix()

    @property
    def honest(self) -> bool:
        """Whether it is to be accepted."""
        return self.kind == "honest"

    def stated(self) -> Problem:
        """Returns the problem."""
        return catalog.load(str(self.problem), CATALOG)


def device_type(device: str) -> DeviceType:
    """Returns the kind of a device."""
    return "cpu" if device == "cpu" else "cuda"


def known(device: str, problems: Collection[str] = PROBLEMS) -> list[Entry]:
    """Returns every candidate of some problems that a mix is made of, once."""
    kind = device_type(device)
    cases = [case for case in kernels(on_device(load(DATASET), kind)) if _wanted(case, kind)]
    more = [_honest(ROOT / problem, ROOT / "tests" / "honest" / f"{kernel}.py") for problem, kernel in MORE[kind]]
    return [entry for entry in (*map(_of_case, cases), *more) if entry.problem.name in problems]


def mix(device: str, count: int, problems: Collection[str] = PROBLEMS, seed: int = 0) -> list[Entry]:
    """Returns `count` candidates, a third of them hostile, those of one problem together."""
    hostile = int(count * HOSTILE_SHARE)
    every = known(device, problems)
    honest = pick([entry for entry in every if entry.honest], count - hostile, seed)
    return grouped([*honest, *pick([entry for entry in every if not entry.honest], hostile, seed)])


def pick(entries: Sequence[Entry], count: int, seed: int) -> list[Entry]:
    """Returns `count` of them: from each problem in turn, none twice before all of it were there once.

    Raises:
        ValueError: there are none to pick from.
    """
    if count and not entries:
        raise ValueError("of these problems there are not both honest kernels and cheats for this device")
    shuffled = list(entries)
    random.Random(seed).shuffle(shuffled)
    problems = sorted({entry.problem for entry in shuffled})
    sources = {problem: cycle([entry for entry in shuffled if entry.problem == problem]) for problem in problems}
    return [next(sources[problem]) for problem in islice(cycle(problems), count)]


def grouped(entries: Iterable[Entry]) -> list[Entry]:
    """Returns them with those of one problem together."""
    return sorted(entries, key=lambda entry: str(entry.problem))


def _wanted(case: KernelCase, kind: DeviceType) -> bool:
    """Not those that need a certificate, and on a CPU not those that only times tell: they want a quiet machine, and a
    soak or a benchmark is not always alone."""
    subject = case.inputs
    return (
        language_of(subject) in LANGUAGES[kind]
        and subject.depth is Depth.JUDGE
        and not (kind == "cpu" and "every call counts" in (case.expected_output.by if case.expected_output else ()))
    )


def _of_case(case: KernelCase) -> Entry:
    assert case.expected_output
    folder, kernel = ((DATASET.parent / path).resolve() for path in (case.inputs.problem, case.inputs.kernel))
    candidate = Candidate(source=kernel.read_text(encoding="utf-8"), language=language_of(case.inputs))
    return Entry(str(case.name), "honest" if case.expected_output.accepted else "cheat", folder, candidate)


def _honest(problem: Path, kernel: Path) -> Entry:
    language = Language(kernel.parent.name)
    candidate = Candidate(source=kernel.read_text(encoding="utf-8"), language=language)
    return Entry(f"honest/{language}/{kernel.stem} at {problem.name}", "honest", problem, candidate)
