"""The gates let every accurate kernel pass and no other."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from agentgen.records.problem import Arithmetic
from agentgen.verify.conditioning import Moved, lift, nudge
from agentgen.verify.numerics import Pool

Outputs = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""Oracle, torch's own output, and the oracle of nudged inputs."""


@pytest.fixture
def source() -> torch.Generator:
    return torch.Generator().manual_seed(7)


def softmax_of(x: torch.Tensor, source: torch.Generator) -> Outputs:
    oracle = torch.softmax(x.double(), -1)
    return oracle, torch.softmax(x, -1), torch.softmax(nudge(x, source).double(), -1)


def matmul_of(a: torch.Tensor, b: torch.Tensor, source: torch.Generator) -> Outputs:
    return a.double() @ b.double(), a @ b, nudge(a, source).double() @ nudge(b, source).double()


def pooled(
    out: torch.Tensor, outputs: Outputs, arithmetic: Arithmetic = Arithmetic.FP32, *, exact: bool = False
) -> Pool:
    pool = Pool("main", "normal", arithmetic, must_be_exact=exact)
    oracle, by_torch, nudged = outputs
    pool.add(out, oracle, by_torch, (Moved.between(oracle, nudged),))
    return pool


def to_tf32(x: torch.Tensor) -> torch.Tensor:
    """Rounds to 10 bits of mantissa, to nearest."""
    return ((x.view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


# ---- right kernels ---------------------------------------------------------------------------------------------------


def test_torch_itself_passes(source: torch.Generator) -> None:
    outputs = softmax_of(torch.randn(16, 4096, generator=source), source)
    pool = pooled(outputs[1], outputs)
    assert pool.problems() == []
    accuracy = pool.accuracy()
    assert accuracy.relative_l2 == accuracy.torch_relative_l2
    assert accuracy.worst_element is not None
    assert accuracy.worst_element < 1
    assert accuracy.gated


def test_another_order_of_summation_passes(source: torch.Generator) -> None:
    a, b = torch.randn(64, 512, generator=source), torch.randn(512, 64, generator=source)
    one_by_one = torch.zeros(64, 64)
    for k in range(512):
        one_by_one += a[:, k, None] * b[None, k]
    assert pooled(one_by_one, matmul_of(a, b, source)).problems() == []


def test_the_oracle_rounded_once_passes(source: torch.Generator) -> None:
    outputs = softmax_of(torch.randn(8, 100, generator=source), source)
    assert pooled(outputs[0].float(), outputs).problems() == []


@pytest.mark.parametrize("wrong", [0.0, 2e-3])
def test_a_row_whose_terms_cancel_is_measured_by_its_terms(source: torch.Generator, wrong: float) -> None:
    w, x = torch.randn(64, 256, generator=source), torch.ones(256, 4)
    w[5] -= w[5].mean() - 1e-6
    one_by_one = torch.zeros(64, 4)
    for k in range(256):
        one_by_one += w[:, k, None] * x[None, k]
    oracle, _, nudged = matmul_of(w, x, source)
    one_by_one[5] += wrong
    problems = pooled(one_by_one, (oracle, oracle.float(), nudged)).problems()  # torch has been lucky
    assert bool(problems) is bool(wrong)


def test_a_sequential_sum_of_sorted_terms_passes(source: torch.Generator) -> None:
    a = torch.randn(64, 2048, generator=source).sort(-1).values
    b = torch.randn(2048, 64, generator=source).sort(-1).values
    by_eights = torch.zeros(64, 64)
    for k in range(0, 2048, 8):
        by_eights += a[:, k : k + 8] @ b[k : k + 8]
    oracle, _, nudged = matmul_of(a, b, source)
    pool = Pool("main", "sorted", Arithmetic.FP32, must_be_exact=False)
    moved = [Moved.between(oracle, other) for other in (nudged, lift(a).double() @ lift(b).double())]
    pool.add(by_eights, oracle, by_eights, moved)
    assert pool.problems() == []
    assert pool.accuracy().share_of_limit < 0.5


# ---- wrong kernels ---------------------------------------------------------------------------------------------------


def test_zeros_do_not_pass_for_a_softmax_over_long_rows(source: torch.Generator) -> None:
    """With an absolute tolerance of 1e-4 they would: the values are 1e-5."""
    outputs = softmax_of(torch.randn(4, 65536, generator=source), source)
    assert outputs[0].max() < 1e-2
    (problem,) = pooled(torch.zeros(4, 65536), outputs).problems()
    assert problem.startswith("main, normal: relative L2 error 1.00e+00 is over the fp32 gate of 2.00e-06")


@pytest.mark.parametrize(("arithmetic", "passes"), [(Arithmetic.FP32, False), (Arithmetic.TF32, True)])
def test_tf32_is_no_fp32(source: torch.Generator, arithmetic: Arithmetic, passes: bool) -> None:
    a, b = torch.randn(128, 256, generator=source), torch.randn(256, 128, generator=source)
    pool = pooled(to_tf32(a) @ to_tf32(b), matmul_of(a, b, source), arithmetic)
    assert (pool.problems() == []) is passes


@pytest.mark.parametrize(("arithmetic", "passes"), [(Arithmetic.TF32, False), (Arithmetic.BF16, True)])
def test_bf16_is_no_tf32(source: torch.Generator, arithmetic: Arithmetic, passes: bool) -> None:
    a, b = torch.randn(128, 256, generator=source), torch.randn(256, 128, generator=source)
    pool = pooled((a.bfloat16() @ b.bfloat16()).float(), matmul_of(a, b, source), arithmetic)
    assert (pool.problems() == []) is passes


@pytest.mark.parametrize("off", [1e-3, 1.0, -3.0])
def test_one_wrong_element_in_a_million_is_found(source: torch.Generator, off: float) -> None:
    x = torch.randn(1000, 1000, generator=source)
    outputs = x.double() * 3, x * 3, nudge(x, source).double() * 3
    out = (x * 3).clone()
    out[417, 23] += off
    (problem,) = pooled(out, outputs).problems()
    assert "main, normal" in problem


def test_one_wrong_element_is_found_though_the_norm_hides_it(source: torch.Generator) -> None:
    x = torch.randn(1000, 1000, generator=source)
    outputs = x.double(), x, nudge(x, source).double()
    out = x.clone()
    out[0, 0] += 1e-4  # 1e-7 of the norm: far below the gate
    pool = pooled(out, outputs)
    (problem,) = pool.problems()
    assert problem.startswith("main, normal: an element is off by")
    assert (pool.accuracy().worst_element or 0) > 1


def test_a_wrong_row_of_small_values_is_found_beside_large_ones(source: torch.Generator) -> None:
    x = torch.randn(100, 100, generator=source)
    x[3] *= 1e-6
    out = x.clone()
    out[3] = 0
    assert pooled(out, (x.double(), x, nudge(x, source).double())).problems()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_one_value_that_is_not_finite_is_refused(source: torch.Generator, value: float) -> None:
    outputs = softmax_of(torch.randn(8, 100, generator=source), source)
    out = outputs[1].clone()
    out[7, 99] = value
    pool = pooled(out, outputs)
    assert pool.problems() == ["main, normal: 1 elements are NaN or Inf where the float64 oracle is finite"]
    assert pool.accuracy().relative_l2 is None


def test_a_poisoned_output_is_refused(source: torch.Generator) -> None:
    outputs = softmax_of(torch.randn(8, 100, generator=source), source)
    assert pooled(torch.full((8, 100), math.nan), outputs).problems()


def test_errors_of_all_draws_count(source: torch.Generator) -> None:
    pool = Pool("main", "normal", Arithmetic.FP32, must_be_exact=False)
    for draw in range(3):
        oracle, by_torch, nudged = softmax_of(torch.randn(8, 100, generator=source), source)
        pool.add(by_torch * 1.001 if draw == 1 else by_torch, oracle, by_torch, (Moved.between(oracle, nudged),))
    assert pool.draws == 3
    assert pool.problems()


# ---- where the oracle is zero ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("wrong", [1e-30, -1.0])
def test_where_a_row_is_zero_so_is_the_output(wrong: float) -> None:
    oracle = torch.zeros(4, 8, dtype=torch.float64)
    out = torch.zeros(4, 8)
    assert pooled(out, (oracle, out, oracle)).problems() == []
    out = out.clone()
    out[2, 5] = wrong
    (problem,) = pooled(out, (oracle, torch.zeros(4, 8), oracle)).problems()
    assert problem == "main, normal: 1 elements are not zero where oracle and torch are"


def test_a_minus_zero_is_zero() -> None:
    oracle = torch.zeros(2, 2, dtype=torch.float64)
    assert pooled(torch.full((2, 2), -0.0), (oracle, torch.zeros(2, 2), oracle)).problems() == []


# ---- families that say nothing ---------------------------------------------------------------------------------------


def test_what_one_ulp_moves_too_far_is_reported_not_gated(source: torch.Generator) -> None:
    x = torch.full((8, 8), 1000.0)
    y = x + 0.1 * torch.randn(8, 8, generator=source)

    def variance(t: torch.Tensor) -> torch.Tensor:
        return 1e6 * (t.double() - y.double()) + 1e-3  # ill-conditioned: a difference of near-equal numbers

    outputs = variance(y), variance(y).float(), variance(nudge(y, source))
    pool = pooled(torch.zeros(8, 8), outputs)
    assert pool.problems() == []
    assert not pool.gated
    assert not pool.accuracy().gated


@pytest.mark.parametrize("which", [0, 1], ids=["oracle", "torch"])
def test_where_oracle_or_torch_overflows_nothing_is_gated(source: torch.Generator, which: int) -> None:
    outputs = softmax_of(torch.randn(8, 100, generator=source), source)
    outputs[which][0, 0] = math.inf
    pool = pooled(torch.zeros(8, 100), outputs)
    assert not pool.gated
    assert pool.problems() == []


def test_the_gate_widens_with_the_conditioning(source: torch.Generator) -> None:
    x = 1000 + 0.1 * torch.randn(32, 256, generator=source)
    pool = pooled(torch.softmax(x, -1), softmax_of(x, source))
    assert 2e-6 < pool.gate < 1e-2
    assert pool.gated


# ---- exactness -------------------------------------------------------------------------------------------------------


def test_small_integers_are_exact_where_torch_is(source: torch.Generator) -> None:
    a = torch.empty(32, 64).bernoulli_(0.5, generator=source)
    b = torch.empty(64, 32).bernoulli_(0.5, generator=source)
    outputs = matmul_of(a, b, source)
    assert pooled(outputs[1], outputs, exact=True).problems() == []
    almost = outputs[1].clone()
    almost[3, 4] = torch.nextafter(almost[3, 4], torch.tensor(math.inf))
    assert pooled(almost, outputs).problems() == []
    pool = pooled(almost, outputs, exact=True)
    assert pool.gate == 0.0
    assert len(pool.problems()) == 1
    assert pool.accuracy().worst_element is None  # the limit is zero: no multiple of it


def test_small_integers_need_not_be_exact_where_torch_is_not(source: torch.Generator) -> None:
    x = torch.empty(32, 64).bernoulli_(0.5, generator=source)
    oracle, by_torch, nudged = softmax_of(x, source)
    assert not torch.equal(oracle, by_torch.double())
    assert pooled(oracle.float(), (oracle, by_torch, nudged), exact=True).problems() == []


def test_integer_outputs_are_exact() -> None:
    right = torch.arange(12).view(3, 4)
    assert pooled(right.clone(), (right, right, right)).problems() == []
    wrong = right.clone()
    wrong[2, 3] += 1
    assert len(pooled(wrong, (right, right, right)).problems()) == 1


def test_rounding_may_lift_a_value_that_a_relu_cut_off() -> None:
    """An honest conv2d_relu_maxpool was refused on an H200 for 3 elements of rows that are zero as a whole."""
    oracle = torch.zeros(4, 8, dtype=torch.float64)
    oracle[0] = torch.linspace(1, 2, 8, dtype=torch.float64)
    by_torch = (oracle * (1 + 1e-7)).float()
    lifted = by_torch.clone()
    lifted[2, 3] = 2e-7
    assert pooled(lifted, (oracle, by_torch, oracle)).problems() == []
    lifted[2, 3] = 2e-6
    assert pooled(lifted, (oracle, by_torch, oracle)).problems() == [
        "main, normal: 1 elements are not zero where oracle and torch are"
    ]


def test_an_empty_output_and_a_single_number() -> None:
    empty = torch.zeros(0, 5, dtype=torch.float64)
    assert pooled(empty.float(), (empty, empty.float(), empty)).problems() == []
    one = torch.tensor(2.0, dtype=torch.float64)
    assert pooled(one.float(), (one, one.float(), one)).problems() == []
    assert pooled(one.float() * 1.01, (one, one.float(), one)).problems()


# ---- nudge -----------------------------------------------------------------------------------------------------------


@given(st.floats(width=32, allow_nan=False, allow_infinity=False), st.integers(0, 2**32))
def test_a_nudge_is_one_ulp(value: float, seed: int) -> None:
    x = torch.full((16,), value)
    moved = nudge(x, torch.Generator().manual_seed(seed))
    up = torch.nextafter(x, torch.tensor(math.inf))
    down = torch.nextafter(x, torch.tensor(-math.inf))
    assert bool(((moved == up) | (moved == down)).all())


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.float16, torch.bfloat16])
def test_a_nudge_goes_both_ways_in_the_dtype_s_own_steps(source: torch.Generator, dtype: torch.dtype) -> None:
    x = torch.ones(1000, dtype=dtype)
    steps = (nudge(x, source).double() - 1) / torch.finfo(dtype).eps
    assert set(steps.tolist()) == {1.0, -0.5}  # below a power of two the steps are half as wide
    assert nudge(x, source).dtype == dtype


