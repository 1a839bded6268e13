"""Kernels that run under Triton's interpreter, checked against torch. A program of its own, because the interpreter is
chosen when triton is imported: `TRITON_INTERPRET=1 python interpreted_checks.py` prints {check: what went wrong or null}.
"""

# pyright: basic, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportReturnType=false, reportPrivateImportUsage=false
from __future__ import annotations

import json
import sys
import traceback

import torch
import triton
import triton.language as tl
from triton.runtime.errors import InterpreterError

from agentgen.sandbox.guest import interpreter

BF16 = torch.bfloat16


def assert_close(actual: torch.Tensor, expected: torch.Tensor, ulps: int = 0) -> None:
    """Compares bf16 with the nearest bf16 of `expected`, in steps between neighbouring bf16 numbers."""
    assert actual.dtype == BF16, actual.dtype
    assert actual.shape == expected.shape, (actual.shape, expected.shape)

    def rank(values: torch.Tensor) -> torch.Tensor:
        bits = values.contiguous().view(torch.int16).to(torch.int32)
        return torch.where(bits < 0, -32768 - bits, bits)

    steps = (rank(actual) - rank(expected.to(BF16))).abs().max().item()
    assert steps <= ulps, f"{steps} ulp apart:\n{actual}\n{expected}"


def bf16(*shape: int, seed: int = 0, scale: float = 1.0) -> torch.Tensor:
    return (torch.randn(shape, generator=torch.Generator().manual_seed(seed)) * scale).to(BF16)


# fp32: what must stay as it was


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


# Autotune, heuristics and the driver


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
        left = tl.load(a + rows[:, None] * K + inner[None, :], mask=(rows < M)[:, None] & (inner < K)[None, :], other=0.0)
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


# bf16


