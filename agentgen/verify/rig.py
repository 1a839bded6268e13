"""A rig: everything the judge holds for one workload, kept from candidate to candidate.

K input sets and K output buffers lie in a region that guests see; the judge draws inputs in private and copies them
there, so what a guest does to its view changes neither the oracle nor the baseline's next draw.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

import torch

from agentgen.errors import ReferenceInvalid
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.sandbox.guest.memory import NoDeviceMemory, contiguous
from agentgen.verify import draws
from agentgen.verify import inputs as drawing
from agentgen.verify import reference as references
from agentgen.verify.draws import Family
from agentgen.verify.reference import Reference
from agentgen.verify.shared import Layout, Region

MAX_SETS = {"cpu": 128, "cuda": 16}
"""By kind of device. On a CPU the sets of small problems, too, must not stay in the cache: they are compared with
windows in which no input comes twice."""
MAX_REGION_BYTES = 4 << 30
_INTEGERS = {2: torch.int16, 4: torch.int32, 8: torch.int64}
"""By width in bytes: bytes that are compared one by one take a GPU as many times as long."""
PAD = 3
"""Elements between the rows of a strided input: no multiple of what a vector load takes."""


def build_rigs(
    problem: Problem, device: str, cache_bytes: int, arithmetic: Arithmetic = Arithmetic.FP32
) -> dict[str, Rig]:
    """Returns a rig for every workload by name, the one to be timed first.

    That is `main` or, where a GPU has not the memory for it, the first of `problem.smaller` that fits.

    Raises:
        ReferenceInvalid: the reference does not run, or none of them fits.
    """
    for workload in (problem.main, *problem.smaller):
        timed = _rehearsed(problem, workload, device, cache_bytes, arithmetic)
        if timed:
            break
        torch.cuda.empty_cache()  # here, where the failure's own tensors are gone: a region cannot use cached memory
    else:
        tried = ", ".join(workload.name for workload in (problem.main, *problem.smaller))
        raise ReferenceInvalid(f"{problem.name}: {device} has too little memory for its workloads {tried}")
    rigs = {timed.reference.workload: timed}
    for workload in problem.workloads:
        if workload is not problem.main:
            rig = Rig(references.load(problem, workload, device, arithmetic), device, cache_bytes, rotate=False)
            rig.rehearse()
            rigs[workload.name] = rig
    return rigs


def _rehearsed(
    problem: Problem, workload: Workload, device: str, cache_bytes: int, arithmetic: Arithmetic
) -> Rig | None:
    """Returns the rig to be timed; None, and nothing left of it, where the GPU has not the memory."""
    rig: Rig | None = None
    try:
        rig = Rig(references.load(problem, workload, device, arithmetic), device, cache_bytes, rotate=True)
        rig.rehearse()
        return rig
    except (torch.OutOfMemoryError, NoDeviceMemory):
        if rig:
            rig.close()
        return None


class Rig:
    """Memory and reference of one workload."""

    def __init__(
        self, reference: Reference, device: str, cache_bytes: int, *, rotate: bool, sets: int | None = None
    ) -> None:
        """Allocates the region and draws the first secret weights.

        Args:
            reference: The workload's modules.
            device: `cpu` or `cuda:N`.
            cache_bytes: Size of the last-level cache.
            rotate: Whether calls are timed here, so that there must be more sets than the cache holds.
            sets: How many sets, if not as many as that takes: of a second rig beside another one.
        """
        self.reference = reference
        self.source = draws.generator(torch.device(device))
        self._device = device
        most = MAX_SETS[torch.device(device).type]
        self.sets = sets or (_set_count(reference, cache_bytes, most) if rotate else 2)
        # Before the region, which a failure here would leave allocated.
        self.private = [
            [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in reference.inputs]
            for _ in range(self.sets)
        ]
        self._share(device, rotate=rotate)
        self.free = True
        """Whether inputs have no structure: then their values may be changed one by one."""
        self.selects = False
        """Whether outputs are chosen from the inputs, and must be exact: known once normal values were checked."""
        # Names and initial values as constructed: the distribution that secret weights keep.
        self._initial = {name: tensor.detach().clone() for name, tensor in reference.state().items()}
        self.weight_names = list(self._initial)
        self._signed = frozenset(
            name for name, tensor in reference.state().items() if isinstance(tensor, torch.nn.Parameter)
        )
        """Weights that may be negative, wherever they began."""
        weight_layout: list[Layout] = [(tuple(t.shape), t.dtype, None) for t in self._initial.values()]
        self.weights = Region(f"weights of {reference.workload}", weight_layout, device)

    def _share(self, device: str, *, rotate: bool) -> None:
        """Allocates the region that guests see, and finds the sets in it."""
        reference = self.reference
        ins: list[Layout] = [(shape, dtype, None) for shape, dtype in reference.inputs]
        outs: list[Layout] = [(shape, dtype, None) for shape, dtype in reference.outputs]
        # Where nothing is timed there is room for one more set of inputs, with gaps between its rows.
        spread: list[Layout] = [] if rotate else [(shape, dtype, _spread(shape)) for shape, dtype in reference.inputs]
        layout = [*ins * self.sets, *outs * self.sets, *spread]
        self.region = Region(f"{reference.workload}, {self.sets} sets", layout, device)
        per_set = len(ins)
        places = [range(k * per_set, (k + 1) * per_set) for k in range(self.sets)]
        # As a guest is told them: with the arguments that are no tensors.
        self.input_rows = [reference.signature.rows(row.start) for row in places]
        first, width = per_set * self.sets, len(outs)
        self._spread = first + width * self.sets
        self.strided_row = reference.signature.rows(self._spread) if spread else None
        self.output_rows = [list(range(first + k * width, first + (k + 1) * width)) for k in range(self.sets)]
        self.inputs = [[self.region.tensors[i] for i in row] for row in places]
        self.outputs = [[self.region.tensors[i] for i in row] for row in self.output_rows]

    @property
    def initial_state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers as constructed under the public seed."""
        return self._initial

    def draw_weights(self, family: Family = Family.NORMAL) -> None:
        """Draws secret weights, for the reference and for the guest's region."""
        self.set_weights(draws.weights(self._initial, family, self.source, self._signed))

    def set_weights(self, values: dict[str, torch.Tensor]) -> None:
        """Gives them to the reference, and to the guest's region."""
        self.reference.set_state(values)
        for name, slot in zip(self.weight_names, self.weights.tensors, strict=True):
            slot.copy_(values[name])

    def draw_inputs(self, family: Family, sets: int | None = None) -> None:
        """Draws fresh inputs for the first `sets` sets (default: all)."""
        for k in range(sets or self.sets):
            self.draw_set(k, family)

    def draw_set(self, which: int, family: Family) -> None:
        """Draws fresh inputs for one set."""
        self.private[which] = []  # before, not after: there may be no room for both
        drawn = drawing.draw(self.reference.get_inputs, self._device, family, self.source)
        self.private[which] = drawn.tensors
        self.free = drawn.free
        self.show_inputs(which)

    def show_inputs(self, which: int) -> None:
        """Puts the private inputs `which` where a guest sees them."""
        for x, seen in zip(self.private[which], self.inputs[which], strict=True):
            seen.copy_(x)

    def repeat_inputs(self) -> None:
        """Has every set hold what the first holds: the same content at other addresses."""
        for k in range(1, self.sets):
            self.private[k] = self.private[0]
            self.show_inputs(k)

    def show_strided(self) -> None:
        """Puts the first private inputs where rows have gaps between them, filled with NaN."""
        for place, x in enumerate(self.private[0], start=self._spread):
            if x.is_floating_point():
                self.region.whole(place).fill_(math.nan)
            self.region.tensors[place].copy_(x)

    def touch_inputs(self, sets: int | None = None, *, wholly: bool = False) -> None:
        """Changes 4,096 values of every input of the first `sets` sets (default: all), or `wholly` draws them anew, as
        inputs with a structure always are."""
        if wholly or not self.free:
            self.draw_inputs(Family.NORMAL, sets)
            return
        for private, shared in zip(self.private[:sets], self.inputs[:sets], strict=True):
            for x, seen in zip(private, shared, strict=True):
                draws.touch(x, seen, self.source)

    def rehearse(self) -> None:
        """Does once what a check does, so that a device with too little memory is known now.

        Raises:
            ReferenceInvalid: the reference does not run on what it draws, or not in float64.
            torch.OutOfMemoryError: no room.
        """
        self.draw_weights()
        self.draw_inputs(Family.NORMAL, 1)
        by_torch = self.reference.torch_outputs(self.private[0])
        oracle = self.reference.oracle_outputs(self.private[0])
        again = self.reference.oracle_outputs(self.private[0])
        if [y.shape for y in by_torch] != [y.shape for y in oracle]:
            raise ReferenceInvalid("the reference's outputs have other shapes in float64")
        if not all(bool(torch.isfinite(y).all()) for y in oracle if y.is_floating_point()):
            self._signed = frozenset()  # a logarithm or root of a weight: what was positive stays so
        del by_torch, oracle, again
        if self._device != "cpu":
            torch.cuda.empty_cache()

    def poison_outputs(self, which: Iterable[int] | None = None) -> None:
        """Fills output sets (default: all) with NaN, so that what does not come from the window is seen."""
        for k in range(self.sets) if which is None else which:
            for y in self.outputs[k]:
                y.fill_(math.nan if y.is_floating_point() else 0)

    def snapshot(self, which: int) -> list[torch.Tensor]:
        """Returns private copies of output set `which`: the guest can still write to the shared ones."""
        return [y.clone() for y in self.outputs[which]]

    def inputs_unchanged(self, which: int) -> bool:
        """Whether the guest's view of input set `which` still holds what was drawn."""
        pairs = zip(self.private[which], self.inputs[which], strict=True)
        return all(torch.equal(bits(x), bits(seen)) for x, seen in pairs)

    def close(self) -> None:
        """Gives the shared memory back."""
        self.inputs, self.outputs = [], []
        self.region.close()
        self.weights.close()


def _set_count(reference: Reference, cache_bytes: int, most: int) -> int:
    """Returns how many sets make each call find its inputs cold: together more than twice the last-level cache."""
    per_set = sum(reference.nbytes)
    wanted = 1 + math.ceil(2 * cache_bytes / max(1, per_set))
    affordable = max(2, MAX_REGION_BYTES // max(1, per_set))
    return max(2, min(wanted, most, affordable))


def _spread(shape: tuple[int, ...]) -> tuple[int, ...] | None:
    """Returns the strides of a slice out of something wider: rows of `PAD` elements more; every second of a vector."""
    if len(shape) < 2:
        return (2,) if shape else None
    return (*contiguous((*shape[:-1], shape[-1] + PAD))[:-1], 1)


def bits(x: torch.Tensor) -> torch.Tensor:
    """Returns a tensor's bytes, as integers of its elements' width: in them NaN equals itself, and a minus zero is no
    zero."""
    return x.contiguous().view(-1).view(_INTEGERS.get(x.element_size(), torch.uint8))
