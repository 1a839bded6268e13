"""The second depth: what is too slow for every candidate, and due before one is shown around."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from agentgen.errors import SandboxUnavailable
from agentgen.records.candidate import Candidate
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.sandbox import guard
from agentgen.sandbox.guest.guard import HUGE, NAN
from agentgen.sandbox.process import ProcessSandbox
from agentgen.verify.checks import sanitizer
from agentgen.verify.checks.state import require_right
from agentgen.verify.checks.values import truth
from agentgen.verify.claims import shown
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings, NotGated, Rejected, check
from agentgen.verify.inputs import draw
from agentgen.verify.judge import Judge
from agentgen.verify.numerics import Pool
from agentgen.verify.reference import PUBLIC_SEED
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session
from agentgen.verify.timing import Race, median_ratio

DRAWS = 100
REPEATABLE = 0.05
"""Two medians of ratios, from two guests, that differ by more than this are reported."""


def certify(judge: Judge, candidate: Candidate, session: Session, findings: Findings) -> None:
    """Runs the checks of this depth that measure no time."""
    hundred_draws(findings, session, judge.rigs_of(candidate), judge.gates(candidate))
    small = judge.smallest
    with TemporaryDirectory(prefix="agentgen-sanitizer-") as folder:
        program, audit = _laid_out(judge, candidate, small, Path(folder))
        tool = sanitizer.find()
        sanitizer.memory_checker(findings, tool, program, audit)
        sanitizer.race_checker(findings, tool, program, audit)
    guard_pages(findings, judge, candidate, small)


@check("100 draws")
def hundred_draws(session: Session, rigs: Sequence[Rig], arithmetic: Arithmetic) -> str:
    """Catches kernels that are wrong once in a while: a hundred more secret draws over all workloads, each output
    against the oracle.

    Does not catch: what a hundred draws do not show.
    """
    each = math.ceil(DRAWS / len(rigs))
    for rig in rigs:
        rig.draw_weights()
        session.set_weights(rig)
        pool = Pool(rig.reference.workload, Family.NORMAL.value, arithmetic, must_be_exact=False)
        while pool.draws < each:
            rig.draw_inputs(Family.NORMAL)
            rig.poison_outputs()
            session.run(rig, rig.sets)
            for which in range(min(rig.sets, each - pool.draws)):
                truth(rig.reference, rig.private[which], rig.source).add_to(pool, rig.snapshot(which))
        if wrong := pool.problems():
            raise Rejected(Outcome.WRONG_VALUES, *wrong)
    return f"{each} draws at each of {len(rigs)} workloads within the {arithmetic.value} gates"


def _laid_out(
    judge: Judge, candidate: Candidate, rig: Rig, folder: Path
) -> tuple[sanitizer.Program, Callable[[Sequence[torch.Tensor]], None]]:
    """Returns the candidate as a program on public inputs, and what its answer must be."""
    reference = rig.reference
    reference.set_state(rig.initial_state)
    inputs = draw(reference.get_inputs, judge.device, Family.NORMAL, rig.source).tensors
    right = truth(reference, inputs, rig.source)
    program = sanitizer.lay_out(
        folder,
        candidate,
        judge.arithmetic,
        workload=reference.workload,
        device=judge.device,
        init_args=reference.init_args,
        arguments=reference.signature.arguments([x.cpu() for x in inputs]),
        seed=PUBLIC_SEED,
    )

    def audit(outputs: Sequence[torch.Tensor]) -> None:
        expected = [(y.shape, y.dtype) for y in right.by_torch]
        if [(y.shape, y.dtype) for y in outputs] != expected:
            raise Rejected(Outcome.WRONG_SHAPE, "under the checker it returns other shapes or dtypes")
        pool = Pool(reference.workload, Family.NORMAL.value, judge.gates(candidate), must_be_exact=False)
        right.add_to(pool, [y.to(judge.device) for y in outputs])
        if wrong := pool.problems():
            raise Rejected(Outcome.WRONG_VALUES, *(f"under the checker: {reason}" for reason in wrong))

    return program, audit


@check("guard pages")
def guard_pages(judge: Judge, candidate: Candidate, rig: Rig) -> str | NotGated:
    """Catches reads and writes beyond what the candidate has allocated, and use after it was freed, on a CPU: every
    block ends, then in another guest starts, at memory that cannot be touched. Triton's kernels run in the interpreter
    there, and their addresses meet the same walls.

    Does not catch: stacks and static arrays, accesses 64 KiB and more beyond a block.
    """
    if judge.device != "cpu":
        return NotGated("skipped: they are made of a CPU's memory; on a GPU the memory checker looks")
    try:
        library = guard.library()
    except SandboxUnavailable as error:
        return NotGated(f"skipped: {error}")
    interpret, isolation = judge.interprets(candidate), judge.guests.kept_in
    sandbox = ProcessSandbox("cpu", interpret=interpret, preload=library, isolation=isolation)
    try:
        blocks = sum(
            _guarded(sandbox, judge, candidate, rig, side, fill) for side, fill in (("after", NAN), ("before", HUGE))
        )
    finally:
        sandbox.close()
    if not blocks:
        return NotGated("skipped: the candidate allocated nothing that could be guarded")
    return f"{blocks} blocks between walls at {rig.reference.workload}, none of which was touched"


def _guarded(sandbox: ProcessSandbox, judge: Judge, candidate: Candidate, rig: Rig, side: str, fill: int) -> int:
    session = Session(sandbox.start(candidate.id), None)
    try:
        session.guard(side, fill)
        session.load(candidate, judge.arithmetic)
        session.construct(rig)
        rig.draw_weights()
        session.set_weights(rig)
        rig.draw_inputs(Family.NORMAL)
        rig.poison_outputs()
        session.run(rig, rig.sets)
        require_right(rig, 0, judge.gates(candidate), f"with walls {side} each block")
        return session.guarded()
    except Rejected as rejected:
        said = [line for line in session.guest.log.splitlines() if line.startswith("agentgen guard:")]
        raise Rejected(rejected.outcome, *rejected.reasons, *map(shown, said[-1:])) from rejected
    finally:
        session.close()


@check("second measurement")
def second_measurement(first: Race, second: Race) -> str | NotGated:
    """Catches speedups that do not come again: another guest, later, on a device where nothing else of ours runs. Both
    measurements go into the interval that decides.

    Does not catch: what makes both alike.
    """
    name = min(first.baselines_us, key=lambda name: median_ratio(first, name))
    one, two = median_ratio(first, name), median_ratio(second, name)
    seen = f"{one:.3f} and {two:.3f} times {name}, {first.median_us:.1f} and {second.median_us:.1f} us"
    return seen if abs(two / one - 1) <= REPEATABLE else NotGated(f"reported: the two differ: {seen}")
