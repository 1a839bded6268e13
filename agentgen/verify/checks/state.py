"""Is it a function of its arguments? Probes of what a kernel may wrongly remember, share, assume or leave to chance.

They run in the guest that was just checked, at the smallest workload where size does not matter: a kernel that is wrong
here is right on fresh inputs at fresh addresses, and wrong in somebody's program.
"""

from __future__ import annotations

from functools import partial

import torch

from agentgen.records.problem import Arithmetic, Demand
from agentgen.records.trial import Outcome
from agentgen.sandbox.guest.poison import HUGE, NAN
from agentgen.verify.checks.values import Truth, judged, truth
from agentgen.verify.draws import Family
from agentgen.verify.findings import NotGated, Rejected, check
from agentgen.verify.numerics import Pool
from agentgen.verify.rig import Rig
from agentgen.verify.session import Session

HELD = 2
"""Outputs that are held at once: a rig has two sets at least."""
LATER = 66
"""Calls through which they are held: a ring of outputs comes round."""
ELEMENTS = 4
SIZES = (4.0, 4.0, 1e2, 1e4, 1e6)
"""What an element is changed to, in largest elements, each time at another place, until the answer must differ."""


def _fresh(session: Session, rig: Rig) -> None:
    """Sets and inputs that no earlier window had; one window, after which a cache would be full."""
    rig.draw_inputs(Family.NORMAL, HELD)
    rig.poison_outputs()
    session.run(rig, HELD)


def _wrong(rig: Rig, right: Truth, outputs: list[torch.Tensor], arithmetic: Arithmetic) -> list[str]:
    pool = Pool(rig.reference.workload, Family.NORMAL.value, arithmetic, must_be_exact=False)
    right.add_to(pool, outputs)
    return pool.problems()


def require_right(rig: Rig, which: int, arithmetic: Arithmetic, situation: str) -> None:
    """Raises Rejected, WRONG_VALUES, if output set `which` is not what its private inputs make it."""
    name, family = rig.reference.workload, Family.NORMAL.value
    wrong = judged(
        rig, {which: rig.snapshot(which)}, partial(Pool, name, family, arithmetic, must_be_exact=False)
    ).problems()
    if wrong:
        raise Rejected(Outcome.WRONG_VALUES, f"{situation}: {wrong[0]}")


@check("global state")
def global_state(session: Session, rig: Rig) -> str:
    """Catches calls that change what is not theirs: torch's default dtype, grad mode, backend flags, threads, current
    stream and device, random state; or the address, shape, strides and dtype of an input. The guest compares all of it
    round the calls of every window, this one and all others.

    Does not catch: settings that torch does not show, and a change that is undone before the window ends.
    """
    _fresh(session, rig)
    return "torch's settings, threads and random state, and what the inputs are, as they were before each window"


@check("own outputs")
def own_outputs(session: Session, rig: Rig, arithmetic: Arithmetic, later: int = LATER) -> str:
    """Catches outputs that are not the caller's own: a static buffer that the next call overwrites, a view of an input
    or of a weight. Outputs are held, inputs and weights are rewritten, more calls are made; then what is held must
    still be right.

    Does not catch: a buffer that comes round after more calls than `later`.
    """
    rig.draw_weights()
    session.set_weights(rig)
    rig.draw_inputs(Family.NORMAL, HELD)
    rights = [truth(rig.reference, private, rig.source) for private in rig.private[:HELD]]
    session.run(rig, HELD, hold=True)
    rig.draw_weights()
    session.set_weights(rig)
    _fresh(session, rig)
    session.run(rig, max(1, later - HELD))
    rig.poison_outputs()
    session.collect()
    for which, right in enumerate(rights):
        wrong = _wrong(rig, right, rig.snapshot(which), arithmetic)
        if wrong:
            raise Rejected(Outcome.WRONG_VALUES, f"outputs change after they were returned: {wrong[0]}")
    return f"{len(rights)} outputs held through {later} later calls, new inputs and new weights are still right"


