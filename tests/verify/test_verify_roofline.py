"""FLOPs, bytes and the bound, against closed formulas."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional
from torch.utils.flop_counter import FlopCounterMode
from verify_problems import small_conv

from agentgen.records.machine import Ceilings
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.verify.reference import Reference, load
from agentgen.verify.roofline import FlopCounter, Work, byte_floor_us, work_of

SOFTMAX = """
import torch
from torch import nn
rows = 8
dtype = "float32"
class Model(nn.Module):
    def forward(self, x):
        return torch.softmax(x, dim=-1)
def get_inputs():
    return [torch.randn(rows, 100, dtype=getattr(torch, dtype))]
def get_init_inputs():
    return []
"""
MATMUL = SOFTMAX.replace("torch.softmax(x, dim=-1)", "x @ x.t()")

CALLS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "a product": lambda x: x @ x,
    "a layer": lambda x: functional.linear(x, x, x[0]),
    "a convolution": lambda x: functional.conv2d(x[None, None], x[None, None, :3, :3]),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "a composite": lambda x: torch.inner(x, x),
    "no product": lambda x: torch.softmax(x, 0) + 1,
}


def reference(source: str, **constants: int | str) -> Reference:
    main = Workload(name="main", constants=constants)
    problem = Problem(name="p", title="P", reference=source, workloads=(main,), arithmetic=Arithmetic.FP32)
    return load(problem, main, "cpu")


@pytest.mark.parametrize(("batch", "size"), [(4, 32), (1, 3), (3, 17)])
def test_a_convolution_s_work_is_the_closed_formula_s(batch: int, size: int) -> None:
    workload = Workload(name="main", constants={"batch": batch, "size": size})
    work = work_of(load(small_conv(), workload, "cpu"), "cpu", None)
    out = size - 3 + 1
    assert work.flops == 2 * batch * 8 * out * out * 3 * 3 * 3
    inputs, weights, outputs = batch * 3 * size * size, 8 * 3 * 3 * 3 + 8, batch * 8 * out * out
    assert work.bytes_moved == 4 * (inputs + weights + outputs)


def test_a_matmul_without_weights() -> None:
    assert work_of(reference(MATMUL), "cpu", None) == Work(2 * 8 * 8 * 100, 4 * (8 * 100 + 8 * 8))


@pytest.mark.parametrize(
    ("rows", "columns", "causal", "pairs"),
    [(7, 5, False, 35), (7, 7, True, 28), (3, 5, True, 6), (7, 5, True, 15 + 10)],
)
def test_attention_counts_the_pairs_that_its_mask_leaves(rows: int, columns: int, causal: bool, pairs: int) -> None:
    """On a CPU torch's own counter knows nothing of the kernel that runs."""
    q, k, v = torch.ones(2, 3, rows, 8), torch.ones(2, 3, columns, 8), torch.ones(2, 3, columns, 8)
    with FlopCounter() as counter, torch.no_grad():
        functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    assert counter.flops == 2 * 3 * pairs * 4 * 8


def test_elementwise_operations_hide_behind_the_bytes() -> None:
    assert work_of(reference(SOFTMAX), "cpu", None) == Work(0, 2 * 4 * 800)
    assert work_of(reference(SOFTMAX, dtype="bfloat16"), "cpu", None).bytes_moved == 2 * 2 * 800


def test_what_is_declared_counts() -> None:
    assert work_of(reference(SOFTMAX), "cpu", 12345).flops == 12345


@pytest.mark.parametrize(
    ("flops", "bytes_moved", "bound_us", "bound_by"),
    [
        (2_000_000, 1_000_000, 2.0, "compute"),
        (1_000_000, 3_000_000, 3.0, "memory"),
        (1_000_000, 1_000_000, 1.0, "memory"),
        (0, 500_000, 0.5, "memory"),
    ],
)
def test_the_bound_is_the_larger_of_both_times(flops: int, bytes_moved: int, bound_us: float, bound_by: str) -> None:
    ceilings = Ceilings(copy_bytes_per_s=1e12, matmul_flops_per_s={Arithmetic.BF16: 1e12})
    found_us, found_by = Work(flops, bytes_moved).bound(ceilings, Arithmetic.BF16)
    assert found_us == pytest.approx(bound_us)
    assert found_by == bound_by


def test_the_byte_floor_is_what_cannot_stay_in_the_cache() -> None:
    softmax = reference(SOFTMAX)
    assert byte_floor_us(softmax, 0, 1e9) == pytest.approx(6.4)
    assert byte_floor_us(softmax, 3200, 1e9) == pytest.approx(3.2)
    assert byte_floor_us(softmax, 1 << 20, 1e9) == 0.0


def test_the_byte_floor_does_not_count_weights() -> None:
    """They may stay in registers from call to call."""
    conv = load(small_conv(), small_conv().main, "cpu")
    assert byte_floor_us(conv, 0, 1e6) == pytest.approx(4 * (4 * 3 * 32 * 32 + 4 * 8 * 30 * 30))


@pytest.mark.parametrize("name", CALLS)
def test_it_counts_what_torchs_own_counter_does(name: str) -> None:
    x = torch.ones(16, 16)
    theirs = FlopCounterMode(display=False)
    with theirs:
        CALLS[name](x)
    ours = FlopCounter()
    with ours:
        CALLS[name](x)
    assert ours.flops == theirs.get_total_flops()
    # Before 2.15 torch had no formula for a CPU's fused attention.
    assert ours.flops or name in {"no product", "attention"}
