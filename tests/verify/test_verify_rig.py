"""A rig keeps what guests see apart from what the judge knows."""

from __future__ import annotations

import gc
import os
import re
from collections.abc import Iterator
from itertools import pairwise

import pytest
import torch
from verify_problems import small_conv

from agentgen.errors import ReferenceInvalid
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.sandbox.guest.memory import attach
from agentgen.verify.draws import Family
from agentgen.verify.reference import load
from agentgen.verify.rig import MAX_SETS, Rig, build_rigs
from agentgen.verify.shared import PAGE_BYTES, VECTOR_BYTES, Layout, Region

SET_BYTES = 4 * (4 * 3 * 32 * 32 + 4 * 8 * 30 * 30)
LOOKUP = """
import torch
from torch import nn
class Model(nn.Module):
    def forward(self, x, index, scale):
        return x[index] * scale, index + 1
def get_inputs():
    return [torch.randn(10, 7), torch.randint(2, 10, (5,)), torch.randn((), dtype=torch.float16)]
def get_init_inputs():
    return []
"""


@pytest.fixture
def rig() -> Iterator[Rig]:
    one = Rig(load(small_conv(), small_conv().main, "cpu"), "cpu", 0, rotate=False)
    one.draw_weights()
    one.draw_inputs(Family.NORMAL)
    yield one
    one.close()


def rig_of(cache_bytes: int, *, rotate: bool = True) -> Rig:
    return Rig(load(small_conv(), small_conv().main, "cpu"), "cpu", cache_bytes, rotate=rotate)


# ---- sets ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("cache_bytes", "sets"),
    [
        (0, 2),
        (SET_BYTES // 4, 2),
        (SET_BYTES, 3),
        (2 * SET_BYTES, 5),
        (2 * SET_BYTES + 1, 6),
        (1 << 40, MAX_SETS["cpu"]),
    ],
)
def test_the_sets_together_are_more_than_twice_the_cache(cache_bytes: int, sets: int) -> None:
    rig = rig_of(cache_bytes)
    assert rig.sets == sets == len(rig.inputs) == len(rig.outputs) == len(rig.private)
    if sets < MAX_SETS["cpu"]:
        others = (sets - 1) * SET_BYTES  # read and written until a set comes round again
        assert others >= 2 * cache_bytes
    rig.close()


def test_where_nothing_is_timed_two_sets_are_enough() -> None:
    rig = rig_of(1 << 40, rotate=False)
    assert rig.sets == 2
    rig.close()


def test_no_two_tensors_share_memory(rig: Rig) -> None:
    spans = sorted((t.data_ptr(), t.data_ptr() + t.nbytes) for t in rig.region.tensors)
    assert all(end <= start for (_, end), (start, _) in pairwise(spans))
    shared = {t.data_ptr() for t in rig.region.tensors}
    assert not shared & {x.data_ptr() for row in rig.private for x in row}


# ---- inputs ----------------------------------------------------------------------------------------------------------


def test_guests_see_what_was_drawn(rig: Rig) -> None:
    assert all(rig.inputs_unchanged(which) for which in range(rig.sets))
    assert not torch.equal(rig.private[0][0], rig.private[1][0])


def test_every_draw_is_fresh(rig: Rig) -> None:
    before = [x.clone() for row in rig.private for x in row]
    rig.draw_inputs(Family.NORMAL)
    assert not any(torch.equal(x, y) for x, y in zip(before, [x for row in rig.private for x in row], strict=True))


def test_as_many_sets_are_drawn_as_asked(rig: Rig) -> None:
    second = rig.private[1][0].clone()
    rig.draw_inputs(Family.ONES, 1)
    assert bool((rig.inputs[0][0] == 1).all())
    assert torch.equal(rig.inputs[1][0], second)


@pytest.mark.parametrize("value", [float("nan"), -0.0, 1e-45])
def test_one_changed_element_is_seen_whatever_it_was_changed_to(rig: Rig, value: float) -> None:
    rig.draw_inputs(Family.ZEROS)
    rig.inputs[1][0].view(-1)[-1] = value
    assert rig.inputs_unchanged(0)
    assert not rig.inputs_unchanged(1)


def test_nan_in_an_input_is_no_change(rig: Rig) -> None:
    rig.private[0][0].fill_(float("nan"))
    rig.inputs[0][0].fill_(float("nan"))
    assert rig.inputs_unchanged(0)


def test_touch_changes_every_set_in_private_and_in_shared_memory_alike(rig: Rig) -> None:
    before = [x.clone() for row in rig.private for x in row]
    rig.touch_inputs()
    assert all(rig.inputs_unchanged(which) for which in range(rig.sets))
    for old, new in zip(before, [x for row in rig.private for x in row], strict=True):
        assert 1000 < (old != new).sum().item() <= 4096


def test_touch_does_not_hide_what_a_guest_has_changed(rig: Rig) -> None:
    rig.inputs[0][0].add_(1)
    rig.touch_inputs()
    assert not rig.inputs_unchanged(0)


