"""One kernel to one trial: what `verify`, `bench`, `reverify` and `leaderboard add` share, and how kernels' files are
read. Nothing here goes into the run database."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from os.path import expanduser
from pathlib import Path

from agentgen import config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import DisplayName
from agentgen.cli.screen import screen
from agentgen.config import Layer
from agentgen.errors import BadInput
from agentgen.records.candidate import Candidate, Language
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.run import Effort
from agentgen.records.trial import Depth, Trial
from agentgen.report.live.clock import stages
from agentgen.report.trial import findings, trial_json
from agentgen.workers.devices import find_device

REJECTED = 1

_SIGNS = (
    (Language.CUDA, re.compile(r"\bjit\.cuda\b|\bcuda_sources\b|\b__global__\b")),
    (Language.TRITON, re.compile(r"\btriton\.jit\b|^\s*from\s+triton\s+import\b.*\bjit\b", re.MULTILINE)),
    (Language.CPP, re.compile(r"\bjit\.cpp\b|\bcpp_sources\b|\bload_inline\b")),
)


@dataclass(frozen=True, slots=True)
class Asked:
    """What a command line asks to be judged."""

    paths: tuple[str, ...]
    """Problem and candidate; with a reference the candidate only."""
    reference: Path | None
    layer: Layer
    """Device and arithmetic."""
    language: str | None
    effort: Effort
    timing: bool
    display: DisplayName | None
    depth: Depth = Depth.JUDGE
    explanations: Mapping[str, str] = field(default_factory=dict[str, str])
    """What the checks are about, where that is asked for."""


@dataclass(frozen=True, slots=True)
class Subject:
    """One kernel, and what it is judged for."""

    title: str
    problem: Problem
    candidate: Candidate
    device: str
    arithmetic: Arithmetic


@dataclass(frozen=True, slots=True)
class Judged:
    """What was found of a kernel."""

    trial: Trial
    workload: str
    """The one that was timed."""


def evaluate(asked: Asked, *, as_json: bool) -> int:
    """Judges a kernel, shows what was found, and returns the exit code.

    Raises:
        BadInput: a file cannot be read, or an argument is missing or too many.
    """
    subject = _subject(asked)
    return told(subject, judged(subject, asked).trial, as_json=as_json)


def _subject(asked: Asked) -> Subject:
    settings = config.here(asked.layer)
    problem_name, path = _split(asked)
    if asked.reference:
        problem = wiring.problem_of_file(asked.reference)
    else:
        problem = wiring.find_problem(settings, problem_name)
    source = read_source(path)
    language = Language(asked.language) if asked.language else guess(source)
    device = find_device(settings.device, (language,) if language else ())
    arithmetic = wiring.find_arithmetic(settings, problem, device)
    # No sign of a language: torch alone, or no Python at all. What it is called then makes no difference to the judge.
    candidate = Candidate(source=source, language=language or Language.CPP)
    return Subject(str(path), problem, candidate, device, arithmetic)


def told(subject: Subject, trial: Trial, *, as_json: bool) -> int:
    """Tells programs what was found of a kernel, and returns the exit code."""
    if as_json:
        answer({**trial_json(trial), "language": subject.candidate.language.value, "device": subject.device})
    return 0 if trial.accepted else REJECTED


def judged(subject: Subject, asked: Asked, allowed: Callable[[Machine], None] = lambda _: None) -> Judged:
    """Judges a kernel as deep as is asked, with a judge of its own, and shows what was found.

    Args:
        subject: the kernel.
        asked: how deep.
        allowed: raises, before anything is judged, where it need not be on this machine.
    """
    console = screen(asked.display)
    problem, candidate, device = subject.problem, subject.candidate, subject.device
    arithmetic = subject.arithmetic
    title = f"{subject.title} ({candidate.language.value}) for {problem.name} in {arithmetic.value} on {device}"
    console.meanwhile.print(title)
    judge = wiring.judge(config.here(asked.layer), problem, device, arithmetic, asked.effort)
    with judge, stages(console, console.display) as on_stage:
        target = judge.target(on_stage)
        allowed(target.machine)
        workload = target.workload
        trial = judge.evaluate(candidate, on_stage, timing=asked.timing, depth=asked.depth)
    if workload != problem.main.name:
        console.print(f"timed at workload {workload!r}: the device has too little memory for main")
    console.print(findings(trial, all_accuracy=asked.effort is Effort.FULL, explanations=asked.explanations))
    return Judged(trial, workload)


def guess(source: str) -> Language | None:
    """Returns the language that a candidate's text looks like; None where nothing tells."""
    return next((language for language, sign in _SIGNS if sign.search(source)), None)


def _split(asked: Asked) -> tuple[str, Path]:
    """Returns the problem, empty where a reference stands for it, and the candidate's file."""
    wanted = ("CANDIDATE",) if asked.reference else ("PROBLEM", "CANDIDATE")
    if len(asked.paths) != len(wanted):
        beside = " beside --reference" if asked.reference else " (or --reference FILE CANDIDATE)"
        raise BadInput(f"give {' and '.join(wanted)}{beside}; {len(asked.paths)} given: {' '.join(asked.paths)}")
    return "" if asked.reference else asked.paths[0], Path(expanduser(asked.paths[-1]))


def read_source(path: Path) -> str:
    """Returns the source of a candidate to the byte: its line ends are part of what is hashed.

    Raises:
        BadInput: it cannot be read.
    """
    try:
        return path.read_bytes().decode()
    except (OSError, UnicodeDecodeError) as error:
        raise BadInput(f"cannot read the candidate {path}: {getattr(error, 'strerror', None) or error}") from error
