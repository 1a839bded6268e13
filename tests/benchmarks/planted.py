"""Does the gate find what is planted, and is it silent where nothing changed?

    python tests/benchmarks/planted.py --device cuda:0 --goes 3 --repeats 20 --out result.json     (from the repository)

A kernel whose work can be set to a hundredth goes through `agentgen eval --baseline` as users start it: as it was, so
many times; then with 5% more work; then wrong, crashing, on a machine that fails, and not at all. The figures are in
docs/decisions/028-the-gate.md.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import agentgen

REFERENCE = '''"""Twelve steps of y / 2 + x; on a CPU of so few elements that torch does them in one thread."""

import torch
from torch import nn

rows = 4096
width = 4096


class Model(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(12):
            y = y * 0.5 + x
        return y


def get_inputs():
    return [torch.randn(rows, width)]


def get_init_inputs():
    return []
'''
PROBLEM = """title: Twelve steps of y / 2 + x
arithmetic: fp32
workloads:
  - name: main
    cpu_constants: {rows: 50, width: 512}
  - name: tiny
    constants: {rows: 3, width: 7}
"""
CPP = '''import torch
from torch import nn

from agentgen import jit

lib = jit.cpp(r"""
extern "C" void steps(const float* x, float* y, long rows, long width, long work) {
  for (long turn = 0; turn < rows * work / 10; ++turn) {  // ten times each row, at a work of 100
    const long row = turn % rows;
    for (long i = row * width; i < (row + 1) * width; ++i) {
      float value = x[i];
      for (int step = 0; step < 12; ++step) value = value * 0.5f + x[i];
      y[i] = value;
    }
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        lib.steps(x, y, x.shape[0], x.shape[1], WORK)
        return y
'''
CUDA = '''import torch
from torch import nn

from agentgen import jit

kernels = jit.cuda(r"""
extern "C" __global__ void steps(const float* x, float* y, long long rows, long long width) {
  const long long row = blockIdx.x % rows;
  for (long long i = row * width + threadIdx.x; i < (row + 1) * width; i += blockDim.x) {
    float value = x[i];
    for (int step = 0; step < 12; ++step) value = value * 0.5f + x[i];
    y[i] = value;
  }
}
""")


class ModelNew(nn.Module):
    def forward(self, x):
        y = torch.empty_like(x)
        kernels.steps[x.shape[0] * WORK // 50, 256](x, y, x.shape[0], x.shape[1])  # twice each row, at a work of 100
        return y
'''
TEXTS = {"cpp": CPP, "cuda": CUDA}
CRASHES = "import os\n\nos.abort()\n"
HEAD = "name: planted\nevaluators: [Decision, Cause]\ncases:\n"
CASES = ("steady", "wrong", "crashing", "failing", "removed")


@dataclass(frozen=True)
class Said:
    """How a command ended."""

    code: int
    answer: dict[str, Any]
    lines: tuple[str, ...]
    """What it said to people."""

    @property
    def regressions(self) -> list[str]:
        """The lines of the changes that are regressions."""
        kinds = {change["kind"] for change in self.answer["changes"] if change["regression"]}
        return [line for line in self.lines if line.split(":")[0] in kinds]


@dataclass(frozen=True)
class Place:
    """A folder with a dataset and its kernels."""

    folder: Path
    device: str

    @property
    def language(self) -> str:
        """In which the kernels are written."""
        return "cpp" if self.device == "cpu" else "cuda"

    def write(self, *names: str) -> None:
        """Writes the dataset with these cases, each with a kernel that is right; `failing` has a problem of its own."""
        text = HEAD
        for name in names:
            problem = "broken" if name == "failing" else "problem"
            for file, content in (("reference.py", REFERENCE), ("problem.yaml", PROBLEM)):
                path = self.folder / problem / file
                path.parent.mkdir(exist_ok=True)
                path.write_text(content)
            self.kernel(name)
            text += f"- name: {name}\n  inputs: {{problem: {problem}, kernel: {self.language}/{name}.py}}\n"
            text += "  metadata: {devices: [cpu, cuda]}\n  expected_output: {accepted: true}\n"
        (self.folder / "planted.yaml").write_text(text)

    def kernel(self, name: str, *, work: int = 100, wrong: bool = False, crashes: bool = False) -> None:
        """Writes the kernel of a case, with what is planted in it."""
        source = TEXTS[self.language].replace("WORK", str(work))
        source = source.replace("0.5f", "0.5001f") if wrong else source
        path = self.folder / self.language / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(CRASHES + source if crashes else source)

    def breaks(self) -> None:
        """Has the judge of `failing` fail, whatever it is given to judge."""
        (self.folder / "broken" / "reference.py").write_text(
            REFERENCE + "\nraise RuntimeError('this machine is broken')\n"
        )

    def evaluate(self, *options: str) -> Said:
        """Runs `agentgen eval` against the baseline."""
        program = "from agentgen.cli.main import main; main()"
        command = [sys.executable, "-c", program, "eval", "planted.yaml", "--device", self.device, "--json"]
        path = os.pathsep.join([str(Path(agentgen.__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        variables = {**os.environ, "PYTHONPATH": path}
        done = subprocess.run(
            [*command, "--baseline", "baseline.json", *options],
            cwd=self.folder,
            env=variables,
            capture_output=True,
            text=True,
            check=False,
        )
        return Said(done.returncode, json.loads(done.stdout), tuple(done.stderr.splitlines()))


def main() -> None:
    """Writes what was said each time, and prints the exit codes."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--goes", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path, required=True)
    arguments: Any = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Place(Path(folder), arguments.device)
        found = [(name, said) for name, said in _all(place, str(arguments.goes), arguments.repeats)]
    rows = [{"name": name, "code": said.code, "lines": said.lines, "answer": said.answer} for name, said in found]
    arguments.out.write_text(json.dumps(rows, indent=1))


def _all(place: Place, goes: str, repeats: int) -> list[tuple[str, Said]]:
    """Returns what each evaluation said. Each of `goes` opens judges anew: seconds, and more of them on a GPU."""
    found: list[tuple[str, Said]] = []

    def step(name: str, *options: str) -> None:
        said = place.evaluate(*options)
        found.append((name, said))
        told = said.answer.get("least_slowdown_told", {})
        sys.stdout.write(f"{name}: exit {said.code} {said.regressions if 'changes' in said.answer else ''} {told}\n")
        sys.stdout.flush()

    place.write(*CASES)
    step("baseline", "--update-baseline", "--repeat", goes)
    for number in range(repeats):
        step(f"unchanged {number + 1}", "--only", "steady", "--repeat", goes)
    place.kernel("steady", work=105)
    step("5% more work", "--only", "steady", "--repeat", goes)
    place.kernel("wrong", wrong=True)
    step("wrong", "--only", "wrong")
    place.kernel("crashing", crashes=True)
    step("crashing", "--only", "crashing")
    place.breaks()
    step("failing", "--only", "failing")
    place.write(*CASES[:-1])
    step("removed", "--only", "steady", "--only", "removed")
    return found


if __name__ == "__main__":
    main()