def test_inputs_of_any_dtype_and_no_dimension() -> None:
    problem = Problem(
        name="p", title="P", reference=LOOKUP, workloads=(Workload(name="main"),), arithmetic=Arithmetic.FP32
    )
    rig = Rig(load(problem, problem.main, "cpu"), "cpu", 0, rotate=False)
    rig.draw_inputs(Family.LARGE)
    index = rig.inputs[0][1]
    assert 2 <= index.min() <= index.max() < 10
    rig.touch_inputs()
    assert rig.inputs_unchanged(0)
    rig.inputs[0][2].add_(1)
    assert not rig.inputs_unchanged(0)
    rig.poison_outputs()
    assert bool(rig.outputs[0][0].isnan().all())
    assert bool((rig.outputs[0][1] == 0).all())
    rig.close()


def test_touch_keeps_the_structure_of_inputs() -> None:
    """Values exchanged at random would fill a triangle that an honest kernel may skip."""
    reference = LOOKUP.replace("x[index] * scale, index + 1", "x @ x").replace("self, x, index, scale", "self, x")
    reference = re.sub(r"return \[torch.randn.*", "return [torch.triu(torch.randn(64, 64))]", reference)
    problem = Problem(
        name="p", title="P", reference=reference, workloads=(Workload(name="main"),), arithmetic=Arithmetic.FP32
    )
    rig = Rig(load(problem, problem.main, "cpu"), "cpu", 0, rotate=False)
    rig.draw_inputs(Family.NORMAL)
    before = rig.private[0][0].clone()
    rig.touch_inputs()
    assert torch.equal(rig.inputs[0][0], rig.inputs[0][0].triu())
    assert not torch.equal(rig.inputs[0][0], before)
    assert rig.inputs_unchanged(0)
    rig.close()


def test_a_set_of_arguments_is_told_with_its_numbers() -> None:
    reference = LOOKUP.replace("torch.randint(2, 10, (5,))", "3").replace("index + 1", "x")
    problem = Problem(
        name="p", title="P", reference=reference, workloads=(Workload(name="main"),), arithmetic=Arithmetic.FP32
    )
    rig = Rig(load(problem, problem.main, "cpu"), "cpu", 0, rotate=False)
    assert rig.input_rows == [[0, {"value": 3}, 1], [2, {"value": 3}, 3]]
    assert rig.output_rows == [[4, 5], [6, 7]]
    rig.close()


def test_the_timed_rig_comes_first_and_every_workload_has_one() -> None:
    rigs = build_rigs(small_conv(), "cpu", 0)
    assert list(rigs) == [workload.name for workload in small_conv().workloads]
    for rig in rigs.values():
        rig.close()


def test_a_workload_that_runs_out_of_memory_when_rehearsed_leaves_nothing_behind() -> None:
    """Not on the zeros it is loaded with, but on the first real draw."""
    reference = LOOKUP.replace("x[index] * scale, index + 1", "room(x) * x").replace("self, x, index, scale", "self, x")
    reference = re.sub(r"return \[torch.randn.*", "return [torch.randn(n)]", reference) + (
        "n = 1000\n"
        "def room(x):\n"
        "    if x.numel() > 100 and x.any():\n"
        "        raise torch.OutOfMemoryError('no room')\n"
        "    return x\n"
    )
    problem = Problem(
        name="p",
        title="P",
        reference=reference,
        workloads=(Workload(name="main"), Workload(name="tiny", constants={"n": 3})),
        smaller=(Workload(name="half", constants={"n": 500}), Workload(name="small", constants={"n": 100})),
        arithmetic=Arithmetic.FP32,
    )
    gc.collect()  # what earlier tests left to it
    open_before = len(os.listdir("/proc/self/fd"))
    rigs = build_rigs(problem, "cpu", 0)
    assert list(rigs) == ["small", "tiny"]
    while rigs:
        rigs.popitem()[1].close()
    gc.collect()
    assert len(os.listdir("/proc/self/fd")) == open_before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_where_main_does_not_fit_a_gpu_a_smaller_workload_is_timed() -> None:
    reference = LOOKUP.replace("x[index] * scale, index + 1", "x * x").replace("self, x, index, scale", "self, x")
    reference = "n = 1 << 29\n" + re.sub(r"return \[torch.randn.*", "return [torch.randn(n)]", reference)
    smaller = (Workload(name="half", constants={"n": 1 << 28}), Workload(name="small", constants={"n": 1 << 20}))
    problem = Problem(
        name="p",
        title="P",
        reference=reference,
        workloads=(Workload(name="main"), Workload(name="tiny", constants={"n": 3})),
        smaller=smaller,
        arithmetic=Arithmetic.FP32,
    )
    free, _ = torch.cuda.mem_get_info()
    taken = torch.empty(free - (3 << 30), dtype=torch.uint8, device="cuda")  # of the two sets alone main needs 8 GiB
    try:
        rigs = build_rigs(problem, "cuda:0", 0)
        assert list(rigs) == ["small", "tiny"]
        for rig in rigs.values():
            rig.close()
        with pytest.raises(ReferenceInvalid, match="cuda:0 has too little memory for its workloads main"):
            build_rigs(problem.model_copy(update={"smaller": ()}), "cuda:0", 0)
    finally:
        del taken
        torch.cuda.empty_cache()  # judges that other tests start are other processes


