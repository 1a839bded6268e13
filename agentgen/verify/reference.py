"""The reference at one workload: torch's own model, and its float64 twin, the oracle.

Never leaves the judge's process.
"""

from __future__ import annotations

import copy
import json
import linecache
import types
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from agentgen.errors import ReferenceInvalid
from agentgen.records.problem import Problem, Workload

PUBLIC_SEED = 20240229
"""Under which reference and candidate are both constructed, so that renamed parameters pair by equal content. The
values that count are drawn later, in secret."""

Spec = tuple[tuple[int, ...], torch.dtype]
Tensors = Sequence[torch.Tensor]


@dataclass(frozen=True)
class Reference:
    """One workload's modules on the judge's device, in evaluation mode."""

    workload: str
    constants: dict[str, Any]
    init_args: tuple[Any, ...]
    model: nn.Module
    oracle: nn.Module
    inputs: tuple[Spec, ...]
    outputs: tuple[Spec, ...]

    def torch_outputs(self, inputs: Tensors) -> list[torch.Tensor]:
        """Returns torch's own answer, in the arithmetic that is set in this process."""
        with torch.no_grad():
            return _tensors(self.model(*inputs))

    def oracle_outputs(self, inputs: Tensors) -> list[torch.Tensor]:
        """Returns the answer computed in float64 from the same inputs and weights."""
        with torch.no_grad():
            wide = [x.double() if x.is_floating_point() else x for x in inputs]
            return [y.double() if y.is_floating_point() else y for y in _tensors(self.oracle(*wide))]

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


def load(problem: Problem, workload: Workload, device: str) -> Reference:
    """Builds the reference of `workload` on `device`.

    Raises:
        ReferenceInvalid: the module does not run, or has no such constant, or takes what is no tensor.
    """
    constants = workload.constants_on("cpu" if device == "cpu" else "cuda")
    try:
        module = _module(problem)
        missing = [name for name in constants if not hasattr(module, name)]
        if missing:
            raise ReferenceInvalid(f"{problem.name}: workload {workload.name} overrides unknown constants {missing}")
        vars(module).update(constants)
        init_args = _init_args(module)
        torch.manual_seed(PUBLIC_SEED)
        with torch.device(device):
            model: nn.Module = module.Model(*init_args)
        model = model.to(device).eval()
        inputs = _input_specs(module)
        probe = [torch.zeros(shape, dtype=dtype, device=device) for shape, dtype in inputs]
        with torch.no_grad():
            outputs = tuple((tuple(y.shape), y.dtype) for y in _tensors(model(*probe)))
            oracle = _oracle(model, probe)
    except ReferenceInvalid:
        raise
    except Exception as error:  # the reference is the user's text: it may raise anything
        raise ReferenceInvalid(
            f"{problem.name}: the reference fails at workload {workload.name} on {device}: "
            f"{type(error).__name__}: {error}"
        ) from error
    shown = {**constants} or {k: v for k, v in vars(module).items() if isinstance(v, int | float) and k[0] != "_"}
    return Reference(workload.name, shown, init_args, model, oracle, inputs, outputs)


def _module(problem: Problem) -> types.ModuleType:
    path = f"<reference of {problem.name}>"
    linecache.cache[path] = (len(problem.reference), None, problem.reference.splitlines(True), path)
    module = types.ModuleType("reference")
    exec(compile(problem.reference, path, "exec"), module.__dict__)
    return module


def _init_args(module: types.ModuleType) -> tuple[Any, ...]:
    values = tuple(module.get_init_inputs())
    try:
        json.dumps(values)
    except TypeError as error:
        raise ReferenceInvalid(f"get_init_inputs() may hold numbers, texts and lists of them only: {error}") from error
    return values


def _oracle(model: nn.Module, probe: Tensors) -> nn.Module:
    oracle = copy.deepcopy(model).double()
    try:
        oracle(*(x.double() if x.is_floating_point() else x for x in probe))
    except Exception as error:
        raise ReferenceInvalid(
            f"the reference does not run in float64, which its oracle is computed in: {error}. A tensor that is "
            "neither parameter nor buffer, or a cast to one dtype, does not follow `.double()`"
        ) from error
    return oracle


def _input_specs(module: types.ModuleType) -> tuple[Spec, ...]:
    # On the meta device nothing is drawn: 1 GiB of randn on a CPU takes seconds.
    with torch.device("meta"):
        inputs = module.get_inputs()
    for i, value in enumerate(inputs):
        if not isinstance(value, torch.Tensor):
            raise ReferenceInvalid(f"input {i} of get_inputs() is a {type(value).__name__}, not a tensor")
    return tuple((tuple(x.shape), x.dtype) for x in inputs)


def _tensors(answer: Any) -> list[torch.Tensor]:
    values = list(answer) if isinstance(answer, tuple | list) else [answer]
    for value in values:
        if not isinstance(value, torch.Tensor):
            raise ReferenceInvalid(f"the reference returns a {type(value).__name__}, not tensors")
    return values
