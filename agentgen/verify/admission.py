"""Can this problem be judged? Asked of every reference that comes from outside.

A problem is refused when an answer that computes nothing would pass it (zeros, an input, a constant fitted to another
draw), when two calls on the same input differ, when a call changes its input, when the reference does not run in
float64, and when no value family says anything about a kernel. KernelBench's level 1 has problems that zeros pass
(its issue 165).

Not covered: answers that compute less than the reference, but something (a redundant layer left out): that is the
optimisation the author asked for without knowing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

import torch

from agentgen.errors import ReferenceInvalid
from agentgen.records.admission import Admission
from agentgen.records.problem import Arithmetic, Problem
from agentgen.sandbox.guest.candidate import set_arithmetic
from agentgen.verify import draws
from agentgen.verify import inputs as drawing
from agentgen.verify.checks.values import truth
from agentgen.verify.draws import Family
from agentgen.verify.numerics import FLOOR, Pool
from agentgen.verify.reference import Reference, load
from agentgen.verify.rig import bits

Tensors = Sequence[torch.Tensor]


def admit(problem: Problem, device: str, arithmetic: Arithmetic) -> Admission:
    """Looks at a problem's `main` workload.

    Args:
        problem: Whose reference is run.
        device: `cpu` or `cuda:N`.
        arithmetic: That kernels may compute in there.
    """
    start = time.perf_counter()
    set_arithmetic(arithmetic.value)
    examination: _Examination | None = None
    try:
        examination = _Examination(load(problem, problem.main, device, arithmetic), device, arithmetic)
        reasons = examination.reasons()
    except ReferenceInvalid as error:
        reasons = [str(error)]
    except torch.OutOfMemoryError:
        reasons = [f"{device} has too little memory for it: {_gib(device)}"]
    return Admission(
        problem=problem.name,
        arithmetic=arithmetic,
        device=device,
        reasons=tuple(" ".join(reason.split()) for reason in reasons),
        inputs=tuple(map(drawing.described, examination.reference.inputs)) if examination else (),
        outputs=tuple(map(drawing.described, examination.reference.outputs)) if examination else (),
        families=tuple(examination.families) if examination else (),
        seconds=time.perf_counter() - start,
    )


class _Examination:
    """One reference, and the trivial answers that have not failed yet."""

    def __init__(self, reference: Reference, device: str, arithmetic: Arithmetic) -> None:
        self.reference = reference
        self.families: list[str] = []
        self._device = device
        self._arithmetic = arithmetic
        self._source = draws.generator(torch.device(device))
        self._state = {name: tensor.detach().clone() for name, tensor in reference.state().items()}
        self._unfailed = ["zeros", "a constant"]
        if all(spec in reference.inputs for spec in reference.outputs):
            self._unfailed.append("its own input")
        self._gated = False

    def reasons(self) -> list[str]:
        """Returns what speaks against the problem."""
        found = self._of_one_call()
        if found:
            return found
        for family in Family:
            self._try(family)
            if self._gated and not self._unfailed:
                return []
        if not self._gated:
            return ["no value family says anything: float64 overflows, or one ulp of the inputs decides the answer"]
        return [f"{answer} passes every value family" for answer in self._unfailed]

    def _of_one_call(self) -> list[str]:
        """Whether calls leave their inputs alone and agree."""
        inputs = self._draw(Family.NORMAL)
        before = [x.clone() for x in inputs]
        one = [y.clone() for y in self.reference.torch_outputs(inputs)]
        if not all(torch.equal(bits(x), bits(y)) for x, y in zip(inputs, before, strict=True)):
            return ["the reference changes its inputs"]
        two = self.reference.torch_outputs(inputs)
        for a, b in zip(one, two, strict=True):
            apart = _relative(a, b)
            if not apart <= FLOOR[self._arithmetic]:
                return [
                    f"the reference is not deterministic: two calls on one input differ by {apart:.1e} (relative L2); "
                    "forward draws random numbers or keeps state"
                ]
        return []

    def _try(self, family: Family) -> None:
        """Draws twice, once to fit the constant; strikes off what fails."""
        self.families.append(family.value)
        self.reference.set_state(draws.weights(self._state, family, self._source))
        fitted = [_mean(y) for y in self.reference.torch_outputs(self._draw(family))]
        inputs = self._draw(family)
        right = truth(self.reference, inputs, self._source)
        for answer in list(self._unfailed):
            outputs = _trivial(answer, right.by_torch, inputs, fitted)
            exact = family is Family.INTEGERS
            pool = Pool("main", family.value, self._arithmetic, must_be_exact=exact)
            right.add_to(pool, outputs)
            self._gated = self._gated or pool.gated
            if pool.problems():
                self._unfailed.remove(answer)

    def _draw(self, family: Family) -> list[torch.Tensor]:
        return drawing.draw(self.reference.get_inputs, self._device, family, self._source).tensors


def _trivial(answer: str, like: Tensors, inputs: Tensors, fitted: Sequence[float]) -> list[torch.Tensor]:
    if answer == "zeros":
        return [torch.zeros_like(y) for y in like]
    if answer == "a constant":
        return [torch.full_like(y, value) for y, value in zip(like, fitted, strict=True)]
    by_spec: Mapping[tuple[torch.Size, torch.dtype], torch.Tensor] = {(x.shape, x.dtype): x for x in inputs}
    return [by_spec[y.shape, y.dtype] for y in like]


def _mean(y: torch.Tensor) -> float:
    mean = y.double().mean().item() if y.numel() else 0.0
    return mean if y.is_floating_point() else float(round(mean))


def _relative(a: torch.Tensor, b: torch.Tensor) -> float:
    """Returns ||a - b|| / ||a||; 0 where they are the same, NaN included."""
    if torch.equal(bits(a), bits(b)):
        return 0.0
    wide = a.double()
    return ((wide - b.double()).norm() / wide.norm()).item()


def _gib(device: str) -> str:
    free, total = torch.cuda.mem_get_info(device)
    return f"{free / 2**30:.0f} of {total / 2**30:.0f} GiB were free"
