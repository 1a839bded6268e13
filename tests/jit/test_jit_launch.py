"""Launches: what is told before one, and, on a GPU, what arrives."""

from __future__ import annotations

import ctypes
import threading
from pathlib import Path
from typing import Any

import pytest
import torch

from agentgen import jit

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")

TWO = r"""
extern "C" __global__ void scale(float* x, float a) { x[threadIdx.x] *= a; }
__global__ void mangled(int n) {}
extern "C" __global__ void shift(float* x, float a) { x[threadIdx.x] += a; }
"""


@pytest.mark.usefixtures("nvrtc")
def test_cuda_lookup_and_launch_shape_mistakes_are_told() -> None:
    kernels = jit.cuda(TWO)
    with pytest.raises(AttributeError, match=r'`mangled`.*there are: scale, shift\. Is it defined extern "C"\?'):
        _ = kernels.mangled
    with pytest.raises(TypeError, match=r"say grid and block: kernels.scale\[grid, block\]"):
        kernels.scale(1)
    for kernel in (kernels.scale, kernels.scale.cooperative):
        with pytest.raises(TypeError, match=r"kernels.scale\[grid, block\] or"):
            kernel[8]
    for shared in (-1, 16.0, None):
        with pytest.raises(ValueError, match=r"dynamic_shared_bytes=.* must be an integer"):
            kernels.scale[1, 32, shared]
    for grid in (0, 1.5, (1, 2, 3, 4), (1, -1)):
        with pytest.raises(ValueError, match=r"grid=.* must be one to three integers above 0"):
            kernels.scale[grid, 32]


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_launch_without_a_gpu_says_so() -> None:
    with pytest.raises(RuntimeError, match="no CUDA device: compiled only"):
        jit.cuda(TWO).scale[1, 64](torch.zeros(64), 2.0)


GPU = r"""
extern __shared__ float tile[];
extern "C" __global__ void add(const float* x, float* out, int64_t n, float a, bool twice, double b, unsigned char c) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) tile[i] = x[blockIdx.x * n + i];
  __syncthreads();
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x)
    out[blockIdx.x * n + i] = (twice ? 2 : 1) * tile[n - 1 - i] + a + (float)b + c;
}
extern "C" __global__ void slow(float* out, int64_t cycles) {
  for (int64_t start = clock64(); clock64() - start < cycles;) {}
  out[0] += 1;
}
extern "C" __global__ void nothing() {}
extern "C" __global__ void grid_size(int* out) {
  out[0] = gridDim.x; out[1] = gridDim.y; out[2] = gridDim.z;
  out[3] = blockDim.x; out[4] = blockDim.y; out[5] = blockDim.z;
}
"""


@pytest.fixture(scope="module")
def on_gpu(nvrtc: None, cache: Path) -> jit.Kernels:
    return jit.cuda(GPU)


@needs_gpu
@pytest.mark.gpu
def test_gpu_add_with_much_dynamic_shared_memory(on_gpu: jit.Kernels) -> None:
    for n in (1000, 15_000, 12_500, 20_000):  # bytes: below 48 KiB, above it, less again, more again
        x, out = torch.randn(3, n, device="cuda"), torch.empty(3, n, device="cuda")
        on_gpu.add[3, 256, 4 * n](x, out, n, 0.5, True, 0.25, 3)
        torch.testing.assert_close(out, 2 * x.flip(1) + 3.75)


@needs_gpu
@pytest.mark.gpu
def test_gpu_shapes_arrive_and_a_kernel_may_have_no_parameters(on_gpu: jit.Kernels) -> None:
    out = torch.zeros(6, dtype=torch.int32, device="cuda")
    on_gpu.grid_size[(4, 3), (8, 2, 1)](out)
    assert out.tolist() == [4, 3, 1, 8, 2, 1]
    on_gpu.nothing[1, 1]()
    torch.cuda.synchronize()


CLUSTER = r"""
extern "C" __global__ void __cluster_dims__(4, 1, 1) neighbours(int* out) {
  __shared__ int mine;
  unsigned rank, count, remote;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  asm volatile("mov.u32 %0, %%cluster_nctarank;" : "=r"(count));
  if (threadIdx.x == 0) mine = 100 + (int)blockIdx.x;
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  unsigned local = (unsigned)__cvta_generic_to_shared(&mine);
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(local), "r"((rank + 1) % count));
  int other;
  asm volatile("ld.shared::cluster.s32 %0, [%1];" : "=r"(other) : "r"(remote) : "memory");
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
  if (threadIdx.x == 0) out[blockIdx.x] = other;
}
"""


@needs_gpu
@pytest.mark.gpu
def test_gpu_blocks_of_a_cluster_see_each_others_shared_memory(nvrtc: None) -> None:
    if torch.cuda.get_device_capability() < (9, 0):
        pytest.skip("clusters begin with compute capability 9.0")
    out = torch.zeros(8, dtype=torch.int32, device="cuda")
    jit.cuda(CLUSTER).neighbours[8, 32](out)
    assert out.tolist() == [101, 102, 103, 100, 105, 106, 107, 104]


COOPERATIVE = r"""
// Each round every block adds its number to what the block before it wrote in the round before.
extern "C" __global__ void rounds(volatile int* values, unsigned* arrived, int count) {
  int before = (blockIdx.x + gridDim.x - 1) % gridDim.x;
  for (int round = 1; round <= count; ++round) {
    int seen = values[((round - 1) & 1) * gridDim.x + before];
    values[(round & 1) * gridDim.x + blockIdx.x] = seen + (int)blockIdx.x;
    __threadfence();
    atomicAdd(arrived, 1u);
    unsigned now;
    do asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(now) : "l"(arrived) : "memory");
    while (now < (unsigned)round * gridDim.x);
  }
}
"""


