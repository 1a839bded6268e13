"""Inputs as the reference itself draws them: `get_inputs()` is run anew for every draw, with its sources of randomness
replaced.

`torch.rand`, `randn`, `randint` and their like are the *leaves* of a draw: each is filled by value family, from a
secret seed. What `get_inputs` makes of them (scales, masks, triangles, softmaxed rows, symmetric sums) happens as
written, so the structure that a kernel may rely on holds in every family. Any other randomness (`torch.randperm`,
`multinomial`) runs under a secret seed and is the same in all families.

Not covered: randomness of numpy or `random`, which no family reaches; tensors inside lists or dictionaries.
"""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from agentgen.errors import ReferenceInvalid
from agentgen.records.machine import TensorShape
from agentgen.verify.draws import Distribution, Family, fill

Spec = tuple[tuple[int, ...], torch.dtype]
Value = int | float | bool | str | None
_PLACE = ("dtype", "layout", "requires_grad", "memory_format")


@dataclass(frozen=True)
class Signature:
    """What a model is called with, in order: tensors, and values that never change (KernelBench's `A * s`)."""

    slots: tuple[Spec | Value, ...]

    @property
    def specs(self) -> tuple[Spec, ...]:
        """Shape and dtype of each tensor."""
        return tuple(slot for slot in self.slots if isinstance(slot, tuple))

    def rows(self, first: int) -> list[Any]:
        """Returns the arguments as a guest is told them: places in a region from `first` on, or `{"value": v}`."""
        place = iter(range(first, first + len(self.specs)))
        return [next(place) if isinstance(slot, tuple) else {"value": slot} for slot in self.slots]

    def arguments(self, tensors: Sequence[Any]) -> list[Any]:
        """Returns the arguments of a call, with `tensors` in their places."""
        left = iter(tensors)
        return [next(left) if isinstance(slot, tuple) else slot for slot in self.slots]


@dataclass(frozen=True)
class Draw:
    """One draw of all inputs."""

    tensors: list[torch.Tensor]
    free: bool
    """Whether every tensor is a leaf as it was filled, so that its values may be exchanged among each other."""


def spec_bytes(spec: Spec) -> int:
    """Returns the bytes of a tensor of that shape and dtype."""
    shape, dtype = spec
    return math.prod(shape) * dtype.itemsize


def described(spec: Spec) -> TensorShape:
    """Returns a tensor's shape and dtype as reports have it."""
    shape, dtype = spec
    return TensorShape(shape=shape, dtype=str(dtype).removeprefix("torch."))


def signature(get_inputs: Callable[[], Any]) -> Signature:
    """Returns what `get_inputs` makes, without drawing it where that can be avoided (1 GiB of randn takes seconds).

    Raises:
        ReferenceInvalid: it makes something that is neither tensor nor number nor text.
    """
    try:
        values = _run(get_inputs, "meta", Family.NORMAL, torch.Generator())[0]
    except (NotImplementedError, RuntimeError):  # what depends on the values themselves has no meta kernel
        values = _run(get_inputs, "cpu", Family.ZEROS, torch.Generator())[0]
    return Signature(tuple(_slot(i, value) for i, value in enumerate(values)))


def draw(get_inputs: Callable[[], Any], device: str, family: Family, source: torch.Generator) -> Draw:
    """Returns fresh inputs on `device`, contiguous, drawn from `source` by `family`."""
    values, leaves = _run(get_inputs, device, family, source)
    tensors = [value for value in values if isinstance(value, torch.Tensor)]
    return Draw([x.detach().to(device).contiguous() for x in tensors], all(leaves.untouched(x) for x in tensors))


def _run(
    get_inputs: Callable[[], Any], device: str, family: Family, source: torch.Generator
) -> tuple[list[Any], _Leaves]:
    leaves = _Leaves(device, family, source)
    gpus = [torch.device(device)] if device.startswith("cuda") else []
    with torch.random.fork_rng(gpus), torch.no_grad(), torch.device(device), leaves:
        # Not `torch.manual_seed`: it notes who asked, for devices that are not there, and takes 1.3 ms.
        torch.default_generator.manual_seed(secrets.randbits(63))
        for gpu in gpus:
            torch.cuda.default_generators[gpu.index or 0].manual_seed(secrets.randbits(63))
        values = get_inputs()
    if not isinstance(values, list | tuple):
        raise ReferenceInvalid(f"get_inputs() returns a {type(values).__name__}, not a list")
    return list(values), leaves


