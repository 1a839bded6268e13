"""Every way to compute with bf16: right to the last bit where it rounds once, within 1 ulp where it sums up."""

# pyright: basic, reportIndexIssue=false, reportCallIssue=false, reportArgumentType=false, reportAttributeAccessIssue=false
# pyright: reportOperatorIssue=false, reportReturnType=false, reportPrivateImportUsage=false
from __future__ import annotations

import torch
import triton
import triton.language as tl
from close import BF16, assert_close, bf16
from triton.runtime.errors import InterpreterError


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
def plus_in_fp32(a, b):
    return a.to(tl.float32) + b.to(tl.float32)


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
    tl.store(out_ptr, tl.reduce(tl.load(x_ptr + tl.arange(0, n)), 0, plus_in_fp32))


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
