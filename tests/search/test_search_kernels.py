from __future__ import annotations

from search_factories import make_candidate, passed

from agentgen.records.trial import BuildReport, KernelProfile, Trial
from agentgen.search.kernels import build_lines, hints, profile_lines

CONV = KernelProfile(
    kernel="conv", launches=1, us=210.44, share=0.96, threads=256, blocks=1056, registers=128, shared_bytes=49152,
    local_bytes=16,
)  # fmt: skip
FILL = KernelProfile(kernel="_ZN2at6native" + "x" * 200, launches=2, us=8.0, share=0.04)


def on_h200(*profile: KernelProfile, build: tuple[BuildReport, ...] = ()) -> Trial:
    """Returns a trial with these kernels."""
    trial = passed(make_candidate("x"), 1.0)
    machine = trial.machine.model_copy(update={"device_type": "cuda", "cores": 132, "compute_capability": "9.0"})
    return trial.model_copy(update={"machine": machine, "profile": profile, "build": build})


def test_what_a_gpu_told_of_each_kernel() -> None:
    head, conv, fill = profile_lines(on_h200(CONV, FILL))
    assert head == "- On the device, as told by an instrumented guest beside the timed one:"
    assert conv == (
        "  - `conv`: 1 a call, 210.4 us each, 96% of device time; 1056 blocks of 256 threads; 128 registers; 49152 "
        "bytes of shared memory; 16 bytes of local memory a thread; 16 of 64 warps fit on a multiprocessor, limited by "
        "registers; 4 waves of blocks"
    )
    assert fill == f"  - `_ZN2at6native{'x' * 47}...`: 2 a call, 4 us each, 4% of device time"


def test_six_kernels_and_what_the_others_take() -> None:
    lines = list(profile_lines(on_h200(*[CONV.model_copy(update={"share": 0.1})] * 10)))
    assert len(lines) == 8
    assert lines[-1] == "  - and 4 further kernels, 40%"
    assert list(profile_lines(on_h200())) == []


def test_no_occupancy_where_the_device_is_not_known() -> None:
    trial = on_h200(CONV)
    machine = trial.machine.model_copy(update={"compute_capability": "99.0"})
    assert "fit" not in "\n".join(profile_lines(trial.model_copy(update={"machine": machine})))


def test_what_a_compiler_told() -> None:
    builds = tuple(BuildReport(kernel=f"k{i}", registers=i, spill_bytes=0) for i in range(14))
    lines = list(build_lines(on_h200(build=(BuildReport(kernel="of_cpp"), *builds))))
    assert lines[0] == "- Kernel `k0`: 0 registers, 0 bytes of spills"
    assert lines[-1] == "- and 2 further kernels"


def test_hints_at_what_makes_a_kernel_wait() -> None:
    assert list(hints(on_h200(CONV))) == []
    few = CONV.model_copy(update={"blocks": 16, "registers": 255, "shared_bytes": 0})
    assert list(hints(on_h200(few, build=(BuildReport(kernel="conv", spill_bytes=96),)))) == [
        "96 bytes of registers are spilled",
        "16 blocks for 132 multiprocessors",
        "8 of 64 warps fit on a multiprocessor (few, unless it computes on tensor cores)",
    ]
    other = (BuildReport(kernel="never_launched", spill_bytes=96),)
    assert list(hints(on_h200(CONV, build=other))) == []
    assert list(hints(on_h200(build=other))) == ["96 bytes of registers are spilled"], "no profile says what ran"
