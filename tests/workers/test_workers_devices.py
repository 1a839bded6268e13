"""Devices that a command line names, on machines that have them or not."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from agentgen.errors import BadInput, DeviceNotFound
from agentgen.records.candidate import Language
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.records.run import Plan, Run
from agentgen.workers.devices import devices, find_device, find_devices, physical, require_device, run_devices, visible

GPUS = ("cuda:0", "cuda:1", "cuda:2", "cpu")


def run_on(device: str) -> Run:
    """Returns a run that was begun on `device`."""
    problem = Problem(
        name="relu",
        title="Relu",
        reference="class Model: ...",
        workloads=(Workload(name="main"),),
        arithmetic=Arithmetic.FP32,
    )
    return Run(
        id="run-1",
        problem=problem,
        arithmetic=Arithmetic.FP32,
        device=device,
        languages=(Language.TRITON,),
        models=("recorded",),
        plan=Plan(),
        created=datetime(2026, 11, 22, tzinfo=UTC),
    )


def test_there_is_always_a_cpu() -> None:
    assert devices()[-1] == "cpu"
    require_device("cpu")


def test_cpp_alone_goes_to_the_cpu_whatever_else_is_there() -> None:
    assert find_devices("auto", (Language.CPP,), GPUS) == ("cpu",)
    assert find_devices("auto", (Language.CPP, Language.CUDA), GPUS) == ("cuda:0",)


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ("cpu", ("cpu",)),
        ("cuda", ("cuda:0",)),
        ("cuda:2", ("cuda:2",)),
        ("cuda:1,cuda:0", ("cuda:1", "cuda:0")),
        ("cuda:0, cuda:2", ("cuda:0", "cuda:2")),
        ("cuda:all", ("cuda:0", "cuda:1", "cuda:2")),
    ],
)
def test_several_are_kept_in_their_order(wanted: str, found: tuple[str, ...]) -> None:
    assert find_devices(wanted, (), GPUS) == found


@pytest.mark.parametrize(
    ("wanted", "error", "says"),
    [
        ("tpu", BadInput, "unknown device tpu"),
        ("cuda:x", BadInput, "unknown device cuda:x"),
        ("", BadInput, "unknown device"),
        ("cuda:0,", BadInput, "unknown device"),
        ("auto,cuda:0", BadInput, "unknown device auto"),
        ("cuda:0,cuda:0", BadInput, "twice"),
        ("cuda,cuda:0", BadInput, "twice"),
        ("cpu,cuda:0", BadInput, "two kinds"),
        ("cuda:99", DeviceNotFound, "no device cuda:99"),
        ("cuda:0,cuda:7", DeviceNotFound, "no device cuda:7"),
    ],
)
def test_a_device_that_is_not_there_is_told_from_one_that_cannot_be(
    wanted: str, error: type[Exception], says: str
) -> None:
    with pytest.raises(error, match=says):
        find_devices(wanted, (), GPUS)


def test_all_gpus_of_a_machine_without_one() -> None:
    with pytest.raises(DeviceNotFound):
        find_devices("cuda:all", (), ("cpu",))


@pytest.mark.parametrize("wanted", ["cuda:0,cuda:1", "cuda:all"])
def test_where_one_is_wanted_several_are_refused(wanted: str) -> None:
    with pytest.raises(BadInput, match="several devices, and one is wanted"):
        find_device(wanted)


def test_a_run_goes_on_where_it_was_begun_as_far_as_that_is_here() -> None:
    run = run_on("cuda:1,cuda:3")
    assert run_devices(run, None, GPUS) == ("cuda:1",)
    assert run_devices(run, None, (*GPUS, "cuda:3")) == ("cuda:1", "cuda:3")
    assert run_devices(run, None, ("cpu",)) == ("cuda:1", "cuda:3"), "it will wait for them"


def test_a_run_goes_on_elsewhere_only_on_the_same_kind() -> None:
    assert run_devices(run_on("cuda:0"), "cuda:1,cuda:2", GPUS) == ("cuda:1", "cuda:2")
    with pytest.raises(BadInput, match="run run-1 is one for cuda:0"):
        run_devices(run_on("cuda:0"), "cpu", GPUS)
    with pytest.raises(BadInput, match="run run-1 is one for cpu"):
        run_devices(run_on("cpu"), "cuda:all", GPUS)


@pytest.mark.parametrize(
    ("shown", "found"),
    [
        ("", ()),
        ("-1", ()),
        ("1", ("1",)),
        ("2, 0", ("2", "0")),
        ("0,-1,1", ("0",)),
        ("GPU-8932f937", ("GPU-8932f937",)),
    ],
)
def test_gpus_can_be_hidden(shown: str, found: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert visible() == found
    assert len(devices()) <= len(found) + 1


@pytest.mark.parametrize(
    ("shown", "device", "name"),
    [
        (None, "cuda:1", "cuda:1"),
        ("", "cuda:0", "cuda:0"),
        ("3, 1", "cuda:1", "cuda:1"),
        ("3,1", "cuda:0", "cuda:3"),
        ("3", "cuda:1", "cuda:1"),
        ("GPU-8932f937,1", "cuda:0", "GPU-8932f937"),
        ("3", "cpu", "cpu"),
    ],
)
def test_a_device_has_one_name_for_all(
    shown: str | None, device: str, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if shown is None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    else:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", shown)
    assert physical(device) == name
