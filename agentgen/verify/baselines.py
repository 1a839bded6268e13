"""What a candidate races: torch itself, eager and compiled, in the problem's arithmetic; for half, in TF32 as well."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import torch

from agentgen.records.problem import Arithmetic
from agentgen.records.run import Effort
from agentgen.records.trial import EAGER
from agentgen.sandbox.guest.candidate import set_arithmetic
from agentgen.verify.reference import Reference

Call = Callable[..., Any]
COMPILE_MODES = ("default", "max-autotune-no-cudagraphs", "max-autotune")


def baselines(reference: Reference, arithmetic: Arithmetic, effort: Effort = Effort.QUICK) -> Mapping[str, Call]:
    """Returns the callables by name. `full` effort adds `torch.compile` in three modes (1-10 s each to build).

    Where torch runs under autocast it is raced without, too (in TF32 on a GPU, in fp32 on a CPU): it may be faster, as
    a convolution of three channels is on an H200 (835 us for 979 us in FP16).

    Args:
        reference: At the workload to be timed.
        arithmetic: Sets torch's TF32 switches for this whole process, the reference's own error included.
        effort: How much to build.
    """
    set_arithmetic(arithmetic.value)
    found: dict[str, Call] = {EAGER: reference.call}
    if reference.half:
        found["eager without autocast"] = replace(reference, half=None).call
    if effort is Effort.FULL:
        for mode in COMPILE_MODES:
            compiled = replace(reference, model=torch.compile(reference.model, mode=mode))
            found[f"torch.compile {mode}"] = compiled.call
    return found