# ---- outputs ---------------------------------------------------------------------------------------------------------


def test_outputs_are_poisoned_and_snapshots_are_private(rig: Rig) -> None:
    rig.poison_outputs()
    assert all(bool(y.isnan().all()) for row in rig.outputs for y in row)
    rig.outputs[1][0].fill_(3.0)
    (snapshot,) = rig.snapshot(1)
    rig.outputs[1][0].fill_(4.0)  # a guest that writes late
    assert bool((snapshot == 3.0).all())


# ---- weights ---------------------------------------------------------------------------------------------------------


def test_reference_and_guest_get_the_same_secret_weights(rig: Rig) -> None:
    state = rig.reference.state()
    for name, slot in zip(rig.weight_names, rig.weights.tensors, strict=True):
        assert torch.equal(state[name], slot)
        assert not torch.equal(rig.initial_state[name], slot)


def test_weights_are_drawn_about_their_first_values_each_time(rig: Rig) -> None:
    """Not about the last ones: the spread would wander off."""
    spread = rig.initial_state["conv.weight"].std().item()
    for _ in range(20):
        rig.draw_weights()
    assert rig.weights.tensors[0].std().item() == pytest.approx(spread, rel=0.5)
    rig.draw_weights(Family.INTEGERS)
    assert set(rig.weights.tensors[0].unique().tolist()) <= {0.0, 1.0}


# ---- regions ---------------------------------------------------------------------------------------------------------


LAYOUT: list[Layout] = [
    ((3,), torch.float32, None),
    ((0, 4), torch.float32, None),
    ((2, 2), torch.int64, None),
    ((5, 1000), torch.float32, (1003, 1)),
]


def test_a_region_is_the_same_memory_on_both_sides() -> None:
    region = Region("r", LAYOUT, "cpu")
    message = region.message()
    theirs = attach(os.dup(region.fd), message["nbytes"], message["gaps"], "cpu")
    views = [slot.view(theirs) for slot in region.slots]
    region.tensors[0].copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert views[0].tolist() == [1.0, 2.0, 3.0]
    views[2].fill_(-1)
    assert region.tensors[2].tolist() == [[-1, -1], [-1, -1]]
    region.close()


def test_every_tensor_ends_where_a_page_does_and_the_next_one_is_out_of_bounds() -> None:
    """Up to the 63 bytes that aligning its start costs."""
    region = Region("r", LAYOUT, "cpu")
    gaps: list[int] = region.message()["gaps"]
    for slot, gap in zip(region.slots, gaps, strict=True):
        assert slot.offset % VECTOR_BYTES == gap % PAGE_BYTES == 0
        assert 0 <= gap - (slot.offset + slot.nbytes) < VECTOR_BYTES
    ends = [slot.offset + slot.nbytes for slot in region.slots]
    assert all(end <= gap < gap + PAGE_BYTES <= region.nbytes for end, gap in zip(ends, gaps, strict=True))
    starts = [slot.offset for slot in region.slots[1:]]
    assert all(gap + PAGE_BYTES <= start for gap, start in zip(gaps, starts, strict=False))
    region.close()


def test_a_strided_tensor_has_gaps_that_the_judge_can_fill() -> None:
    region = Region("r", LAYOUT, "cpu")
    region.tensors[3].zero_()
    region.whole(3).fill_(7.0)
    assert bool((region.tensors[3] == 7).all())
    region.tensors[3].zero_()
    assert int((region.whole(3) == 7).sum()) == 4 * 3  # between five rows
    region.close()


# ---- other layouts ---------------------------------------------------------------------------------------------------


def test_strided_inputs_hold_the_same_values_between_nans(rig: Rig) -> None:
    rig.show_strided()
    assert rig.strided_row is not None
    (place,) = rig.strided_row
    seen = rig.region.tensors[place]
    assert torch.equal(seen, rig.private[0][0])
    assert seen.stride() == (3 * 32 * 35, 32 * 35, 35, 1)
    whole = rig.region.whole(place)
    assert int(whole.isnan().sum()) == whole.numel() - seen.numel() == (4 * 3 * 32 - 1) * 3


def test_where_calls_are_timed_there_is_no_strided_input() -> None:
    rig = rig_of(0)
    assert rig.strided_row is None
    rig.close()


def test_every_set_can_hold_the_same_content(rig: Rig) -> None:
    rig.repeat_inputs()
    assert torch.equal(rig.inputs[0][0], rig.inputs[1][0])
    assert rig.inputs[0][0].data_ptr() != rig.inputs[1][0].data_ptr()
    assert all(rig.inputs_unchanged(which) for which in range(rig.sets))
