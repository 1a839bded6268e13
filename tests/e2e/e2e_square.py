"""A small problem of its own, its kernels, and the command line as users start it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

REFERENCE = """
import torch
from torch import nn

rows = 256
columns = 4096


class Model(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        return x * x * self.weight


def get_inputs():
    return [torch.randn(rows, columns)]


def get_init_inputs():
    return [columns]
"""

PROBLEM = """
title: Weighted square
arithmetic: fp32
workloads:
  - name: main
  - name: tiny
    constants: {rows: 3, columns: 5}
"""

CANDIDATE = '''
import torch
from torch import nn
from agentgen import jit

lib = jit.cpp(r"""
extern "C" void square(const float* x, const float* w, float* y, long rows, long columns) {
  #pragma omp parallel for
  for (long i = 0; i < rows; ++i)
    for (long j = 0; j < columns; ++j) y[i * columns + j] = EXPRESSION;
}
""")


class ModelNew(nn.Module):
    def __init__(self, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(columns))

    def forward(self, x):
        y = torch.empty_like(x)
        lib.square(x, self.weight, y, x.shape[0], x.shape[1])
        return y
'''

HONEST = CANDIDATE.replace("EXPRESSION", "x[i * columns + j] * x[i * columns + j] * w[j]")
FORGETS_THE_WEIGHT = CANDIDATE.replace("EXPRESSION", "x[i * columns + j] * x[i * columns + j]")


def environment(home: Path) -> dict[str, str]:
    """The user's environment, with a store and problems of its own and no key."""
    kept = {k: v for k, v in os.environ.items() if k not in {"OPENAI_API_KEY", "AGENTGEN_BASE_URL", "AGENTGEN_MODEL"}}
    return {
        **kept,
        "AGENTGEN_PROBLEMS": str(home / "problems"),
        "AGENTGEN_STORE": f"sqlite:///{home / 'results' / 'agentgen.db'}",
    }


def command(*arguments: str) -> list[str]:
    """The command line of `agentgen ARGUMENTS`."""
    return [sys.executable, "-c", "from agentgen.cli.main import main; main()", *arguments]


def agentgen(home: Path, *arguments: str) -> tuple[int, dict[str, Any]]:
    """Runs a command with --json; returns its exit code and the one object it printed."""
    done = subprocess.run(
        command(*arguments, "--json"), cwd=home, env=environment(home), capture_output=True, text=True, timeout=120
    )
    return done.returncode, json.loads(done.stdout)