@triton.jit
def elementwise_kernel(x_ptr, y_ptr, out_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    x = tl.load(x_ptr + offsets)
    y = tl.load(y_ptr + offsets)
    tl.store(out_ptr + offsets, x + y)
    tl.store(out_ptr + n + offsets, x - y)
    tl.store(out_ptr + 2 * n + offsets, x * y)
    tl.store(out_ptr + 3 * n + offsets, x / y)
    tl.store(out_ptr + 4 * n + offsets, -x)
    tl.store(out_ptr + 5 * n + offsets, tl.abs(x))
    tl.store(out_ptr + 6 * n + offsets, x * 2.5)
    tl.store(out_ptr + 7 * n + offsets, x + tl.full((n,), 0.1, tl.bfloat16))
    tl.store(out_ptr + 8 * n + offsets, tl.maximum(x, y))
    tl.store(out_ptr + 9 * n + offsets, tl.where(x > y, x, y * y))
    tl.store(out_ptr + 10 * n + offsets, tl.where(x != x, x, 0.1))
    tl.store(out_ptr + 11 * n + offsets, tl.clamp(x, -0.5, 0.5))
    tl.store(out_ptr + 12 * n + offsets, 1.0 - x)


@triton.jit
def mathematics_kernel(x_ptr, out_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    x = tl.load(x_ptr + offsets).to(tl.float32)
    tl.store(out_ptr + offsets, tl.exp(x))
    tl.store(out_ptr + n + offsets, tl.sigmoid(x).to(tl.bfloat16))
    tl.store(out_ptr + 2 * n + offsets, tl.sqrt(tl.abs(x)))
    tl.store(out_ptr + 3 * n + offsets, tl.erf(x))


def check_bf16_elementwise():
    x, y = bf16(256, scale=3), bf16(256, seed=1)
    out = torch.empty(13, 256, dtype=BF16)
    elementwise_kernel[(1,)](x, y, out, 256)
    a, b = x.float(), y.float()
    tenth = torch.full_like(x, 0.1)
    expected = [a + b, a - b, a * b, a / b, -a, a.abs(), a * 2.5, a + tenth.float(), torch.maximum(a, b)]
    expected += [torch.where(a > b, a, (b * b)), tenth.float(), a.clamp(-0.5, 0.5), 1 - a]
    for i, (actual, wanted) in enumerate(zip(out, expected, strict=True)):
        try:
            assert_close(actual, wanted)
        except AssertionError as error:
            raise AssertionError(f"row {i}: {error}") from error


def check_bf16_mathematics():
    x = bf16(256, scale=3)
    out = torch.empty(4, 256, dtype=BF16)
    mathematics_kernel[(1,)](x, out, 256)
    a = x.float()
    assert_close(out, torch.stack([a.exp(), a.sigmoid(), a.abs().sqrt(), a.erf()]), ulps=1)


@triton.jit
def compare_kernel(x_ptr, y_ptr, out_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    x = tl.load(x_ptr + offsets)
    y = tl.load(y_ptr + offsets)
    tl.store(out_ptr + offsets, x < y)
    tl.store(out_ptr + n + offsets, x <= y)
    tl.store(out_ptr + 2 * n + offsets, x > y)
    tl.store(out_ptr + 3 * n + offsets, x >= y)
    tl.store(out_ptr + 4 * n + offsets, x == y)
    tl.store(out_ptr + 5 * n + offsets, x != y)
    tl.store(out_ptr + 6 * n + offsets, (x < 0.0) & (y < 0.0))
    tl.store(out_ptr + 7 * n + offsets, (x < y).to(tl.bfloat16).to(tl.int1))


def check_bf16_comparisons():
    x, y = bf16(256), bf16(256, seed=1)
    y[::3] = x[::3]
    x[5], x[7], y[7] = float("nan"), 0.0, -0.0
    out = torch.empty(8, 256, dtype=torch.bool)
    compare_kernel[(1,)](x, y, out, 256)
    wanted = [x < y, x <= y, x > y, x >= y, x == y, x != y, (x < 0) & (y < 0), x < y]
    assert torch.equal(out, torch.stack(wanted)), (out != torch.stack(wanted)).sum(1)


@triton.jit
def cast_kernel(source_ptr, out_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    tl.store(out_ptr + offsets, tl.load(source_ptr + offsets).to(out_ptr.dtype.element_ty))


@triton.jit
def odd_casts_kernel(x_ptr, bits_ptr, cut_ptr, positive_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    x = tl.load(x_ptr + offsets)
    tl.store(bits_ptr + offsets, x.to(tl.bfloat16).to(tl.int16, bitcast=True))
    tl.store(cut_ptr + offsets, x.to(tl.bfloat16, fp_downcast_rounding="rtz"))
    tl.store(positive_ptr + offsets, (x > 0).to(tl.bfloat16))


def check_bf16_casts():
    numbers = torch.randn(256, generator=torch.Generator().manual_seed(3)).double() * 100
    numbers[0] = 1 + 2.0**-8 + 2.0**-40  # rounded to fp32 first it is a tie, and goes down
    numbers[1], numbers[2], numbers[3] = float("inf"), float("nan"), 3.4e38
    for dtype in (torch.float64, torch.float32, torch.float16, torch.int32, torch.int8, torch.uint8, torch.bool):
        source = torch.nan_to_num(numbers, posinf=1.0).to(dtype) if not dtype.is_floating_point else numbers.to(dtype)
        out = torch.empty(256, dtype=BF16)
        cast_kernel[(1,)](source, out, 256)
        wanted = source.to(BF16)
        if dtype == torch.float64:
            wanted[0] = 1 + 2.0**-7  # torch goes by fp32
        assert torch.equal(out.nan_to_num(nan=-9), wanted.nan_to_num(nan=-9)), dtype
    source = (numbers / 10).nan_to_num(posinf=1.0).clamp(-100, 100).to(BF16)
    for dtype in (torch.float64, torch.float32, torch.float16, torch.int32, torch.int8):
        out = torch.empty(256, dtype=dtype)
        cast_kernel[(1,)](source, out, 256)
        assert torch.equal(out, source.to(dtype)), dtype


def check_bf16_bits_and_rounding_modes():
    x = torch.randn(256)
    bits, cut, positive = (torch.empty(256, dtype=dtype) for dtype in (torch.int16, BF16, BF16))
    odd_casts_kernel[(1,)](x, bits, cut, positive, 256)
    assert torch.equal(bits, x.to(BF16).view(torch.int16))
    assert torch.equal(cut.float(), (x.view(torch.int32) & -65536).view(torch.float32))
    assert torch.equal(positive, (x > 0).to(BF16))


@triton.jit
def larger(a, b):
    return tl.where(a > b, a, b)


@triton.jit
def larger_in_fp32(a, b):
    return tl.maximum(a, b)


@triton.jit
def reduce_kernel(x_ptr, rows_ptr, columns_ptr, all_ptr, index_ptr, M: tl.constexpr, N: tl.constexpr):
    i = tl.arange(0, M)
    j = tl.arange(0, N)
    x = tl.load(x_ptr + i[:, None] * N + j[None, :])
    tl.store(rows_ptr + i, tl.sum(x, axis=1))
    tl.store(rows_ptr + M + i, tl.max(x, axis=1))
    tl.store(rows_ptr + 2 * M + i, tl.min(x, axis=1))
    tl.store(rows_ptr + 3 * M + i, tl.reduce(x, 1, larger))
    tl.store(columns_ptr + j, tl.sum(x, axis=0))
    tl.store(all_ptr, tl.sum(x))
    tl.store(index_ptr + i, tl.argmax(x, axis=1))


@triton.jit
def plus(a, b):
    return a + b


@triton.jit
def scan_kernel(x_ptr, out_ptr, sorted_ptr, n: tl.constexpr):
    offsets = tl.arange(0, n)
    x = tl.load(x_ptr + offsets)
    tl.store(out_ptr + offsets, tl.cumsum(x, 0))
    tl.store(out_ptr + n + offsets, tl.associative_scan(x, 0, larger))
    tl.store(sorted_ptr + offsets, tl.sort(x))


def check_bf16_reductions():
    x = bf16(8, 32)
    rows, columns, total = torch.empty(4, 8, dtype=BF16), torch.empty(32, dtype=BF16), torch.empty(1, dtype=BF16)
    index = torch.empty(8, dtype=torch.int32)
    reduce_kernel[(1,)](x, rows, columns, total, index, 8, 32)
    a = x.double()
    assert_close(rows[0], a.sum(1), ulps=1)
    assert_close(columns, a.sum(0), ulps=1)
    assert_close(total[0], a.sum(), ulps=1)
    assert torch.equal(rows[1:], torch.stack([x.amax(1), x.amin(1), x.amax(1)]))
    assert torch.equal(index.long(), x.argmax(1))


def check_bf16_scans_and_sort():
    x = bf16(64)
    out, ordered = torch.empty(2, 64, dtype=BF16), torch.empty(64, dtype=BF16)
    scan_kernel[(1,)](x, out, ordered, 64)
    assert_close(out[0], x.double().cumsum(0), ulps=1)
    assert torch.equal(out[1], x.cummax(0).values)
    assert torch.equal(ordered, x.sort().values)


@triton.jit
def raw_sum_kernel(x_ptr, out_ptr, n: tl.constexpr):
    tl.store(out_ptr, tl.reduce(tl.load(x_ptr + tl.arange(0, n)), 0, plus))


@triton.jit
def atomic_kernel(x_ptr, target_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offsets, mask=offsets < n)
    before = tl.atomic_add(target_ptr + offsets % 2, x, mask=offsets < n)
    tl.store(out_ptr + offsets, before, mask=offsets < n)


def check_bf16_atomic_add():
    x = torch.tensor([1, 10, 2, 20, 3, 30], dtype=BF16)
    target, before = torch.tensor([100, 0, 5], dtype=BF16), torch.empty(6, dtype=BF16)
    atomic_kernel[(1,)](x, target, before, 6, BLOCK=8)
    assert target.tolist() == [106, 60, 5]
    assert before.tolist() == [100, 0, 101, 10, 103, 30]


# What must raise rather than be wrong


@triton.jit
def wrong_combine_kernel(x_ptr, out_ptr, n: tl.constexpr):
    tl.store(out_ptr, tl.reduce(tl.load(x_ptr + tl.arange(0, n)), 0, larger_in_fp32))


@triton.jit
def padded_kernel(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    descriptor = tl.make_tensor_descriptor(x_ptr, [n], [1], [BLOCK], padding_option="nan")
    tl.store(out_ptr + tl.arange(0, BLOCK), descriptor.load([0]))


def refusal(kernel, *args) -> str:
    try:
        kernel[(1,)](*args)
    except InterpreterError as error:
        return str(error)
    return "nothing was raised"


def check_refusals():
    out = torch.empty(16, dtype=BF16)
    assert "not bf16" in refusal(wrong_combine_kernel, bf16(16), out, 16)
    assert 'padding "nan"' in refusal(padded_kernel, bf16(16), out, 11, 16)
    fp32 = torch.randn(16)
    padded = torch.empty(16)
    padded_kernel[(1,)](fp32, padded, 11, 16)
    assert torch.equal(padded[:11], fp32[:11])
    assert padded[11:].isnan().all()


def check_an_operation_nobody_thought_of_is_refused():
    from triton.runtime.interpreter import TensorHandle, interpreter_builder

    handle = TensorHandle(bf16(4).view(torch.uint16).numpy(), tl.bfloat16)
    for name in ("create_add", "create_xor", "create_umulhi", "create_icmpEQ"):
        try:
            getattr(interpreter_builder, name)(handle, handle)
        except NotImplementedError as error:
            assert name in str(error)  # noqa: PT017
        else:
            raise AssertionError(f"{name} of bf16 ran")


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


def main() -> None:
    interpreter.install()
    interpreter.install()  # a second time changes nothing
    report: dict[str, str | None] = {}
    for name, check in list(globals().items()):
        if name.startswith("check_"):
            try:
                check()
                report[name] = None
            except Exception:  # noqa: BLE001  told to the test that waits for it
                report[name] = traceback.format_exc()
    json.dump(report, sys.stdout)


if __name__ == "__main__":
    main()
