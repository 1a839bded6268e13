"""How far an output is off, for the narrow gates of `numerics`: the sums and the worst element that they ask for.

On a GPU one kernel reads each tensor once: torch's own operations take five passes over float64 temporaries, which was
most of a check there (9.7 ms for 1 GiB on an H200). Elsewhere, and for layouts that the kernel does not read, torch.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch

from agentgen import jit
from agentgen.verify.conditioning import parts_of

THREADS = 256
CHUNK = 16 * THREADS
MOST_BLOCKS = 2112
"""Sixteen for each of an H200's multiprocessors."""
ELEMENTS = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "__half",
    torch.bfloat16: "__nv_bfloat16",
}

_SOURCE = r"""
#include <cuda_fp16.h>
#include <cuda_bf16.h>

__device__ double wide(float x) { return x; }
__device__ double wide(double x) { return x; }
__device__ double wide(__half x) { return __half2float(x); }
__device__ double wide(__nv_bfloat16 x) { return __bfloat162float(x); }

__device__ double summed(double x) {
    __shared__ double parts[THREADS / 32];
    for (int o = 16; o; o >>= 1) x += __shfl_xor_sync(~0u, x, o);
    __syncthreads();
    if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = x;
    __syncthreads();
    x = 0;
    for (int i = 0; i < THREADS / 32; i++) x += parts[i];
    return x;
}

extern "C" __global__ void __launch_bounds__(THREADS)
compare(const ELEMENT* out, const double* oracle, const ELEMENT* by_torch, const double* rms, long long n,
        unsigned width, double* sums, long long* worst) {
    double error = 0, torch_error = 0, most = 0;
    for (long long start = blockIdx.x * (long long)CHUNK; start < n; start += gridDim.x * (long long)CHUNK) {
        const double* scales = rms + start / width;
        const unsigned first = start % width, many = min((long long)CHUNK, n - start);
        #pragma unroll 4
        for (unsigned k = threadIdx.x; k < many; k += THREADS) {
            const double right = oracle[start + k], size = fabs(wide(out[start + k]) - right);
            const double own = wide(by_torch[start + k]) - right;
            error += size * size;
            torch_error += own * own;
            const double scale = fabs(right) + scales[(first + k) / width];
            if (!(size <= most * scale)) {  // a division only where the maximum may rise; NaN comes here
                const double ratio = size / scale;
                most = isnan(ratio) ? INFINITY : ratio;
            }
        }
    }
    error = summed(error);
    torch_error = summed(torch_error);
    for (int o = 16; o; o >>= 1) most = fmax(most, __shfl_xor_sync(~0u, most, o));
    if (threadIdx.x % 32 == 0) atomicMax(worst, __double_as_longlong(most));  // not negative: they sort as integers
    if (threadIdx.x == 0) {
        atomicAdd(sums, error);
        atomicAdd(sums + 1, torch_error);
    }
}
"""


@dataclass(frozen=True)
class Compared:
    """Of one output; squares are sums over all elements, in float64."""

    norm: float
    """Of the oracle, squared."""
    error: float
    torch_error: float
    worst: float
    """Largest |out - oracle| / (|oracle| + rms of its last-dimension row); NaN or infinite where `out` is."""
    beyond: float
    """The same, less what torch's own worst error allows, where `worst` is over the limit."""


def compare(
    out: torch.Tensor, oracle: torch.Tensor, by_torch: torch.Tensor, limit: float, torch_factor: float
) -> Compared:
    """Compares an output with its oracle, and torch's answer with it.

    Args:
        out: Any floating dtype, any shape with elements.
        oracle: float64, same shape.
        by_torch: Same shape.
        limit: Of the worst element; `beyond` is only worked out over it.
        torch_factor: `beyond` takes so many of torch's own worst errors off each element's.
    """
    if not (kernel := _kernel_for(out, oracle, by_torch)):
        return functools.reduce(_joined, _parts_by_torch(out, oracle, by_torch, limit, torch_factor))
    rms, norms = _rows(oracle.view(-1, oracle.shape[-1] if oracle.dim() else 1))
    found = torch.zeros(3, dtype=torch.float64, device=out.device)
    blocks = min(MOST_BLOCKS, -(-oracle.numel() // CHUNK))
    width = oracle.numel() // rms.numel()
    kernel.compare[blocks, THREADS](
        out, oracle, by_torch, rms, oracle.numel(), width, found[:2], found[2:].view(torch.int64)
    )
    norm, error, torch_error, worst = torch.cat([norms.square().sum().view(1), found]).tolist()  # waits once
    if worst <= limit:
        return Compared(norm, error, torch_error, worst, worst)
    again = functools.reduce(_joined, _parts_by_torch(out, oracle, by_torch, limit, torch_factor))
    return Compared(norm, error, torch_error, worst, again.beyond)


def _kernel_for(out: torch.Tensor, oracle: torch.Tensor, by_torch: torch.Tensor) -> jit.Kernels | None:
    fits = out.is_cuda and out.dtype is by_torch.dtype and out.dtype in ELEMENTS
    if not fits or not all(x.is_contiguous() for x in (out, oracle, by_torch)):
        return None
    # The kernel counts 32 bits within a row and the chunk behind it.
    return compiled(out.dtype) if not oracle.dim() or oracle.shape[-1] + CHUNK < 1 << 32 else None


@functools.cache
def compiled(dtype: torch.dtype, arch: str | None = None) -> jit.Kernels:
    """Returns the kernel for outputs of a dtype, for the current device or `arch`."""
    options = [f"-DELEMENT={ELEMENTS[dtype]}", f"-DTHREADS={THREADS}", f"-DCHUNK={CHUNK}"]
    return jit.cuda(_SOURCE, options, arch)


def _rows(oracle: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns each row's root mean square, never zero, and its norm."""
    norms = torch.linalg.vector_norm(oracle, dim=-1, keepdim=True)
    return (norms / math.sqrt(oracle.shape[-1])).clamp_(min=torch.finfo(torch.float64).tiny), norms


def _parts_by_torch(
    out: torch.Tensor, oracle: torch.Tensor, by_torch: torch.Tensor, limit: float, torch_factor: float
) -> Iterator[Compared]:
    parts = zip(parts_of(out, oracle), parts_of(oracle, oracle), parts_of(by_torch, oracle), strict=True)
    for one, right, own in parts:
        yield _by_torch(one, right, own, limit, torch_factor)


def _by_torch(
    out: torch.Tensor, oracle: torch.Tensor, by_torch: torch.Tensor, limit: float, torch_factor: float
) -> Compared:
    # As few passes as torch allows. What is not finite stays so in the norms.
    size, by_torch = (out - oracle).abs_(), by_torch - oracle
    rms, norms = _rows(oracle)
    totals = [torch.linalg.vector_norm(x) for x in (norms, size, by_torch)]
    worst = (size / oracle.abs().add_(rms)).max()
    norm, error, torch_error, worst = torch.stack([*(total.square() for total in totals), worst]).tolist()
    beyond = worst
    if not worst <= limit:
        slack = torch_factor * by_torch.abs_().max()
        beyond = ((size - slack).clamp_(min=0) / oracle.abs().add_(rms)).max().item()
    return Compared(norm, error, torch_error, worst, beyond)


def _joined(one: Compared, other: Compared) -> Compared:
    return Compared(
        one.norm + other.norm,
        one.error + other.error,
        one.torch_error + other.torch_error,
        _most(one.worst, other.worst),
        _most(one.beyond, other.beyond),
    )


def _most(one: float, other: float) -> float:
    return math.nan if math.isnan(one) or math.isnan(other) else max(one, other)