@needs_gpu
@pytest.mark.gpu
def test_gpu_blocks_of_a_cooperative_launch_may_wait_for_each_other(nvrtc: None) -> None:
    kernels, blocks, count = jit.cuda(COOPERATIVE), 2 * torch.cuda.get_device_properties(0).multi_processor_count, 9
    values = torch.zeros(2, blocks, dtype=torch.int32, device="cuda")
    arrived = torch.zeros(1, dtype=torch.int32, device="cuda")
    kernels.rounds.cooperative[blocks, 1](values, arrived, count)
    expected = torch.zeros(blocks, dtype=torch.int32)
    for _ in range(count):
        expected = expected.roll(1) + torch.arange(blocks, dtype=torch.int32)
    assert values[count & 1].tolist() == expected.tolist()
    with pytest.raises(RuntimeError, match=r"COOPERATIVE_LAUNCH_TOO_LARGE.*all 1000000 blocks must fit at once on \d+"):
        kernels.rounds.cooperative[1_000_000, 1](values, arrived, 1)
    kernels.rounds[1, 1](values, arrived.zero_(), 1)  # the plain kernel is as it was
    torch.cuda.synchronize()


@needs_gpu
@pytest.mark.gpu
def test_gpu_launch_goes_to_the_current_stream(on_gpu: jit.Kernels) -> None:
    out = torch.zeros(1, device="cuda")
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        on_gpu.slow[1, 1](out, 200_000_000)  # about 0.1 s
    assert not side.query()
    assert torch.cuda.current_stream().query()
    side.synchronize()
    assert out.item() == 1


@needs_gpu
@pytest.mark.gpu
def test_gpu_launch_can_be_captured_in_a_graph(on_gpu: jit.Kernels) -> None:
    x, out = torch.randn(1, 64, device="cuda"), torch.zeros(1, 64, device="cuda")
    on_gpu.add[1, 64, 256](x, out, 64, 0.0, False, 0.0, 0)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        on_gpu.add[1, 64, 256](x, out, 64, 1.0, False, 0.0, 0)
    x.fill_(5)
    graph.replay()
    torch.testing.assert_close(out, torch.full_like(out, 6))


@needs_gpu
@pytest.mark.gpu
def test_gpu_first_launch_of_a_thread_finds_the_context(on_gpu: jit.Kernels) -> None:
    x, out = torch.randn(1, 64, device="cuda"), torch.zeros(1, 64, device="cuda")
    errors: list[Exception] = []

    def launch() -> None:
        try:
            on_gpu.add[1, 64, 256](x, out, 64, 0.0, False, 0.0, 0)
        except RuntimeError as error:
            errors.append(error)

    thread = threading.Thread(target=launch)
    thread.start()
    thread.join()
    assert errors == []
    torch.testing.assert_close(out, x.flip(1))


@needs_gpu
@pytest.mark.gpu
@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((1, 2048), r"add: CUDA_ERROR_INVALID_VALUE \(1\).*block=\(2048, 1, 1\).*registers=\d+; a block may have 1024"),
        (
            (1, 32, 300_000),
            r"dynamic shared bytes=300000 .*a block may use \d+ bytes of shared memory, this one wants 300000",
        ),
        (((1, 70_000), 32), r"grid=\(1, 70000, 1\)"),
    ],
)
def test_gpu_launch_that_cannot_be_is_explained_and_harms_no_later_one(
    on_gpu: jit.Kernels, shape: tuple[Any, ...], message: str
) -> None:
    x, out = torch.randn(1, 64, device="cuda"), torch.zeros(1, 64, device="cuda")
    with pytest.raises(RuntimeError, match=message):
        on_gpu.add[shape](x, out, 64, 0.0, False, 0.0, 0)
    on_gpu.add[1, 64, 256](x, out, 64, 0.0, False, 0.0, 0)
    torch.testing.assert_close(out, x.flip(1))


@needs_gpu
@pytest.mark.gpu
def test_gpu_tensor_on_the_cpu_is_refused(on_gpu: jit.Kernels) -> None:
    with pytest.raises(TypeError, match=r"grid_size, argument 1 `int\* out`: got a tensor on cpu, needs one on cuda"):
        on_gpu.grid_size[1, 1](torch.zeros(6, dtype=torch.int32))


@needs_gpu
@pytest.mark.gpu
def test_gpu_second_device_is_followed(on_gpu: jit.Kernels) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("one CUDA device only")
    out = torch.zeros(6, dtype=torch.int32, device="cuda:1")
    on_gpu.grid_size[2, 3](out)
    assert out.tolist() == [2, 1, 1, 3, 1, 1]
    assert torch.cuda.current_device() == 0


@needs_gpu
@pytest.mark.gpu
def test_gpu_driver_agrees_with_the_report(on_gpu: jit.Kernels, cache: Path) -> None:
    report = {entry["kernel"]: entry for entry in on_gpu.report}
    driver, module, function, value = ctypes.CDLL("libcuda.so.1"), ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_int()
    torch.zeros(1, device="cuda")
    images = [file.read_bytes() for file in cache.glob("*.cubin") if b"grid_size" in file.read_bytes()]
    assert driver.cuModuleLoadData(ctypes.byref(module), images[0]) == 0
    for name, entry in report.items():
        assert driver.cuModuleGetFunction(ctypes.byref(function), module, name.encode()) == 0
        assert driver.cuFuncGetAttribute(ctypes.byref(value), 4, function) == 0  # CU_FUNC_ATTRIBUTE_NUM_REGS
        assert value.value == entry["registers"]
