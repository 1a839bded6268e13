"""CUDA C++ compiled by the real NVRTC; no GPU is needed."""

from __future__ import annotations

import pytest

from agentgen import jit

pytestmark = pytest.mark.usefixtures("nvrtc")

SCALE = r"""
extern "C" __global__ void __launch_bounds__(1024) scale(
    const float* __restrict__ x, float* out, int64_t n, float a) {
  __shared__ float tile[64];
  tile[threadIdx.x % 64] = x[threadIdx.x];
  __syncthreads();
  if (threadIdx.x < n) out[threadIdx.x] = a * tile[(threadIdx.x + 1) % 64];
}
"""

GREEDY = r"""
extern "C" __global__ void greedy(float* x, int n) {
  float kept[48];
  for (int i = 0; i < 48; i++) kept[i] = x[i * n];
  __syncthreads();
  for (int i = 0; i < 48; i++) x[i * n + 1] = kept[i] * kept[47 - i];
}
"""

HOPPER = r"""
#include <cstdint>
#include <cuda_fp16.h>
#include <cuda_bf16.h>
#include <mma.h>
extern __shared__ float dynamic[];
helper_mark float half_of(float value) { return value / 2; }
extern "C" __global__ void asynchronous(const float* x, float* out) {
  unsigned target = (unsigned)__cvta_generic_to_shared(dynamic + 4 * threadIdx.x);
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" :: "r"(target), "l"(x + 4 * threadIdx.x));
  asm volatile("cp.async.commit_group;\ncp.async.wait_group 0;");
  __syncthreads();
  out[threadIdx.x] = half_of(dynamic[threadIdx.x]);
}
extern "C" __global__ void tensor_tf32(const uint32_t* a, const uint32_t* b, float* c) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
               "{%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  c[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
extern "C" __global__ void warp_group(uint64_t a, uint64_t b, float* c) {
  float d[4] = {0, 0, 0, 0};
  asm volatile("wgmma.fence.sync.aligned;");
  asm volatile("{ wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 {%0,%1,%2,%3}, %4, %5, 1, 1, 1, 0, 0; }"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]) : "l"(a), "l"(b));
  asm volatile("wgmma.commit_group.sync.aligned;\nwgmma.wait_group.sync.aligned 0;");
  c[threadIdx.x] = d[0] + d[1] + d[2] + d[3];
}
extern "C" __global__ void fragments(const half* a, const half* b, float* c) {
  using namespace nvcuda::wmma;
  fragment<matrix_a, 16, 16, 16, half, row_major> left;
  fragment<matrix_b, 16, 16, 16, half, col_major> right;
  fragment<accumulator, 16, 16, 16, float> sum;
  fill_fragment(sum, 0.0f);
  load_matrix_sync(left, a, 16);
  load_matrix_sync(right, b, 16);
  mma_sync(sum, left, right, sum);
  store_matrix_sync(c, sum, 16, mem_row_major);
}
"""


def test_cuda_report_has_registers_spills_and_shared_memory() -> None:
    kernels = jit.cuda(SCALE + GREEDY, options=["--maxrregcount=24", "-O3"], arch="80")
    scale, greedy = sorted(kernels.report, key=lambda entry: str(entry["kernel"]), reverse=True)
    assert scale == {"kernel": "scale", "registers": scale["registers"], "spill_bytes": 0, "shared_bytes": 256}
    assert 4 <= scale["registers"] <= 24
    assert greedy["spill_bytes"] > 0
    assert all(entry in jit.builds() for entry in kernels.report)
    assert repr(kernels.scale) == ("<CUDA kernel scale(const float* __restrict__ x, float* out, int64_t n, float a)>")


def test_cuda_hopper_instructions_compile_without_a_gpu() -> None:
    kernels = jit.cuda(HOPPER.replace("helper_mark", ""), arch="sm_90a")
    names = ["asynchronous", "fragments", "tensor_tf32", "warp_group"]
    assert sorted(entry["kernel"] for entry in kernels.report) == names
    with pytest.raises(jit.CompileError, match="wgmma"):
        jit.cuda(HOPPER.replace("helper_mark", "__device__"), arch="sm_80")


def test_cuda_error_in_inline_ptx_is_traced_to_its_line() -> None:
    source = (
        'extern "C" __global__ void f(float* x, int n) {\n  x[n] = 1;\n  asm volatile("cp.foo %0;" :: "r"(n));\n}\n'
    )
    with pytest.raises(jit.CompileError, match=r"`cp.foo %r\d+;` is from candidate.cu\(3\): asm volatile"):
        jit.cuda(source)


def test_cuda_says_that_there_are_no_torch_headers() -> None:
    with pytest.raises(jit.CompileError, match=r"cannot open source file .*\n(.*\n)*NVRTC has CUDA's headers"):
        jit.cuda("#include <torch/extension.h>\n")
    with pytest.raises(jit.CompileError, match="unrecognized option --no-such-option"):
        jit.cuda(SCALE, options="--no-such-option")


def test_cuda_host_headers_and_macros_of_c_are_there() -> None:
    source = r"""
#include <stdint.h>
#include <math.h>
#include <float.h>
#include <cmath>
#include <cstdio>
#include <cuda_runtime.h>
extern "C" __global__ void f(float* x, uint32_t n) { x[n] = fmaxf(-INFINITY, -FLT_MAX) + expf(x[0]) + NAN; }
"""
    assert jit.cuda(source).report[0]["kernel"] == "f"
