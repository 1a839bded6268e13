from __future__ import annotations

import pytest
from search_factories import MACHINE, TARGET, make_candidate, passed, untimed

from agentgen.records.machine import Ceilings, Target
from agentgen.records.problem import Arithmetic
from agentgen.records.trial import KernelProfile, Trial
from agentgen.search.bottleneck import Resource, bottleneck, bottleneck_lines
from agentgen.search.feedback import trial_report

H200 = MACHINE.model_copy(
    update={"device_type": "cuda", "device": "NVIDIA H200", "cores": 132, "compute_capability": "9.0"}
)
RATES = {Arithmetic.FP32: 51.3e12, Arithmetic.TF32: 416e12, Arithmetic.FP16: 764e12, Arithmetic.BF16: 794e12}


def target(arithmetic: Arithmetic, flops: int, bytes_moved: int) -> Target:
    """Returns a problem on an H200."""
    ceilings = Ceilings(copy_bytes_per_s=4.27e12, matmul_flops_per_s=RATES)
    memory, compute = bytes_moved / 4.27e6, flops / ceilings.peak_flops_per_s(arithmetic) * 1e6
    update = {"arithmetic": arithmetic, "machine": H200, "ceilings": ceilings, "flops": flops}
    bound = {"bound_us": max(memory, compute), "bound_by": "memory" if memory >= compute else "compute"}
    return TARGET.model_copy(update={**update, **bound, "bytes_moved": bytes_moved})


def timed(median_us: float, *profile: KernelProfile) -> Trial:
    """Returns a trial of so many microseconds."""
    trial = passed(make_candidate("x"), 1.0)
    assert trial.timing is not None
    timing = trial.timing.model_copy(update={"median_us": median_us})
    return trial.model_copy(update={"timing": timing, "profile": profile, "machine": H200})


def test_hints_are_given_where_it_waits() -> None:
    few = KernelProfile(kernel="k", launches=1, us=8000.0, share=1.0, threads=256, blocks=16)
    *_, line = bottleneck_lines(target(Arithmetic.FP32, *SOFTMAX), timed(8065.0, few))
    assert line.endswith("instructions that are no multiply-adds). Seen: 16 blocks for 132 multiprocessors")


def kernel(launches: float, us: float) -> KernelProfile:
    return KernelProfile(kernel="k", launches=launches, us=us, share=1.0)


MATMUL = 2 * 4096**3, 3 * 4 * 4096**2  # figures of a matrix product of 4096, as measured on an H200
SOFTMAX = 0, 2 * 4 * 4096 * 65536


@pytest.mark.parametrize(
    ("arithmetic", "work", "median_us", "expected"),
    [
        (Arithmetic.FP32, SOFTMAX, 660.0, Resource.MEMORY),  # 76% of the copy rate
        (Arithmetic.FP32, SOFTMAX, 1045.0, Resource.LATENCY),  # 48%
        (Arithmetic.TF32, MATMUL, 340.6, Resource.TENSOR_CORES),
        (Arithmetic.FP16, MATMUL, 179.8, Resource.TENSOR_CORES),
        (Arithmetic.FP32, MATMUL, 2679.0, Resource.FLOATING_POINT),  # cuBLAS, by multiply-adds in fp32
        (Arithmetic.FP32, MATMUL, 3020.0, Resource.FLOATING_POINT),
        (Arithmetic.FP32, MATMUL, 1100.0, Resource.TENSOR_CORES),  # beyond what fp32 units can
        (Arithmetic.TF32, MATMUL, 1540.0, Resource.LATENCY),
        (Arithmetic.FP32, (0, 8192), 4.0, Resource.LAUNCH),
    ],
)
def test_what_binds_on_a_gpu(
    arithmetic: Arithmetic, work: tuple[int, int], median_us: float, expected: Resource
) -> None:
    assert bottleneck(target(arithmetic, *work), timed(median_us)) is expected


