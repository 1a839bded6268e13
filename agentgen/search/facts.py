"""What every request says of the task: the rules (system prompt), and the problem and device (facts)."""

from __future__ import annotations

from collections.abc import Mapping

from agentgen.records.machine import Target, TensorShape
from agentgen.records.problem import Arithmetic, Demand, Scalar
from agentgen.records.run import Run
from agentgen.search.prompts import render

CLASS_FLOOR = {Arithmetic.FP32: "2e-6", Arithmetic.TF32: "1e-3", Arithmetic.FP16: "1e-3", Arithmetic.BF16: "8e-3"}
"""The gate that no problem falls below. The judge has its own table (it imports torch, this layer does not)."""


def system_text(run: Run) -> str:
    """Returns the rules of honesty and accuracy for a run."""
    arithmetic = run.arithmetic.on(run.device_type)
    return render(
        "system",
        arithmetic=arithmetic.value,
        arithmetic_rule=render(f"arithmetic-{arithmetic.value}"),
        floor=CLASS_FLOOR[arithmetic],
        own_work=run.problem.own_work.value,
        own_work_rule=render(f"own-work-{run.problem.own_work.value}"),
    )


def facts_text(run: Run, target: Target) -> str:
    """Returns the problem, the device and the bound."""
    return render(
        "facts",
        title=run.problem.title,
        reference=run.problem.reference.strip(),
        workload=target.workload,
        constants=_assignments(target.constants) or "as above",
        tensors="\n".join(_tensors(target)),
        workloads="\n".join(_workloads(run)),
        demands=_demands(run),
        device=_device(target),
        work=_work(target),
        bytes=f"{target.bytes_moved:.4g}",
        memory_us=us(target.bytes_moved / target.ceilings.copy_bytes_per_s * 1e6),
        compute=_compute(target),
        bound_us=us(target.bound_us),
        bound_by=target.bound_by,
        baselines="; ".join(f"{name} {us(time_us)} us" for name, time_us in target.baselines_us.items()),
        best_baseline=target.best_baseline,
    )


def us(time_us: float) -> str:
    """Returns microseconds with four digits, never in powers of ten."""
    return f"{time_us:.0f}" if time_us >= 1000 else f"{time_us:.4g}"


def _tensors(target: Target) -> list[str]:
    def row(name: str, tensor: TensorShape) -> str:
        return f"| {name} | ({', '.join(map(str, tensor.shape))}) | {tensor.dtype} |"

    return [
        *(row(f"input {index}", tensor) for index, tensor in enumerate(target.inputs)),
        *(row(f"parameter or buffer `{name}`", tensor) for name, tensor in target.parameters.items()),
        *(row(f"output {index}", tensor) for index, tensor in enumerate(target.outputs)),
    ]


def _workloads(run: Run) -> list[str]:
    others = [workload for workload in run.problem.workloads if workload.name != "main"]
    lines = [f"- `{other.name}`: {_assignments(other.constants_on(run.device_type))}" for other in others]
    return lines or ["- (no others)"]


def _demands(run: Run) -> str:
    """Returns what the problem requires of a kernel beyond what every problem does."""
    found: list[str] = []
    if run.problem.special_values is Demand.REQUIRED:
        found.append(
            "\n\nRequired here: with NaN and Inf among the inputs, outputs are finite exactly where PyTorch's are."
        )
    if run.problem.strided_inputs is Demand.REQUIRED:
        found.append(
            "\n\nRequired here: inputs may be slices of something wider, with gaps between their rows. Be right on "
            "them (`.contiguous()` is free where nothing is to be copied) or raise; never wrong in silence."
        )
    return "".join(found)


def _assignments(constants: Mapping[str, Scalar]) -> str:
    return ", ".join(f"{name} = {value!r}" for name, value in constants.items())


def _device(target: Target) -> str:
    machine, ceilings = target.machine, target.ceilings
    units = "streaming multiprocessors" if machine.device_type == "cuda" else "cores for this process"
    rates = ", ".join(f"{name.value} {rate / 1e12:.4g}" for name, rate in ceilings.matmul_flops_per_s.items())
    versions = [f"PyTorch {machine.torch}"]
    if machine.triton:
        versions.append(f"Triton {machine.triton}")
    if machine.cuda:
        versions.append(f"CUDA {machine.cuda}")
    lines = [
        f"- {machine.device}, {machine.cores} {units}",
        f"- memory {machine.memory_bytes / 2**30:.0f} GiB",
        f"- last-level cache {machine.last_level_cache_bytes / 2**20:.4g} MiB",
        f"- measured copy rate, bytes read plus written: {ceilings.copy_bytes_per_s / 1e9:.4g} GB/s",
        f"- measured rate of a large matrix product, TFLOP/s: {rates}",
        f"- {', '.join(versions)}",
    ]
    if machine.compute_capability:
        lines.insert(1, f"- compute capability {machine.compute_capability}")
    return "\n".join(lines)


def _work(target: Target) -> str:
    if not target.flops:
        return ""
    where = "in matrix products and convolutions (others are not counted)"
    return f"does {target.flops:.4g} floating-point operations {where} and "


def _compute(target: Target) -> str:
    if not target.flops:
        return ""
    peak = target.ceilings.peak_flops_per_s(target.arithmetic)
    split = peak > target.ceilings.matmul_flops_per_s[target.arithmetic]
    third = "a third of the TF32 rate (three products of split operands)"
    rate = third if split else "the rate of a large matrix product"
    return f", computing at {rate} {us(target.flops / peak * 1e6)} us"