@pytest.mark.parametrize("make", [torch.zeros, torch.ones], ids=["zeros", "ones"])
def test_integers_are_not_nudged(source: torch.Generator, make: Callable[..., torch.Tensor]) -> None:
    x = make(10, dtype=torch.int64)
    assert nudge(x, source) is x


@pytest.mark.parametrize("arithmetic", [Arithmetic.FP32, Arithmetic.TF32, Arithmetic.BF16])
@pytest.mark.parametrize("kind", ["normal", "zero rows", "one row", "cancelling", "exact"])
def test_what_passes_narrowly_passes_with_all_that_is_known(arithmetic: Arithmetic, kind: str) -> None:
    source = torch.Generator().manual_seed(11)
    a, b = torch.randn(24, 96, generator=source), torch.randn(96, 40, generator=source)
    if kind == "zero rows":
        a[::3] = 0
    if kind == "cancelling":
        a[:, 48:] = -a[:, :48]
        b[48:] = b[:48] * (1 + 1e-5)
    if kind == "exact":
        a, b = a.round(), b.round()
    oracle, by_torch, nudged = matmul_of(a, b, source)
    seen: set[bool] = set()
    for exponent in range(-9, 0):
        for spread in ("all", "one", "none"):
            out = by_torch.clone()
            noise = 10.0**exponent * torch.randn(out.shape, generator=source) * out.abs().mean()
            out += noise if spread == "all" else 0
            if spread == "one":
                out[5, 7] += noise[5, 7]
            narrow = Pool("main", "normal", arithmetic, must_be_exact=kind == "exact")
            narrow.add(out, oracle, by_torch)
            full = pooled(out, (oracle, by_torch, nudged), arithmetic, exact=kind == "exact")
            seen.add(narrow.passes_narrowly)
            if narrow.passes_narrowly:
                assert not full.problems()
                assert narrow.reached == full.reached or kind == "cancelling"
    assert seen == {True, False} or kind == "cancelling"