def test_gaps_between_many_kernels_are_launches() -> None:
    problem = target(Arithmetic.FP32, *SOFTMAX)
    assert bottleneck(problem, timed(1045.0, kernel(1, 1000.0))) is Resource.LATENCY
    assert bottleneck(problem, timed(1045.0, kernel(40, 500.0))) is Resource.LAUNCH
    assert bottleneck(problem, timed(1045.0, kernel(4, 1000.0))) is Resource.LATENCY
    assert bottleneck(problem, timed(1045.0, kernel(200, 1000.0))) is Resource.LAUNCH, "200 launches take 600 us"


def test_what_binds_on_a_cpu() -> None:
    product = TARGET.model_copy(update={"flops": 150_000_000})  # 1 ms at the rate of a large product
    assert bottleneck(TARGET, timed(250.0)) is Resource.MEMORY
    assert bottleneck(product, timed(1200.0)) is Resource.FLOATING_POINT
    assert bottleneck(product, timed(6000.0)) is Resource.LATENCY
    assert bottleneck(TARGET.model_copy(update={"bytes_moved": 100}), timed(8.0)) is Resource.LAUNCH


def test_nothing_is_said_without_a_timing() -> None:
    trial = untimed(make_candidate("x"))
    assert bottleneck(TARGET, trial) is None
    assert list(bottleneck_lines(TARGET, trial)) == []


def test_the_figures_stand_beside_the_verdict() -> None:
    floor, reached, binds = bottleneck_lines(target(Arithmetic.FP32, *MATMUL), timed(2679.0))
    assert floor == "- Floor: 991.1 us, by compute; the kernel takes 2.7 times that"
    assert reached == (
        "- Reached: 75.15 GB/s of the bytes it must move, 2% of the copy rate; 51.3 TFLOP/s, 100% of a large matrix "
        "product in fp32 and 37% of what three TF32 products for each in fp32 would allow"
    )
    assert binds.startswith("- Binds, by these figures: floating-point units, if its products are fp32 multiply-adds")
    assert "Binds, by these figures: memory." in trial_report(timed(250.0), TARGET)
    assert "Binds" not in trial_report(timed(250.0))


def binds(problem: Target, trial: Trial) -> str:
    """Returns the last line."""
    *_, line = bottleneck_lines(problem, trial)
    return line.removeprefix("- Binds, by these figures: ")


def test_where_splitting_does_not_pay_fp32_units_bind() -> None:
    problem = target(Arithmetic.FP32, *MATMUL)
    rates = {Arithmetic.FP32: 57e12, Arithmetic.TF32: 82e12}  # of compute capability 8.6
    slower = problem.model_copy(update={"ceilings": Ceilings(copy_bytes_per_s=9e11, matmul_flops_per_s=rates)})
    full_us = problem.flops / 57e6
    assert bottleneck(slower, timed(full_us)) is Resource.FLOATING_POINT
    assert binds(slower, timed(full_us)).startswith("floating-point units. Fewer or cheaper")
    assert bottleneck(slower, timed(full_us / 1.35)) is Resource.TENSOR_CORES, "fp32 units cannot"
    assert "three TF32 products on tensor cores are the way on" in binds(problem, timed(2679.0))


def test_a_short_kernel_at_its_floor_does_not_wait_for_its_launch() -> None:
    layernorm = target(Arithmetic.FP32, 0, 24_000_000)  # 5.6 us
    assert binds(layernorm, timed(6.0, kernel(1, 5.8))) == "memory, at its floor: little is left to win"
    one = "launch. One kernel takes some 3 us however little it does; little is left to win"
    assert binds(target(Arithmetic.FP32, 0, 8192), timed(4.0)) == one
    assert binds(target(Arithmetic.FP32, 0, 8192), timed(4.0, kernel(1, 2.0))) == one
    assert binds(target(Arithmetic.FP32, 0, 8192), timed(9.0, kernel(2, 2.0))).startswith("launches (2 a call). ")
    assert binds(TARGET.model_copy(update={"bytes_moved": 100}), timed(8.0)).startswith("the call itself. ")


@pytest.mark.parametrize(
    ("median_us", "said"), [(400.0, "in part from the cache"), (520.0, "at its floor"), (660.0, "Bytes read twice")]
)
def test_words_on_memory_are_by_the_share_of_the_copy_rate(median_us: float, said: str) -> None:
    assert said in binds(target(Arithmetic.FP32, *SOFTMAX), timed(median_us))
