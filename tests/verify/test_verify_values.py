"""One workload's check, and what it says of a kernel that computes in less than the problem's arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from verify_guests import rig_of, session_at, torch_conv
from verify_problems import small_conv

from agentgen.records.problem import Arithmetic
from agentgen.records.trial import Outcome
from agentgen.verify.checks.values import NORMAL_DRAWS, check_workload, judged, truth, values
from agentgen.verify.draws import Family
from agentgen.verify.findings import Findings, Rejected
from agentgen.verify.numerics import Pool, loosest
from agentgen.verify.rig import Rig

FP32, TF32, FP16, BF16 = Arithmetic.FP32, Arithmetic.TF32, Arithmetic.FP16, Arithmetic.BF16
LESS = "it computes in less than fp32"
Kernel = Callable[[torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]


def ten_bits(x: torch.Tensor) -> torch.Tensor:
    """Rounds to TF32, to nearest."""
    return ((x.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32)


def in_fp32(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.conv2d(x, weight, bias)


def in_tf32(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.conv2d(ten_bits(x), ten_bits(weight), bias)


def in_bf16(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return torch.conv2d(x.bfloat16().float(), weight.bfloat16().float(), bias)


def without_a_tap(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    weight = weight.clone()
    weight[:, :, -1, -1] = 0
    return torch.conv2d(x, weight, bias)


def with_nan(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    y = in_tf32(x, weight, bias)
    y.view(-1)[-1] = float("nan")
    return y


@pytest.fixture(scope="module")
def rig() -> Iterator[Rig]:
    with rig_of(small_conv()) as one:
        one.draw_weights()
        one.draw_inputs(Family.NORMAL)
        yield one


def pool_of(rig: Rig, kernel: Kernel, arithmetic: Arithmetic, family: Family = Family.NORMAL) -> Pool:
    pool = Pool("main", family.value, arithmetic, must_be_exact=False)
    weight, bias = rig.reference.state().values()
    with torch.no_grad():
        for inputs in rig.private:
            truth(rig.reference, inputs, rig.source).add_to(pool, [kernel(inputs[0], weight, bias)])
    return pool


# ---- what the errors are worth ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("arithmetic", list(Arithmetic))
@pytest.mark.parametrize(
    ("kernel", "worth"),
    [(in_fp32, {FP32}), (in_tf32, {TF32, FP16}), (in_bf16, {BF16}), (without_a_tap, {None}), (with_nan, {None})],
)
def test_errors_tell_the_arithmetic_whatever_the_problem_s(
    rig: Rig, kernel: Kernel, worth: set[Arithmetic | None], arithmetic: Arithmetic
) -> None:
    """fp32 in a TF32 problem is fp32. TF32 and FP16 have the same bits: of the two the problem's own is told."""
    pool = pool_of(rig, kernel, arithmetic)
    reached = pool.reached
    assert reached in worth
    assert pool.accuracy().reached is reached
    if reached in (TF32, FP16):
        assert reached is (FP16 if arithmetic is FP16 else TF32)


@pytest.mark.parametrize(("kernel", "reached"), [(in_fp32, FP32), (in_tf32, TF32), (in_bf16, BF16)])
def test_torch_s_own_error_excuses_nothing_in_a_more_accurate_arithmetic(
    rig: Rig, kernel: Kernel, reached: Arithmetic
) -> None:
    """On a GPU torch computes a TF32 problem in TF32."""
    pool = Pool("main", "normal", TF32, must_be_exact=False)
    weight, bias = rig.reference.state().values()
    (x,) = rig.private[0]
    with torch.no_grad():
        right = replace(truth(rig.reference, [x], rig.source), by_torch=[in_tf32(x, weight, bias)])
        right.add_to(pool, [kernel(x, weight, bias)])
    assert pool.reached is reached


@pytest.mark.parametrize(("kernel", "said"), [(in_tf32, "tf32"), (in_bf16, "bf16")])
def test_computing_in_less_is_refused_and_said(rig: Rig, kernel: Kernel, said: str) -> None:
    with pytest.raises(Rejected) as raised:
        values(Findings(), [pool_of(rig, in_fp32, FP32), pool_of(rig, kernel, FP32)])
    assert raised.value.outcome is Outcome.WRONG_VALUES
    assert raised.value.reasons[-1] == f"{LESS}: every family is within the gates of {said}"