@pytest.mark.parametrize(("dtype", "enough"), [(torch.bfloat16, True), (torch.float32, False)])
def test_of_outputs_that_are_rounded_to_bf16_nobody_asks_for_a_better_class(dtype: torch.dtype, enough: bool) -> None:
    oracle = torch.randn(64, 64, dtype=torch.float64, generator=torch.Generator().manual_seed(3))
    out = oracle.to(torch.bfloat16).to(dtype)
    pool = Pool("main", "normal", Arithmetic.BF16, must_be_exact=False)
    pool.add(out, oracle, out)
    assert pool.reached is Arithmetic.BF16
    assert pool.passes_narrowly is enough


@pytest.mark.parametrize("wrong", [math.nan, math.inf, 3e38])
@pytest.mark.parametrize("zeros", [False, True])
def test_nothing_that_is_not_finite_passes_narrowly(wrong: float, zeros: bool) -> None:
    oracle = torch.zeros(8, 16, dtype=torch.float64) if zeros else torch.ones(8, 16, dtype=torch.float64)
    out = oracle.float()
    pool = Pool("main", "normal", Arithmetic.BF16, must_be_exact=False)
    pool.add(out, oracle, oracle.float())
    assert pool.passes_narrowly
    out[3, 3] = wrong
    pool.add(out, oracle, oracle.float())
    assert not pool.passes_narrowly


def test_an_oracle_that_is_not_finite_passes_nothing_narrowly() -> None:
    oracle = torch.full((4, 4), math.inf, dtype=torch.float64)
    pool = Pool("main", "normal", Arithmetic.FP32, must_be_exact=False)
    pool.add(oracle.float(), oracle, oracle.float())
    assert not pool.passes_narrowly