def _slot(place: int, value: Any) -> Spec | Value:
    if isinstance(value, torch.Tensor):
        return tuple(value.shape), value.dtype
    if value is None or isinstance(value, bool | int | str) or (isinstance(value, float) and math.isfinite(value)):
        return value
    raise ReferenceInvalid(f"input {place} of get_inputs() is a {type(value).__name__}, neither a tensor nor a number")


class _Leaves(TorchFunctionMode):
    """Fills what torch's random functions make, and remembers it, to tell what was done to it afterwards."""

    def __init__(self, device: str, family: Family, source: torch.Generator) -> None:
        super().__init__()
        self._device = device
        self._family = family
        self._source = source
        self._leaves: list[tuple[torch.Tensor, int]] = []
        self._filled = 0

    def untouched(self, x: torch.Tensor) -> bool:
        """Whether `x` is a leaf that nothing was done to since, also not through a view: torch counts the changes."""
        return any(x is leaf and x._version == version for leaf, version in self._leaves)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = dict(kwargs or {})
        if "device" in given:  # written for one machine (`device="cuda"`), wanted on another
            given["device"] = self._device
        maker = _MAKERS.get(func)
        if maker:
            return self._leaf(*maker(args, given))
        name = getattr(func, "__name__", "")
        if name in _FILLERS and isinstance(args[0], torch.Tensor):
            return self._fill(args[0], _FILLERS[name](args[1:], given))
        if name == "cuda":  # x.cuda(): where it is wanted it is already
            return args[0]
        return func(*args, **given)

    def _leaf(self, make: Callable[..., torch.Tensor], size: Any, given: dict[str, Any], how: Distribution) -> Any:
        x = self._fill(make(*size, **{key: value for key, value in given.items() if key in _PLACE}), how)
        self._leaves.append((x, x._version))
        return x

    def _fill(self, x: torch.Tensor, how: Distribution) -> torch.Tensor:
        if not x.is_meta:
            fill(x, how, self._family, self._source, self._filled)
            self._filled += 1
        return x


_Made = tuple[Callable[..., torch.Tensor], Any, dict[str, Any], Distribution]


def _like(how: Distribution) -> Callable[[Any, dict[str, Any]], _Made]:
    return lambda args, given: (torch.empty_like, args[:1], given, how)


def _sized(how: Distribution) -> Callable[[Any, dict[str, Any]], _Made]:
    return lambda args, given: (torch.empty, (given["size"],) if "size" in given else args, given, how)


def _integers(args: Any, given: dict[str, Any], sized: bool) -> _Made:
    """`randint([low,] high, size)` and `randint_like(x, [low,] high)`, each argument by position or by name."""
    rest = list(args if sized else args[1:])
    size = given.get("size") or (rest.pop() if sized else None)
    high = given["high"] if "high" in given else rest.pop()
    low = given["low"] if "low" in given else rest.pop() if rest else 0
    how = Distribution("integers", low=low, high=high)
    if sized:
        return torch.empty, (size,), {"dtype": torch.int64, **given}, how
    return torch.empty_like, args[:1], given, how


def _normal(args: Any, given: dict[str, Any]) -> _Made:
    """`torch.normal(mean, std, size)` of numbers."""
    named = dict(zip(("mean", "std", "size"), args, strict=False)) | given
    how = Distribution("normal", mean=float(named["mean"]), std=float(named["std"]))
    return torch.empty, (named["size"],), given, how


_MAKERS: dict[Any, Callable[[Any, dict[str, Any]], _Made]] = {
    torch.rand: _sized(Distribution("uniform")),
    torch.randn: _sized(Distribution("normal")),
    torch.rand_like: _like(Distribution("uniform")),
    torch.randn_like: _like(Distribution("normal")),
    torch.randint: lambda args, given: _integers(args, given, sized=True),
    torch.randint_like: lambda args, given: _integers(args, given, sized=False),
    torch.normal: _normal,
}


def _bounds(args: Any, given: dict[str, Any], names: tuple[str, str], defaults: tuple[float, float]) -> list[float]:
    named = dict(zip(names, args, strict=False)) | given
    return [float(named.get(name, default)) for name, default in zip(names, defaults, strict=True)]


def _uniform_fill(args: Any, given: dict[str, Any]) -> Distribution:
    low, high = _bounds(args, given, ("from", "to"), (0.0, 1.0))
    return Distribution("uniform", low=low, high=high)


def _normal_fill(args: Any, given: dict[str, Any]) -> Distribution:
    mean, std = _bounds(args, given, ("mean", "std"), (0.0, 1.0))
    return Distribution("normal", mean=mean, std=std)


_FILLERS: dict[str, Callable[[Any, dict[str, Any]], Distribution]] = {
    "uniform_": _uniform_fill,
    "normal_": _normal_fill,
}