@pytest.mark.parametrize("others", [(), (in_tf32,)], ids=["alone", "beside one in less"])
def test_a_mistake_is_not_called_so(rig: Rig, others: tuple[Kernel, ...]) -> None:
    with pytest.raises(Rejected, match="relative L2 error") as raised:
        values(Findings(), [pool_of(rig, kernel, FP32) for kernel in (without_a_tap, *others)])
    assert LESS not in str(raised.value)


@pytest.mark.parametrize(
    ("reached", "worst"),
    [((FP32, FP32), FP32), ((FP32, BF16, TF32), BF16), ((FP32, None), None), ((), None)],
)
def test_the_loosest_counts(reached: tuple[Arithmetic | None, ...], worst: Arithmetic | None) -> None:
    assert loosest(reached) is worst


# ---- a workload ------------------------------------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # pyright: ignore[reportUnusedFunction]
    monkeypatch.chdir(tmp_path)  # a guest writes its module there


def test_a_workload_s_families_each_have_a_row(rig: Rig) -> None:
    findings = Findings()
    with session_at(rig, torch_conv(), weights=False) as session:
        check_workload(session, rig, FP32, tuple(Family), findings)
    assert [row.family for row in findings.accuracy] == [family.value for family in Family]
    assert [row.draws for row in findings.accuracy] == [
        NORMAL_DRAWS if family is Family.NORMAL else 1 for family in Family
    ]
    assert {row.reached for row in findings.accuracy if row.gated} == {FP32}
    assert [check.name for check in findings.checks] == ["inputs unchanged", "values: main"]


def test_all_families_that_failed_are_told(rig: Rig) -> None:
    findings = Findings()
    source = torch_conv("return self.answer(x) * (1.5 if bool((x >= 0).all()) else 1)")
    with session_at(rig, source, weights=False) as session, pytest.raises(Rejected) as raised:
        check_workload(session, rig, FP32, (Family.NORMAL, Family.UNIFORM, Family.ONES), findings)
    assert [reason.split(":")[0] for reason in raised.value.reasons] == ["main, uniform", "main, ones"]
    assert len(findings.accuracy) == 3


def test_changed_inputs_are_told_before_values(rig: Rig) -> None:
    findings = Findings()
    source = torch_conv("y = self.answer(x)\nx.zero_()\nreturn y * 2")
    with session_at(rig, source, weights=False) as session, pytest.raises(Rejected) as raised:
        check_workload(session, rig, FP32, tuple(Family), findings)
    assert raised.value.outcome is Outcome.CHEATED
    assert findings.accuracy == []


@pytest.mark.parametrize(
    "change", ["x.unsqueeze_(0)", "x.set_(torch.zeros(1))", "torch.rand(1)"], ids=["shape", "storage", "random state"]
)
def test_what_a_call_leaves_behind_is_looked_at_in_every_window(rig: Rig, change: str) -> None:
    source = torch_conv(f"y = self.answer(x)\n{change}\nreturn y")
    with session_at(rig, source, weights=False) as session, pytest.raises(Rejected, match="a call changed") as raised:
        check_workload(session, rig, FP32, (Family.NORMAL,), Findings())
    assert raised.value.outcome is Outcome.CHEATED


def test_a_draw_is_one_however_many_outputs_it_has() -> None:
    reference = small_conv().reference.replace("return self.conv(x)", "return self.conv(x), x + 1")
    with rig_of(small_conv().model_copy(update={"reference": reference})) as rig:
        rig.draw_inputs(Family.NORMAL)
        rig.poison_outputs()
        pool = judged(rig, {0: rig.snapshot(0)}, partial(Pool, "main", "normal", FP32, must_be_exact=False))
    assert pool.draws == 1
    wrong = 4 * 8 * 30 * 30 + 4 * 3 * 32 * 32
    assert pool.problems() == [f"main, normal: {wrong} elements are NaN or Inf where the float64 oracle is finite"]
