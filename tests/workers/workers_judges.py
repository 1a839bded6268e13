"""A small problem for a judge that is a program, and what is left of such programs."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from agentgen.records.problem import Arithmetic, OwnWork, Problem, Workload
from agentgen.records.run import Effort
from agentgen.workers.local import LocalJudge

REFERENCE = """
import torch
from torch import nn
rows = 200
class Model(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.layer = nn.Linear(width, width)
    def forward(self, x):
        return self.layer(x)
def get_inputs():
    return [torch.randn(rows, 64)]
def get_init_inputs():
    return [64]
"""
TORCH_S_OWN = REFERENCE.replace("class Model(", "class ModelNew(")
HANGS = "import time\ntime.sleep(100)\nclass ModelNew: ..."


def problem(reference: str = REFERENCE) -> Problem:
    """Returns a linear layer that torch may compute."""
    return Problem(
        name="linear",
        title="Linear",
        reference=reference,
        workloads=(Workload(name="main"),),
        arithmetic=Arithmetic.FP32,
        own_work=OwnWork.LIBRARY,
    )


def judge_of(given: Problem, device: str = "cpu") -> LocalJudge:
    """Returns a judge, which starts with its first use."""
    return LocalJudge(given, device, Arithmetic.FP32, Effort.QUICK)


def processes(temporary: Path) -> dict[int, str]:
    """Returns the module that each judge, zygote and guest runs, of those that keep what is temporary there."""
    found: dict[int, str] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        # Gone meanwhile; a zombie has an empty environment, and one that ends between the two has no command.
        with contextlib.suppress(OSError, IndexError):
            if f"TMPDIR={temporary}" in (folder / "environ").read_text():
                found[int(folder.name)] = (folder / "cmdline").read_text().split("\0")[2]
    return found


def leaders(temporary: Path) -> list[int]:
    """Returns zygotes and guests, each of which leads a session: not what founds jails for a zygote, nor those."""
    running = processes(temporary)
    return [pid for pid, module in running.items() if module.endswith("zygote") and os.getsid(pid) == pid]


def gone(temporary: Path) -> bool:
    """Whether no process of ours is left within ten seconds."""
    deadline = time.monotonic() + 10
    while processes(temporary):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def scratch(temporary: Path) -> list[Path]:
    """Returns the folders of sandboxes."""
    return list(temporary.glob("agentgen-*"))