@check("one element")
def one_element(session: Session, rig: Rig, arithmetic: Arithmetic) -> str | NotGated:
    """Catches answers remembered by address, version, shape or a sample of the content: one element deep inside an
    input changes, at the same address and with the same version counter, and the answer must change with it; then
    another, of the next input.

    Does not catch: a cache keyed by most of the content, which is no faster than the work.
    """
    _fresh(session, rig)
    floats = [place for place, x in enumerate(rig.private[0]) if x.is_floating_point() and x.numel()]
    if not floats or not rig.free:
        return NotGated("no input whose elements may be changed one by one")
    changed: list[str] = []
    for turn in range(ELEMENTS):
        which = floats[turn % len(floats)]
        found = _change_one(rig, which, arithmetic)
        if found is None:
            continue
        place, right = found
        changed.append(str(place))
        rig.show_inputs(0)
        rig.poison_outputs((0,))
        session.run(rig, 1)
        wrong = _wrong(rig, right, rig.snapshot(0), arithmetic)
        if wrong:
            raise Rejected(Outcome.WRONG_VALUES, f"element {place} of input {which} changed: {wrong[0]}")
    if not changed:
        return NotGated("no change of one element shows in the answer beyond the gates")
    return f"elements {', '.join(changed)} changed in turn, addresses and versions did not, and the answer followed"


def _change_one(rig: Rig, which: int, arithmetic: Arithmetic) -> tuple[int, Truth] | None:
    """Changes one element of a private input so that yesterday's answer would be refused.

    Returns:
        Its place and what is right now; None, and the input as it was, if no element tried shows in the answer (a
        convolution's stride may pass it over, a pooling hide it).
    """
    x = rig.private[0][which].view(-1)
    stale = [y.clone() for y in rig.reference.torch_outputs(rig.private[0])]  # it may be a view of the input
    largest = max(1.0, x.abs().max().item())
    for size in SIZES:
        place = int(torch.randint(x.numel(), (1,), generator=rig.source, device=x.device))
        before = x[place].clone()
        x[place] = size * largest
        right = truth(rig.reference, rig.private[0], rig.source)
        if _wrong(rig, right, stale, arithmetic):
            return place, right
        x[place] = before
    return None


@check("new weights")
def new_weights(session: Session, rig: Rig, arithmetic: Arithmetic) -> str | NotGated:
    """Catches weights that are kept from an earlier call (packed, dequantised, folded) and not renewed: they change in
    place, then by `load_state_dict`, each time followed by `prepare()` where it is defined, with the same inputs. Then
    a second model is made with weights of its own, and the first must still have its own.

    Does not catch: a candidate that replaces a parameter's storage in `prepare()` and is then given new values past it.
    """
    if not rig.weight_names:
        return NotGated("the problem has no parameters")
    _fresh(session, rig)
    for load, how in ((False, "in place"), (True, "by load_state_dict")):
        rig.draw_weights()
        session.set_weights(rig, load=load)
        rig.poison_outputs()
        session.run(rig, 1)
        require_right(rig, 0, arithmetic, f"weights changed {how}")
    values = {name: tensor.detach().clone() for name, tensor in rig.reference.state().items()}
    session.construct(rig, twin=True)
    rig.draw_weights()
    session.set_weights(rig, twin=True)
    rig.set_weights(values)
    rig.poison_outputs()
    session.run(rig, 1)
    require_right(rig, 0, arithmetic, "another model of the same shape got weights of its own")
    return "right after weights changed in place, by load_state_dict, and in another model of the same shape"


