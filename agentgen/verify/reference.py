"""The reference at one workload: torch's own model, and its float64 twin, the oracle.

In FP16 or BF16 on float32 tensors torch's model runs under autocast, which is what torch has for that: its answer tells
what such products are off by, and its time is the one to beat (docs/decisions/034-torch-in-half.md).

Never leaves the judge's process.
"""

from __future__ import annotations

import json
import linecache
import re
import types
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from agentgen.errors import ReferenceInvalid
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.sandbox.guest.memory import DTYPES
from agentgen.verify import inputs as drawing
from agentgen.verify.inputs import Signature, Spec

PUBLIC_SEED = 20240229
"""Under which reference and candidate are both constructed, so that renamed parameters pair by equal content. The
values that count are drawn later, in secret."""

Tensors = Sequence[torch.Tensor]
_HALF = {Arithmetic.FP16: torch.float16, Arithmetic.BF16: torch.bfloat16}


@dataclass(frozen=True)
class Reference:
    """One workload's modules on the judge's device, in evaluation mode."""

    workload: str
    constants: dict[str, Any]
    init_args: tuple[Any, ...]
    model: nn.Module
    oracle: nn.Module
    get_inputs: Callable[[], Any]
    signature: Signature
    outputs: tuple[Spec, ...]
    output_strides: tuple[tuple[int, ...] | None, ...]
    """Of torch's own outputs; None: contiguous, as those are made that have gaps or overlap."""
    half: torch.dtype | None = None
    """What autocast computes in; None: torch's model runs as it is."""

    @property
    def inputs(self) -> tuple[Spec, ...]:
        """Shape and dtype of each input tensor."""
        return self.signature.specs

    @property
    def nbytes(self) -> tuple[int, int]:
        """Bytes of all inputs, and of all outputs, of one call."""
        return sum(map(drawing.spec_bytes, self.inputs)), sum(map(drawing.spec_bytes, self.outputs))

    def call(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Returns torch's own answer to input tensors, in its own layout: the call that is raced."""
        arguments = self.signature.arguments(inputs)
        if self.half is None:
            return [y if _is_dense(y) else y.contiguous() for y in _tensors(self.model(*arguments))]
        first = next(chain(inputs, self.model.parameters(), self.model.buffers()))
        with torch.autocast(first.device.type, self.half):
            answer = _tensors(self.model(*arguments))
        cast = [y.to(dtype) for y, (_, dtype) in zip(answer, self.outputs, strict=True)]
        return [y if _is_dense(y) else y.contiguous() for y in cast]

    def torch_outputs(self, inputs: Tensors) -> list[torch.Tensor]:
        """Returns torch's own answer, in the arithmetic that is set in this process.

        Raises:
            ReferenceInvalid: torch has none to these values: float64 factors matrices that are singular in fp32.
        """
        try:
            with torch.no_grad():
                return self.call(*inputs)
        except torch.linalg.LinAlgError as error:  # pyright: ignore[reportPrivateImportUsage]
            raise ReferenceInvalid(f"the reference fails on values that kernels are judged on: {error}") from error

    def oracle_outputs(self, inputs: Tensors) -> list[torch.Tensor]:
        """Returns the answer computed in float64 from the same inputs and weights.

        Raises:
            ReferenceInvalid: the reference cannot be computed in float64.
        """
        wide = [x.double() if x.is_floating_point() else x for x in inputs]
        try:
            with torch.no_grad(), _in_float64():
                answer = _tensors(self.oracle(*self.signature.arguments(wide)))
        except (torch.OutOfMemoryError, ReferenceInvalid):
            raise
        except Exception as error:
            raise ReferenceInvalid(f"the reference does not run in float64, which its oracle needs: {error}") from error
        return [y.double() if y.is_floating_point() else y for y in answer]

    def state(self) -> dict[str, torch.Tensor]:
        """Returns the parameters and buffers of torch's model by name."""
        return {**dict(self.model.named_parameters()), **dict(self.model.named_buffers())}

    def set_state(self, values: dict[str, torch.Tensor]) -> None:
        """Copies values into the model and, widened, into the oracle."""
        with torch.no_grad():
            for module in (self.model, self.oracle):
                own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
                for name, value in values.items():
                    own[name].copy_(value)


def load(problem: Problem, workload: Workload, device: str, arithmetic: Arithmetic = Arithmetic.FP32) -> Reference:
    """Builds the reference of `workload` on `device`, and calls it once, on zeros.

    Args:
        problem: Whose text is run.
        workload: With the sizes.
        device: `cpu` or `cuda:N`.
        arithmetic: That torch is to compute in where its tensors are float32. TF32 is a switch of the whole process
            (`set_arithmetic`).

    Raises:
        ReferenceInvalid: the module does not run, or has no such constant, or takes or returns what cannot be judged.
        torch.OutOfMemoryError: it does not fit the GPU.
    """
    constants = workload.constants_on("cpu" if device == "cpu" else "cuda")
    try:
        module = _module(problem)
        missing = [name for name in constants if not hasattr(module, name)]
        if missing:
            raise ReferenceInvalid(f"workload {workload.name} overrides unknown constants {missing}")
        vars(module).update(constants)
        init_args = _init_args(module)
        # Twice, not copied: functions that a model keeps as attributes hold on to the modules they were made with.
        model, oracle = (_constructed(module, init_args, device) for _ in range(2))
        oracle.load_state_dict(model.state_dict())
        signature = drawing.signature(module.get_inputs)
        if device == "cpu":
            _require_room(3 * sum(map(drawing.spec_bytes, signature.specs)))
        outputs, strides, half = _probed(model, signature, device, arithmetic)
    except torch.OutOfMemoryError:
        raise
    except ReferenceInvalid as error:
        raise ReferenceInvalid(f"{problem.name}: {error}") from error
    except Exception as error:  # the reference is the user's text: it may raise anything
        raise ReferenceInvalid(
            f"{problem.name}: the reference fails at workload {workload.name} on {device}: "
            f"{type(error).__name__}: {error}"
        ) from error
    shown = {**constants} or {k: v for k, v in vars(module).items() if isinstance(v, int | float) and k[0] != "_"}
    oracle = _widened(oracle)
    return Reference(
        workload.name, shown, init_args, model, oracle, module.get_inputs, signature, outputs, strides, half
    )


def _probed(
    model: nn.Module, signature: Signature, device: str, arithmetic: Arithmetic
) -> tuple[tuple[Spec, ...], tuple[tuple[int, ...] | None, ...], torch.dtype | None]:
    """Calls torch's model on zeros. Returns its outputs, their strides and what autocast is to compute in, as
    `Reference` has them."""
    probe = signature.arguments([torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in signature.specs])
    with torch.no_grad():
        answer = _tensors(model(*probe))
    outputs = tuple((tuple(y.shape), y.dtype) for y in answer)
    strides = tuple(None if y.is_contiguous() or not _is_dense(y) else y.stride() for y in answer)
    state = [(tuple(t.shape), t.dtype) for t in (*model.parameters(), *model.buffers())]
    _require_known((*signature.specs, *outputs, *state))
    floats = {dtype for _, dtype in (*signature.specs, *state) if dtype.is_floating_point}
    emulated = device == "cpu" and arithmetic is Arithmetic.FP16  # a product of 4096 took over 100 s on two cores
    half = _HALF.get(arithmetic) if floats == {torch.float32} and not emulated else None
    if half:  # not all that runs does so under autocast
        with torch.no_grad(), torch.autocast(torch.device(device).type, half):
            model(*probe)
    return outputs, strides, half


def _module(problem: Problem) -> types.ModuleType:
    path = f"<reference of {problem.name}>"
    linecache.cache[path] = (len(problem.reference), None, problem.reference.splitlines(True), path)
    module = types.ModuleType("reference")
    exec(compile(problem.reference, path, "exec"), module.__dict__)
    return module


def _constructed(module: types.ModuleType, init_args: tuple[Any, ...], device: str) -> nn.Module:
    """Returns `Model` on `device` in evaluation mode; the same one each time."""
    torch.manual_seed(PUBLIC_SEED)
    with torch.device(device):
        model: nn.Module = module.Model(*init_args)
    return model.to(device).eval()


def _init_args(module: types.ModuleType) -> tuple[Any, ...]:
    values = tuple(module.get_init_inputs())
    try:
        json.dumps(values)
    except TypeError as error:
        raise ReferenceInvalid(f"get_init_inputs() may hold numbers, texts and lists of them only: {error}") from error
    return values


def _require_room(nbytes: int) -> None:
    """Refuses what would bring the machine down: a CPU has no allocation that fails, only processes that are killed."""
    available = re.search(r"MemAvailable:\s+(\d+) kB", Path("/proc/meminfo").read_text())
    free = 1024 * int(available[1]) if available else nbytes
    if nbytes > free:
        raise ReferenceInvalid(
            f"its inputs alone, with their float64 copies, take {nbytes / 2**30:.1f} GiB, and {free / 2**30:.1f} GiB "
            "are free here"
        )


def _require_known(specs: Sequence[Spec]) -> None:
    if not specs:
        raise ReferenceInvalid("the reference takes and returns no tensor")
    for _, dtype in specs:
        if dtype not in DTYPES.values():
            raise ReferenceInvalid(f"tensors of {dtype} cannot be judged; known are {', '.join(DTYPES)}")


def _tensors(answer: Any) -> list[torch.Tensor]:
    values = list(answer) if isinstance(answer, tuple | list) else [answer]
    if not values:
        raise ReferenceInvalid("the reference returns no tensor")
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise ReferenceInvalid(f"the reference returns a {type(value).__name__}, not tensors")
    return values


def _is_dense(y: torch.Tensor) -> bool:
    """Whether the elements of `y` fill a piece of memory without gaps, in whatever order."""
    steps = sorted((stride, size) for size, stride in zip(y.shape, y.stride(), strict=True) if size > 1)
    expected = 1
    for stride, size in steps:
        if stride != expected:
            return False
        expected *= size
    return True


def _widened(model: nn.Module) -> nn.Module:
    """Returns the model in float64, with the tensors that are neither parameter nor buffer (the h0 of a plain LSTM)."""
    for module in model.double().modules():
        for name, value in list(vars(module).items()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                setattr(module, name, value.double())
    return model


@contextmanager
def _in_float64() -> Generator[None]:
    """Has new tensors, and casts that a reference writes out (`x.float()` for its statistics), be float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with _NoNarrowing():
            yield
    finally:
        torch.set_default_dtype(before)


class _NoNarrowing(TorchFunctionMode):
    _CASTS = frozenset({"float", "half", "bfloat16"})

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if getattr(func, "__name__", "") in self._CASTS and args and isinstance(args[0], torch.Tensor):
            return args[0].double()
        wide = {name: _wide(value) for name, value in (kwargs or {}).items()}
        return func(*map(_wide, args), **wide)


def _wide(value: Any) -> Any:
    return torch.float64 if isinstance(value, torch.dtype) and value.is_floating_point else value
