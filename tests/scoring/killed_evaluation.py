"""Judges that know their answers and count what they are asked; as a program, an evaluation by them, to be killed.

killed_evaluation.py DATASET LOG REPORT
"""

from __future__ import annotations

import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agentgen.errors import DeviceLost
from agentgen.records.candidate import Candidate
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Depth, Outcome, Trial
from agentgen.scoring import batch

HEAD = "name: small\nevaluators: [Decision]\nreport_evaluators: [Confusion, ErrorRates]\ncases:\n"


def dataset(folder: Path, count: int) -> Path:
    """Writes a problem, kernels for it, and a dataset of them."""
    (folder / "cpp").mkdir(parents=True)
    (folder / "p").mkdir()
    (folder / "p" / "reference.py").write_text("class Model: ...")
    text = HEAD
    for number in range(count):
        (folder / "cpp" / f"{number}.py").write_text(f"PASSED {number}")
        text += f"- {{name: k{number}, inputs: {{problem: p, kernel: cpp/{number}.py}}, "
        text += "metadata: {devices: [cpu]}, expected_output: {accepted: true}}\n"
    path = folder / "small.yaml"
    path.write_text(text)
    return path


class Judges:
    """Opens judges, each of which loses its device with a kernel as often as is said."""

    def __init__(
        self,
        *,
        losses: dict[str, int] | None = None,
        device: str = "a CPU",
        seconds: float = 0.0,
        log: Path | None = None,
    ) -> None:
        self.judged: list[str] = []
        self.opened = self.open = 0
        self._losses = losses or {}
        self._device = device
        self._seconds = seconds
        self._log = log

    @contextmanager
    def __call__(self, _device: str, _folder: Path, _arithmetic: Arithmetic | None) -> Generator[Judges]:
        self.opened += 1
        self.open += 1
        yield self
        self.open -= 1

    def evaluate(self, candidate: Candidate, *, depth: Depth) -> Trial:
        source = candidate.source
        self.judged.append(source)
        if self._log:
            with self._log.open("a") as log:
                log.write(f"{source}\n")
        time.sleep(self._seconds)
        if self._losses.get(source):
            self._losses[source] -= 1
            raise DeviceLost("the device is gone")
        return Trial(
            candidate=candidate.id,
            problem="p",
            arithmetic=Arithmetic.FP32,
            machine=self.machine(self._device),
            outcome=Outcome(source.split()[0]),
        )

    def stop(self) -> None:
        """It is never in the middle of anything."""

    @staticmethod
    def machine(device: str) -> Machine:
        """Returns the machine of that name."""
        return Machine(
            device_type="cpu",
            device=device,
            cores=2,
            memory_bytes=1 << 30,
            last_level_cache_bytes=1 << 20,
            torch="2",
            triton=None,
            python="3",
        )


if __name__ == "__main__":
    from whole import evaluated

    path, log, kept = map(Path, sys.argv[1:])
    batch.save(evaluated(path, Judges(seconds=0.05, log=log)), kept)
