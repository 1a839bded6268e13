"""A leaderboard with all that a site can show, for its tests."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from entry_records import DAY, MACHINE, entry, problem, speedup
from entry_records import again as judged_again
from pydantic_evals import Case, Dataset
from report_records import accuracy

from agentgen.records.entry import Entry, Finding, Step
from agentgen.records.idea import Category, Idea
from agentgen.records.machine import Machine
from agentgen.records.problem import Arithmetic
from agentgen.records.score import Score
from agentgen.records.trial import BuildReport, Check, KernelProfile, Neighbour, Outcome, Speedup
from agentgen.report.site.site import render
from agentgen.report.standings import boards
from agentgen.scoring import batch
from agentgen.scoring.cases import About, Inputs, Solve
from agentgen.scoring.evaluators import Correct
from agentgen.scoring.summaries import FastP, Outcomes
from agentgen.scoring.verdicts import Verdict
from agentgen.store.entries import Kept

CPU = MACHINE.model_copy(
    update={"device_type": "cpu", "device": "AMD EPYC", "cores": 2, "triton": None, "compute_capability": None}
)
NEWER = MACHINE.model_copy(update={"torch": "2.12.0"})
SOURCE = '''import torch
from agentgen import jit

lib = jit.cuda(r"""
#include <cuda_fp16.h>
__global__ void conv(const float* __restrict__ x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;  // one output each
    if (i < n) y[i] = 2.0f * x[i];
}
""")


class ModelNew(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return lib.conv(x)  # µ
'''


def rich(source: str = SOURCE, ratio: float = 10.1, *, roofline: float | None = 0.64, **fields: Any) -> Entry:
    """Returns an entry with a way of three kernels, of which one crashed, and a certificate with all its parts."""
    made = entry(source, ratio, **fields)
    last = made.chain[-1]
    first = Idea(
        parent=made.problem.root(Arithmetic.FP32),
        category=Category.PARALLELISM,
        title="Stage each band once as zero-padded FP16 with exact partners",
        reasoning="The input is read 121 times.\nStaged once, it is read from shared memory.",
        predicted_speedup=4.0,
    )
    chain = (
        _step("a" * 16, first, 6.2),
        _step("b" * 16, last.idea, None, outcome=Outcome.CRASHED, reason="illegal memory access\nat 0x10"),
        last.model_copy(update={"repair": 1, "score": _score(made.id, 9.3), "written_by": made.origin.model}),
    )
    certificate = made.trial.model_copy(
        update={
            "speedups": tuple(
                speedup(ratio * times, baseline=name)
                for times, name in ((1.0, "torch.compile max-autotune"), (1.3, "eager"))
            ),
            "neighbours": tuple(
                _near(name, at) for name, at in (("half", 14.1), ("one item", 4.0), ("odd sizes", 0.13))
            ),
            "checks": (
                Check(name="values: main", passed=True, evidence="14 families of 100 draws"),
                Check(name="races", passed=None, evidence="racecheck saw 0 hazards"),
            ),
            "accuracy": (accuracy("main", "normal", 2e-7), accuracy("main", "scaled", 9e-7)),
            "build": (BuildReport(kernel="conv", registers=96, spill_bytes=0, shared_bytes=49152),),
            "profile": (KernelProfile(kernel="conv", launches=1, us=80.1, share=0.97, threads=256, blocks=1056),),
            "roofline_fraction": roofline,
            "seconds": {"build": 3.2, "check": 12.5, "time": 8.0, "certify": 60.0},
        }
    )
    return made.model_copy(update={"chain": chain, "trial": certificate})


def _near(name: str, ratio: float) -> Neighbour:
    return Neighbour(workload=name, median_us=90.0, speedup=speedup(ratio, 0.05, "eager"))


def _score(candidate: str, ratio: float) -> Score:
    return Score(candidate=candidate, outcome=Outcome.PASSED, median_us=800 / ratio, speedup=speedup(ratio))


def _step(
    candidate: str, idea: Idea | None, ratio: float | None, outcome: Outcome = Outcome.PASSED, reason: str | None = None
) -> Step:
    language = entry().candidate.language
    score = _score(candidate, ratio) if ratio else Score(candidate=candidate, outcome=outcome, reason=reason)
    return Step(candidate=candidate, language=language, idea=idea, score=score, written_by="gpt-oss-120b")


def kept(*entries: Entry) -> list[Kept]:
    return [Kept(Path("/results/kernels") / one.place, one) for one in entries]


def leaderboard() -> list[Kept]:
    """Returns two problems on three kinds of machine, the best entry reverified twice."""
    softmax, long = problem("softmax"), problem("conv2d_relu_maxpool")
    best, *others = kept(
        rich(),
        rich(SOURCE + "# second\n", 9.0, model="another model"),
        rich(SOURCE + "# newer\n", 7.0, roofline=None, machine=NEWER),
        rich(SOURCE, 1.9, roofline=1.46, machine=CPU),
        rich(SOURCE, 1.25, roofline=0.05, of=softmax),
        rich(SOURCE, 16.0, roofline=0.81, of=long),
    )
    return [Kept(best.folder, best.entry, (judged_again(Finding.SLOWER), judged_again())), *others]


def race(baseline: str, ratio: float) -> Speedup:
    return speedup(ratio, 0.05, baseline)


def report(
    ratios: Sequence[float | None],
    *,
    name: str = "headline",
    machine: Machine | None = MACHINE,
    over: Sequence[Any] = (Outcomes(), FastP()),
    **about: object,
) -> batch.Report:
    """Returns the report of problems solved at these speedups over the best baseline; None: unsolved."""

    async def end(inputs: Inputs) -> Verdict:
        ratio = ratios[int(str(inputs.problem))]
        if ratio is None:
            return Verdict(accepted=False, outcome=Outcome.WRONG_VALUES, reasons=("wrong",))
        races = race("torch.compile default", ratio), race("eager", 1.5 * ratio)
        return Verdict(accepted=True, outcome=Outcome.PASSED, races=races)

    made: list[Case[Inputs, Verdict, About]] = [
        Case(name=f"case {n}", inputs=Solve(problem=Path(str(n)))) for n in range(len(ratios))
    ]
    dataset = Dataset[Inputs, Verdict, About](name=name, cases=made, evaluators=[Correct()], report_evaluators=over)
    found = dataset.evaluate_sync(end, name=name, progress=False)
    told: Mapping[str, object] = {"date": f"{DAY:%Y-%m-%d}", "models": ["gpt-oss-120b"], **about}
    found.experiment_metadata = {**told, "machine": machine.model_dump(mode="json") if machine else None}
    return found


def files(*entries: Kept) -> dict[str, bytes]:
    """Returns the files of a site."""
    return render(boards(entries), (), (), ())
