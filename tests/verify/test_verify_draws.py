"""Draws: each family is what it says, secret, and fresh; weights keep the distribution they had."""

from __future__ import annotations

import pytest
import torch

from agentgen.verify.draws import Distribution, Family, fill, generator, touch, weights

CPU = torch.device("cpu")
NORMAL = Distribution("normal")


def drawn(family: Family, declared: Distribution = NORMAL, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    x = torch.full((64, 256), 7, dtype=dtype)
    fill(x, declared, family, generator(CPU))
    return x


@pytest.mark.parametrize("family", Family)
def test_every_family_fills_and_stays_finite(family: Family) -> None:
    for dtype in (torch.float32, torch.float16, torch.bfloat16, torch.float64):
        x = drawn(family, dtype=dtype)
        assert bool(torch.isfinite(x).all())
        assert not bool((x == 7).all())


@pytest.mark.parametrize(
    ("family", "mean", "std"),
    [
        (Family.NORMAL, 0, 1),
        (Family.UNIFORM, 0.5, 12**-0.5),
        (Family.SHIFTED, 1000, 0.1),
        (Family.SMALL, 0, 1e-3),
        (Family.LARGE, 0, 64),
        (Family.ZEROS, 0, 0),
        (Family.ONES, 1, 0),
        (Family.INTEGERS, 0.5, 0.5),
        (Family.ROWS, 0, 1),
        (Family.SPARSE, 0, 0.1**0.5),
        (Family.SORTED, 0, 1),
    ],
)
def test_a_family_has_its_mean_and_spread(family: Family, mean: float, std: float) -> None:
    x = drawn(family).double()
    # Rows are one draw each; nine zeros in ten give the spread a kurtosis of 30, a fifteenth as many normal values.
    few = {Family.ROWS: 64, Family.SPARSE: x.numel() // 15}.get(family, x.numel())
    assert x.mean().item() == pytest.approx(mean, abs=6 * std / few**0.5 + 1e-9)
    assert x.std().item() == pytest.approx(std, rel=6 / few**0.5)


def test_the_special_families_are_what_they_say() -> None:
    assert set(drawn(Family.INTEGERS).unique().tolist()) == {0.0, 1.0}
    rows = drawn(Family.ROWS)
    assert torch.equal(rows, rows[:, :1].expand_as(rows))
    assert rows[:, 0].unique().numel() > 32
    assert 0.07 < (drawn(Family.SPARSE) != 0).double().mean().item() < 0.13
    ordered = drawn(Family.SORTED)
    assert torch.equal(ordered, ordered.sort(-1).values)


@pytest.mark.parametrize(
    ("declared", "low", "high"),
    [
        (Distribution(kind="uniform", low=2, high=3), 2, 3),
        (Distribution(kind="integers", low=-2, high=5), -2, 4),
        (Distribution("normal", mean=50, std=0.01), 49.9, 50.1),
    ],
)
def test_the_normal_family_is_what_the_problem_declares(declared: Distribution, low: float, high: float) -> None:
    x = drawn(Family.NORMAL, declared)
    assert low <= x.min().item() < x.max().item() <= high
    if declared.kind == "integers":
        assert set(x.unique().tolist()) == set(range(-2, 5))


@pytest.mark.parametrize("family", Family)
def test_integer_inputs_keep_their_range_in_every_family(family: Family) -> None:
    """An index drawn from another family would read outside its table."""
    x = drawn(family, Distribution(kind="integers", low=3, high=11), torch.int64)
    assert set(x.unique().tolist()) == set(range(3, 11))


def test_draws_differ_and_no_public_seed_tells_them() -> None:
    torch.manual_seed(0)
    one = drawn(Family.NORMAL)
    torch.manual_seed(0)
    assert not torch.equal(one, drawn(Family.NORMAL))


# ---- touch -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [10, 5000, 100_000])
def test_touch_changes_private_and_shared_alike(size: int) -> None:
    private = torch.randn(size)
    shared, before = private.clone(), private.clone()
    touch(private, shared, generator(CPU))
    assert torch.equal(private, shared)
    changed = (private != before).sum().item()
    assert 0 < changed <= 4096
    if size > 50_000:
        assert changed > 3500


def test_touch_keeps_the_values_in_the_family() -> None:
    private = torch.empty(100_000).bernoulli_(0.5)
    touch(private, private.clone(), generator(CPU))
    assert set(private.unique().tolist()) == {0.0, 1.0}


def test_touch_writes_no_more_of_the_shared_copy_than_it_changed() -> None:
    """What a guest wrote elsewhere stays to be found."""
    private = torch.zeros(100_000)
    shared = torch.full((100_000,), 5.0)
    touch(private, shared, generator(CPU), count=100)
    assert (shared == 5.0).sum().item() >= 100_000 - 100


def test_touch_reaches_every_place() -> None:
    private = torch.arange(50.0)
    first = private.clone()
    source = generator(CPU)
    seen = torch.zeros(50, dtype=torch.bool)
    for _ in range(50):
        touch(private, private.clone(), source, count=10)
        seen |= private != first
    assert bool(seen.all())


def test_outliers_are_rare_large_and_beside_zeros() -> None:
    x = torch.empty(64, 4096)
    fill(x, Distribution("normal"), Family.OUTLIERS, generator(CPU))
    far = x.abs() > 20
    assert 30 <= far.sum() <= 2 * 65
    empty = (x == 0).float().mean(dim=1) > 0.9
    assert empty.sum() == 32


def test_scales_apart_differ_from_input_to_input() -> None:
    for family, first, second in ((Family.APART, 1e-6, 1e4), (Family.APART_TOO, 1e4, 1e-6)):
        for place, scale in ((0, first), (1, second), (2, first)):
            x = torch.empty(10_000)
            fill(x, Distribution("normal"), family, generator(CPU), place)
            assert x.std().item() == pytest.approx(scale, rel=0.1)


# ---- weights ---------------------------------------------------------------------------------------------------------


def test_weights_keep_mean_and_spread() -> None:
    state = {"w": torch.randn(200, 200) * 0.02 + 0.5}
    value = weights(state, Family.NORMAL, generator(CPU))["w"]
    assert not torch.equal(value, state["w"])
    assert value.mean().item() == pytest.approx(0.5, abs=0.002)
    assert value.std().item() == pytest.approx(0.02, rel=0.05)


@pytest.mark.parametrize("constant", [0.0, 1.0, -3.0])
def test_constant_weights_do_not_stay_constant(constant: float) -> None:
    """A kernel that leaves out a LayerNorm's weight of ones would pass."""
    value = weights({"w": torch.full((1000,), constant)}, Family.NORMAL, generator(CPU))["w"]
    assert value.mean().item() == pytest.approx(constant, abs=0.1)
    assert value.std().item() == pytest.approx(0.1 * (abs(constant) or 1), rel=0.2)


def test_a_weight_that_may_be_signed_turns_its_sign() -> None:
    """A kernel that takes the absolute value of a LayerNorm's weight of ones would pass."""
    state = {"w": torch.ones(1000), "var": torch.ones(1000)}
    values = weights(state, Family.NORMAL, generator(CPU), signed={"w"})
    assert 0.05 < (values["w"] < 0).float().mean() < 0.3
    assert bool((values["var"] > 0).all())


def test_one_number_does_not_stay_what_it_was() -> None:
    assert weights({"scale": torch.tensor(2.0)}, Family.NORMAL, generator(CPU))["scale"].item() != 2.0


def test_positive_weights_stay_positive() -> None:
    value = weights({"running_var": torch.rand(5000) + 1e-3}, Family.NORMAL, generator(CPU))["running_var"]
    assert bool((value > 0).all())


def test_integer_buffers_stay() -> None:
    state = {"index": torch.arange(10)}
    value = weights(state, Family.NORMAL, generator(CPU))["index"]
    assert torch.equal(value, state["index"])
    assert value.data_ptr() != state["index"].data_ptr()


def test_weights_of_the_integer_family_are_zero_or_one() -> None:
    value = weights({"w": torch.randn(100, 10)}, Family.INTEGERS, generator(CPU))["w"]
    assert set(value.unique().tolist()) == {0.0, 1.0}