@check("poisoned memory")
def poisoned_memory(session: Session, rig: Rig, arithmetic: Arithmetic) -> str:
    """Catches output or scratch memory that is never written and happens to be zero: what the candidate allocates
    holds NaN in one window, 1.2e30 in the next.

    Does not catch: static memory, shared memory and registers of a GPU; small blocks on a CPU.
    """
    for byte, name in ((NAN, "NaN"), (HUGE, "1.2e30")):
        session.poison(rig, byte)
        rig.draw_inputs(Family.NORMAL, 1)
        rig.poison_outputs((0,))
        session.run(rig, 1)
        require_right(rig, 0, arithmetic, f"fresh memory holds {name}")
    return "right where fresh memory holds NaN, and where it holds 1.2e30"


@check("strided inputs")
def strided_inputs(session: Session, rig: Rig, arithmetic: Arithmetic, demand: Demand) -> str | NotGated:
    """Catches kernels that take an address for a contiguous tensor: inputs are slices of something wider, with NaN
    between their rows. Right is good; an exception that says so is as good. Being wrong in silence is reported, and
    fails the kernel where the problem requires it (elsewhere candidates are promised contiguous inputs).

    Does not catch: other layouts (transposed, channels last).
    """
    if rig.strided_row is None:
        return NotGated("skipped: the problem has no workload but the one that is timed")
    rig.draw_inputs(Family.NORMAL, 1)
    rig.show_strided()
    rig.poison_outputs((0,))
    try:
        session.run(rig, 1, rows=[rig.strided_row])
    except Rejected as rejected:
        if session.alive():
            session.traceback = ""  # tolerated: a later failure is another one
            return f"refused: {rejected.reasons[0][:200]}"
        if demand is Demand.REQUIRED:
            raise
        session.traceback = ""
        return NotGated(f"reported: {rejected.reasons[0][:200]}, where rows have gaps between them")
    right = truth(rig.reference, rig.private[0], rig.source)
    wrong = _wrong(rig, right, rig.snapshot(0), arithmetic)
    if not wrong:
        return "right where rows have gaps between them"
    if demand is Demand.REQUIRED:
        raise Rejected(Outcome.WRONG_VALUES, f"wrong in silence where rows have gaps between them: {wrong[0]}")
    return NotGated("reported: wrong in silence where rows have gaps between them; call .contiguous() before it")


@check("special values")
def special_values(session: Session, rig: Rig, demand: Demand) -> str | NotGated:
    """Catches NaN and Inf that come out otherwise than of torch: one of each among the inputs, then the outputs' finite
    elements must be torch's. Reported; fails the kernel where the problem requires it.

    Does not catch: which NaN, or the sign of an infinity that became one.
    """
    rig.draw_inputs(Family.NORMAL, 1)
    floats = [x for x in rig.private[0] if x.is_floating_point() and x.numel() > 1]
    if not floats:
        return NotGated("no floating-point input")
    flat = floats[0].view(-1)
    place = int(torch.randint(flat.numel(), (1,), generator=rig.source, device=flat.device))
    flat[place], flat[(place + flat.numel() // 2) % flat.numel()] = float("nan"), float("inf")
    try:
        by_torch = rig.reference.torch_outputs(rig.private[0])
    except RuntimeError as error:
        return NotGated(f"torch itself refuses them: {str(error)[:200]}")
    rig.show_inputs(0)
    rig.poison_outputs((0,))
    try:
        session.run(rig, 1)
    except Rejected as rejected:
        if demand is Demand.REQUIRED:
            raise
        session.traceback = ""
        return NotGated(f"reported: {rejected.reasons[0][:200]}, on one NaN and one Inf among the inputs")
    pairs = zip(rig.snapshot(0), by_torch, strict=True)
    differing = sum(int((a.isfinite() != b.isfinite()).sum()) for a, b in pairs)
    if not differing:
        return "one NaN and one Inf among the inputs: finite wherever torch is, and nowhere else"
    words = f"one NaN and one Inf among the inputs: {differing} elements are finite where torch's are not, or not where"
    if demand is Demand.REQUIRED:
        raise Rejected(Outcome.WRONG_VALUES, f"{words} they are")
    return NotGated(f"reported: {words} they are")
