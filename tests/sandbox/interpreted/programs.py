"""Whole kernels as candidates write them, autotuned too, and what they ask the driver."""

# pyright: basic, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportReturnType=false, reportPrivateImportUsage=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from close import BF16, assert_close, bf16


@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offsets < n
    total = tl.load(x_ptr + offsets, mask=mask) + tl.load(y_ptr + offsets, mask=mask)
    tl.store(out_ptr + offsets, total, mask=mask)


def check_vector_add():
    for dtype in (torch.float32, torch.float16, BF16, torch.int32):
        x, y = (torch.randn(2, 1003) * 50).to(dtype)
        out = torch.full((1003 + 21,), 7, dtype=dtype)  # what lies behind the last element must stay
        add_kernel[lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"]),)](x, y, out, 1003, BLOCK=256)
        assert torch.equal(out[:1003], x + y), dtype
        assert (out[1003:] == 7).all()


@triton.jit
def softmax_kernel(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    offsets = tl.arange(0, BLOCK)
    mask = offsets < columns
    x = tl.load(x_ptr + row * columns + offsets, mask=mask, other=-float("inf")).to(tl.float32)
    x = tl.exp(x - tl.max(x, axis=0))
    tl.store(out_ptr + row * columns + offsets, x / tl.sum(x, axis=0), mask=mask)


def check_ragged_softmax():
    x = torch.randn(7, 100)
    out = torch.empty_like(x)
    softmax_kernel[(7,)](x, out, 100, BLOCK=128)
    torch.testing.assert_close(out, x.softmax(1), rtol=1e-6, atol=1e-7)
    half = bf16(7, 100, scale=4)
    out = torch.empty_like(half)
    softmax_kernel[(7,)](half, out, 100, BLOCK=128)
    assert_close(out, half.float().softmax(1), ulps=1)


def tuned_configs():
    return [triton.Config({"BM": m, "BN": 16, "BK": k}, num_warps=4) for m, k in ((16, 32), (32, 16), (64, 64))]


@triton.autotune(configs=tuned_configs(), key=["M", "N", "K"])
@triton.jit
def matmul_kernel(a, b, c, M, N, K, BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr):
    rows = tl.program_id(0) * BM + tl.arange(0, BM)
    columns = tl.program_id(1) * BN + tl.arange(0, BN)
    total = tl.zeros((BM, BN), dtype=tl.float32)
    for start in range(0, K, BK):
        inner = start + tl.arange(0, BK)
        left = tl.load(
            a + rows[:, None] * K + inner[None, :], mask=(rows < M)[:, None] & (inner < K)[None, :], other=0.0
        )
        right = tl.load(
            b + inner[:, None] * N + columns[None, :], mask=(inner < K)[:, None] & (columns < N)[None, :], other=0.0
        )
        total = tl.dot(left, right, total, input_precision="ieee")
    where = c + rows[:, None] * N + columns[None, :]
    tl.store(where, total.to(c.dtype.element_ty), mask=(rows < M)[:, None] & (columns < N)[None, :])


def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype)
    grid = lambda meta: (triton.cdiv(m, meta["BM"]), triton.cdiv(n, meta["BN"]))  # noqa: E731
    matmul_kernel[grid](a, b, c, m, n, k)
    return c


def check_autotuned_matmul_takes_the_first_config():
    a, b = torch.randn(37, 45), torch.randn(45, 29)
    torch.testing.assert_close(matmul(a, b), a @ b, rtol=1e-5, atol=1e-5)
    assert matmul_kernel.best_config.kwargs == {"BM": 16, "BN": 16, "BK": 32}


def check_autotuned_matmul_in_bf16():
    a, b = bf16(37, 45), bf16(45, 29, seed=1)
    assert_close(matmul(a, b), (a.double() @ b.double()), ulps=1)


def check_autotune_ignores_the_candidates_own_benchmarks():
    launches: list[int] = []

    def never(kernel_call, quantiles):
        raise AssertionError("the candidate's do_bench ran")

    @triton.jit
    def bump_kernel(x, SIZE: tl.constexpr):
        tl.store(x, tl.load(x) + SIZE)

    configs = [triton.Config({"SIZE": size}, pre_hook=lambda _: launches.append(1)) for size in (5, 7)]
    for options in ({"do_bench": never}, {"use_cuda_graph": True}, {"warmup": 1, "rep": 1}):
        launches.clear()
        x = torch.zeros(1)
        triton.autotune(configs=configs, key=[], **options)(bump_kernel)[(1,)](x)
        assert x.item() == 5, options
        assert len(launches) == 1, options


@triton.heuristics({"BLOCK": lambda arguments: triton.next_power_of_2(arguments["n"])})
@triton.jit
def negate_kernel(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out + offsets, -tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


def check_heuristics():
    x = torch.randn(11)
    out = torch.empty(11)
    negate_kernel[(1,)](x, out, 11)
    assert torch.equal(out, -x)


def check_driver_answers_like_an_h100():
    active = triton.runtime.driver.active
    target = active.get_current_target()
    assert (target.backend, target.arch, target.warp_size) == ("cuda", 90, 32)
    properties = active.utils.get_device_properties(active.get_current_device())
    assert properties["multiprocessor_count"] == 132
    assert properties["max_shared_mem"] == 232448
    properties["multiprocessor_count"] = 1  # a copy
    assert active.utils.get_device_properties(0)["multiprocessor_count"] == 132
    assert active.get_device_capability() == (9, 0)
    assert torch.zeros(1).device == active.get_active_torch_device()


@triton.jit
def relu_kernel(x_ptr, out_ptr, n: tl.constexpr):
    x = tl.load(x_ptr + tl.arange(0, n))
    tl.store(out_ptr + tl.arange(0, n), tl.maximum(x, 0.0))
    tl.store(out_ptr + n + tl.arange(0, n), tl.minimum(x, 0.0))
    tl.store(out_ptr + 2 * n + tl.arange(0, n), tl.maximum(x, 0.0, propagate_nan=tl.PropagateNan.ALL))


def check_maximum_of_nan_is_the_number():
    for dtype in (torch.float32, BF16):
        x = torch.tensor([float("nan"), -1.0, 2.0, 0.0], dtype=dtype)
        out = torch.empty(3, 4, dtype=dtype)
        relu_kernel[(1,)](x, out, 4)
        assert out[:2].tolist() == [[0, 0, 2, 0], [0, -1, 0, 0]], out
        assert out[2].isnan().tolist() == [True, False, False, False]
