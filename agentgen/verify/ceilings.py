"""What a device reaches on large, regular work: the ceilings of the roofline."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial

import torch

from agentgen import jit
from agentgen.records.machine import Ceilings, Machine
from agentgen.records.problem import Arithmetic
from agentgen.sandbox.guest.candidate import set_arithmetic

DTYPE: dict[Arithmetic, torch.dtype] = {
    Arithmetic.FP32: torch.float32,
    Arithmetic.TF32: torch.float32,
    Arithmetic.FP16: torch.float16,
    Arithmetic.BF16: torch.bfloat16,
}

DATASHEET_BYTES_PER_S = {
    "NVIDIA H200": 4.8e12,
    "NVIDIA H100 80GB HBM3": 3.35e12,
    "NVIDIA A100-SXM4-80GB": 2.039e12,
    "NVIDIA A100-SXM4-40GB": 1.555e12,
    "NVIDIA B200": 8.0e12,
    "NVIDIA L40S": 0.864e12,
}
"""Peak memory bandwidth by the vendors' datasheets: no honest kernel moves its bytes faster."""

COPY_OFFSET_WORDS = (2 << 20) // 4
"""A copy is measured to two places that lie so far apart. Where source and target were exactly 1 GiB apart, an H200
was often seen to copy 3.77 TB/s, by what had been allocated before, and 4.19 to 4.23 TB/s to a place 1 MiB to 512 MiB
further (n 16, 2026-11-23)."""

_FMA = r"""
#ifdef __AVX512F__
typedef float vec __attribute__((vector_size(64)));
enum { CHAINS = 16 };
#else
typedef float vec __attribute__((vector_size(32)));
enum { CHAINS = 10 };
#endif

extern "C" long operations_per_round() { return 2L * CHAINS * sizeof(vec) / sizeof(float); }

extern "C" void multiply_add(float* values, long rounds) {
  #pragma omp parallel
  {
    vec sums[CHAINS], factor, term;
    for (unsigned i = 0; i < sizeof(vec) / sizeof(float); ++i) {
      factor[i] = values[i] * 0.5f;
      term[i] = values[i];
    }
    for (int c = 0; c < CHAINS; ++c) sums[c] = term;
    for (long r = 0; r < rounds; ++r) {
      #pragma GCC unroll 16
      for (int c = 0; c < CHAINS; ++c) sums[c] = sums[c] * factor + term;
    }
    vec total = term;
    for (int c = 0; c < CHAINS; ++c) total += sums[c];
    if (total[0] == 12345.0f) values[0] = total[1];
  }
}
"""
"""Independent chains of multiply-adds: four cycles of latency, two a cycle, so at least eight."""


def measure(device: str, arithmetics: Iterable[Arithmetic]) -> Ceilings:
    """Measures the copy bandwidth and the matrix rate per arithmetic on random data: the best of 9, because a ceiling
    is what the device can do, not what it usually does beside other work.

    0.8 s on a 2-core CPU (three runs, for fp32 alone).
    """
    on_gpu = device != "cpu"
    words = (1 << 28) if on_gpu else (1 << 25)
    source = torch.randn(words, device=device)
    room = torch.empty(words + COPY_OFFSET_WORDS, device=device)
    targets = (room[:words], room[COPY_OFFSET_WORDS:]) if on_gpu else (room[:words],)
    copy_s = min(_best_s(partial(target.copy_, source), on_gpu) for target in targets)
    # On a CPU the best size differs from library to library and machine to machine.
    sizes = (8192,) if on_gpu else (512, 1024, 1536)
    rates = {arithmetic: max(_matmul_rate(device, arithmetic, size) for size in sizes) for arithmetic in arithmetics}
    if not on_gpu and Arithmetic.FP32 in rates:
        rates[Arithmetic.FP32] = max(rates[Arithmetic.FP32], _fma_rate())
    return Ceilings(copy_bytes_per_s=2 * source.nbytes / copy_s, matmul_flops_per_s=rates)


def bandwidth_limit(machine: Machine, measured: Ceilings) -> float:
    """Returns bytes per second that no kernel exceeds: the datasheet's, else 1.5 times what a copy reached."""
    return DATASHEET_BYTES_PER_S.get(machine.device, 1.5 * measured.copy_bytes_per_s)


def _matmul_rate(device: str, arithmetic: Arithmetic, size: int) -> float:
    set_arithmetic(arithmetic.value)
    a = torch.randn(size, size, device=device).to(DTYPE[arithmetic])
    b = torch.randn(size, size, device=device).to(DTYPE[arithmetic])
    return 2 * size**3 / _best_s(lambda: a @ b, device != "cpu")


def _fma_rate() -> float:
    """Returns fp32 operations per second of a loop of multiply-adds on registers, in all threads. A library's matrix
    product is no ceiling of a CPU: convolutions of torch itself, and candidates, were seen to be 3% beyond it.

    Where there is no g++ the matrix product has to do."""
    try:
        lib = jit.cpp(_FMA)
    except RuntimeError:
        return 0.0
    rounds = 400_000
    seconds = _best_s(lambda: lib.multiply_add(torch.ones(16), rounds), on_gpu=False)
    return torch.get_num_threads() * rounds * lib.operations_per_round() / seconds


def _best_s(call: Callable[[], object], on_gpu: bool) -> float:
    times: list[float] = []
    for _ in range(9):
        if on_gpu:
            first, last = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            first.record()
            call()
            last.record()
            torch.cuda.synchronize()
            times.append(first.elapsed_time(last) / 1e3)
        else:
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
    return min(times)
