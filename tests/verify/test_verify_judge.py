"""A real judge and real candidates: the honest one passes, each other one is refused for what it is, and the judge goes
on as before.

Not covered: a candidate that hangs (its time limits are minutes), GPUs (test_verify_gpu.py).
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from verify_problems import cpp_source, edited_kernel, small_conv

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Effort
from agentgen.records.trial import Clock, Outcome, Trial
from agentgen.workers.local import LocalJudge

pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++ on the PATH")

TRITON = """
import torch
import triton
import triton.language as tl
from torch import nn


@triton.jit
def conv(x, w, b, y, C, H, O, K: tl.constexpr, P: tl.constexpr, TAPS: tl.constexpr, BLOCK: tl.constexpr):
    n, o = tl.program_id(0), tl.program_id(1)
    at = tl.arange(0, BLOCK)
    inside = at < P * P
    tap = tl.arange(0, TAPS)[:, None]
    c, p, q, real = tap // (K * K), tap // K % K, tap % K, tap < C * K * K
    rows = (n * C + c) * H + at[None, :] // P + p
    values = tl.load(x + rows * H + at[None, :] % P + q, mask=real & inside[None, :], other=0.0)
    weights = tl.load(w + o * C * K * K + tap, mask=real, other=0.0)
    total = tl.sum(values * weights, 0) + tl.load(b + o)
    tl.store(y + (n * O + o) * P * P + at, total{edit}, mask=inside)


class ModelNew(nn.Module):
    def __init__(self, channels, features, kernel):
        super().__init__()
        self.conv = nn.Conv2d(channels, features, kernel)

    def forward(self, x):
        n, c, h, _ = x.shape
        o, _, k, _ = self.conv.weight.shape
        p = h - k + 1
        y = torch.empty(n, o, p, p, device=x.device)
        taps, block = triton.next_power_of_2(c * k * k), triton.next_power_of_2(p * p)
        conv[(n, o)](x, self.conv.weight, self.conv.bias, y, c, h, o, k, p, taps, block)
        return y
"""
STATE = ["global state", "own outputs", "one element", "new weights", "same answer"]
HABITS = ["strided inputs", "special values"]
EVERYTHING = [
    *("sandbox", "screen", "inputs unchanged", "values: ragged", "values: main"),
    *STATE,
    *("values while timed", "own work: dispatcher", "own kernels"),
    *("own work: native symbols", "own work: processor time", "poisoned memory", *HABITS),
    *("every output", "clocks agree", "work ends with the window", "byte floor", "other processes", "stands still"),
    *("own work: native symbols: timed", "own work: processor time: timed", "outputs are copied"),
    *("baseline undisturbed", "instruments agree", "neighbouring shapes"),
]
SCRATCH = edited_kernel(
    "#include <cstdint>",
    """#include <cstdint>
extern "C" void add(const float* scratch, float* y) { y[0] += scratch[777777]; }
""",
)
CUDA = '''
from torch import nn
from agentgen import jit

kernels = jit.cuda("""
extern "C" __global__ void conv(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = x[i] * 2.0f{end}
}
""")


class ModelNew(nn.Module):
    def __init__(self, channels, features, kernel):
        super().__init__()
'''


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalJudge]:
    """Afterwards nothing is left of it."""
    temporary = tmp_path_factory.mktemp("temporary")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(temporary))
        with LocalJudge(small_conv(), "cpu", Arithmetic.FP32, Effort.QUICK) as one:
            yield one
    assert list(temporary.glob("agentgen-*")) == []
    assert not [process for process in Path("/proc").glob("[0-9]*") if f"TMPDIR={temporary}" in environment(process)]


def environment(process: Path) -> str:
    try:
        return (process / "environ").read_text()
    except OSError:  # gone meanwhile
        return ""


@pytest.fixture(scope="module", autouse=True)
def _still_works_after_all_of_them(judge: LocalJudge) -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    yield
    assert cpp(judge).outcome is Outcome.PASSED


@pytest.fixture(scope="module")
def honest(judge: LocalJudge) -> Trial:
    return judge.evaluate(Candidate(source=cpp_source(), language=Language.CPP))


def cpp(judge: LocalJudge, forward: str = "return self.answer(x)", *, kernel: str | None = None) -> Trial:
    return evaluated(judge, cpp_source(forward, kernel) if kernel else cpp_source(forward))


def evaluated(
    judge: LocalJudge, source: str, language: Language = Language.CPP, stages: list[str] | None = None
) -> Trial:
    candidate = Candidate(source=source, language=language)
    told = stages if stages is not None else []
    trial = judge.evaluate(candidate, told.append, timing=False)
    assert trial.candidate == candidate.id
    return trial


def refused(trial: Trial, outcome: Outcome, said: str) -> None:
    assert trial.outcome is outcome, trial.reasons
    assert said in "\n".join(trial.reasons)
    assert trial.timing is None


# ---- honest ----------------------------------------------------------------------------------------------------------


def test_an_honest_kernel_passes_and_is_timed(judge: LocalJudge, honest: Trial) -> None:
    assert honest.outcome is Outcome.PASSED, honest.reasons
    timing, speedup = honest.timing, honest.speedup
    assert timing
    assert timing.clock is Clock.WALL
    assert 0 < timing.low_us <= timing.median_us <= timing.high_us
    assert timing.windows >= 5
    assert timing.calls_per_window > 1
    assert 0 < timing.copy_us < timing.median_us
    assert timing.guest_clock_us == pytest.approx(timing.median_us, rel=0.25)
    assert speedup
    assert speedup.baseline == "eager"
    assert 0 < speedup.low <= speedup.ratio <= speedup.high
    assert speedup.ratio == pytest.approx(speedup.baseline_us / timing.median_us, rel=0.5)
    assert honest.roofline_fraction == pytest.approx(judge.target().bound_us / timing.median_us)


def test_what_was_looked_at_is_in_the_trial(honest: Trial) -> None:
    names = [check.name for check in honest.checks]
    assert [name for name in names if name != "every call counts"] == EVERYTHING  # only where calls outnumber sets
    unsure = {check.name for check in honest.checks if check.passed is None}
    # Reported where others use this machine as well; decided where copies take long enough; as the kernel allows it.
    assert unsure - {"baseline undisturbed", "outputs are copied", "sandbox"} == {
        "strided inputs",
        "own kernels",
        "work ends with the window",
        "neighbouring shapes",
    }
    assert honest.accuracy_class is Arithmetic.FP32
    assert {(one.workload, one.family) for one in honest.accuracy} >= {("main", "normal"), ("ragged", "sorted")}
    assert len(honest.accuracy) == 28
    assert all(one.relative_l2 is not None and one.relative_l2 <= one.gate for one in honest.accuracy)
    assert set(honest.seconds) == {"start", "build", "check", "state", "audit", "time", "general"}
    assert [build.kernel for build in honest.build] == ["conv"]


def test_strided_inputs_meet_the_weights_that_the_reference_has(judge: LocalJudge) -> None:
    """Seen: they met those of another model, and right kernels were reported as wrong."""
    trial = cpp(judge, "return self.answer(x.contiguous())")
    assert trial.outcome is Outcome.PASSED, trial.reasons
    (strided,) = (check for check in trial.checks if check.name == "strided inputs")
    assert strided.passed, strided.evidence


def test_the_target_tells_what_is_known_before(judge: LocalJudge) -> None:
    target = judge.target()
    assert target.flops == 2 * 4 * 8 * 30 * 30 * 27
    assert target.constants == {"batch": 4, "size": 32}
    assert target.inputs[0].shape == (4, 3, 32, 32)
    assert target.outputs[0].shape == (4, 8, 30, 30)
    assert target.parameters["conv.weight"].shape == (8, 3, 3, 3)
    assert target.baselines_us["eager"] > target.bound_us > 0


def test_without_timing_there_is_none(judge: LocalJudge) -> None:
    stages: list[str] = []
    trial = evaluated(judge, cpp_source(), stages=stages)
    assert trial.outcome is Outcome.PASSED
    assert trial.timing is None
    assert trial.speedups == ()
    assert trial.roofline_fraction is None
    # It waits where another judge has its turn on the device.
    assert [one for one in stages if one != "wait"] == ["start", "build", "check", "state", "audit", "general"]


def test_renamed_parameters_pair_by_content_and_prepare_is_told(judge: LocalJudge) -> None:
    source = f"""{cpp_source("return self.answer(x) if self.ready else x")}
class ModelNew(ModelNew):
    def __init__(self, *args):
        super().__init__(*args)
        with torch.no_grad():  # as the reference does, under the same seed
            self.conv.weight.uniform_(0.05, 0.2)
            self.conv.bias.uniform_(0.5, 1.0)
        self.other = self.conv
        del self.conv
    def prepare(self):
        self.ready = True
    @property
    def conv(self):
        return self._modules.get("conv") or self.other
    @conv.setter
    def conv(self, module):
        self._modules["conv"] = module
    @conv.deleter
    def conv(self):
        del self._modules["conv"]
"""
    trial = evaluated(judge, source)
    assert trial.outcome is Outcome.PASSED, trial.reasons
    assert "prepare" in [check.name for check in trial.checks]


# ---- wrong values ----------------------------------------------------------------------------------------------------


def test_a_forgotten_bias_is_found_by_family(judge: LocalJudge) -> None:
    trial = cpp(judge, kernel=edited_kernel("double sum = b[o];", "double sum = 0;"))
    refused(trial, Outcome.WRONG_VALUES, "ragged, zeros: relative L2 error 1.00e+00 is over the fp32 gate of 2.00e-06")
    assert not trial.checks[-1].passed
    assert len(trial.accuracy) == 14  # the small workload told enough


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("p < K; p++", "p < K - 1; p++"),
        ("sum += w[", "sum += (n + o + i + j == 0 ? 1.001 : 1) * w["),
        ("(double)x[", "(double)(_Float16)x["),
        ("double sum = b[o];", "if (n == N - 1 && o == O - 1 && i + j == 2 * P - 2) continue;\ndouble sum = b[o];"),
    ],
    ids=["a row of the filter", "one element slightly", "half precision", "the last element"],
)
def test_small_mistakes_are_found(judge: LocalJudge, old: str, new: str) -> None:
    refused(cpp(judge, kernel=edited_kernel(old, new)), Outcome.WRONG_VALUES, "ragged, normal")


def test_right_on_the_small_workload_only(judge: LocalJudge) -> None:
    trial = cpp(judge, kernel=edited_kernel("i < P; i++", "i < (P < 20 ? P : 20); i++"))
    refused(trial, Outcome.WRONG_VALUES, "main, normal")
    assert trial.checks[0].passed


def test_an_answer_kept_for_its_input_s_address_is_found_by_fresh_contents(judge: LocalJudge) -> None:
    forward = """
if x.data_ptr() not in self.cache:
    self.cache[x.data_ptr()] = self.answer(x)
return self.cache[x.data_ptr()]
"""
    trial = cpp(judge, forward)
    refused(trial, Outcome.WRONG_VALUES, "ragged, uniform")
    assert not any("ragged, normal" in reason for reason in trial.reasons)


WORKS_WHEN_ARMED = """
import functools
real = functools.partial
def early(call, *args, **settings):
    if getattr(call, "__name__", "") != "run_window":
        return real(call, *args, **settings)
    call(*args, **settings)
    return lambda: (lambda: 1e-4)
getattr(functools, "__di" + "ct__").update(partial=early)
"""


@pytest.mark.slow
def test_work_done_before_the_clock_starts_has_inputs_that_are_gone(judge: LocalJudge) -> None:
    trial = judge.evaluate(Candidate(source=f"{cpp_source()}\n{WORKS_WHEN_ARMED}", language=Language.CPP))
    refused(trial, Outcome.WRONG_VALUES, "timed window")


def test_an_answer_kept_once_it_is_timed_is_found_while_timed(judge: LocalJudge) -> None:
    """Only after the checks, which an audited guest does not go through, and too late for any probe."""
    forward = """
if len(x) == 2:
    type(self).checked = True
self.calls += 1
if not hasattr(self, "checked") or self.calls < 150 or x.data_ptr() not in self.cache:
    self.cache[x.data_ptr()] = self.answer(x)
return self.cache[x.data_ptr()]
"""
    trial = judge.evaluate(Candidate(source=cpp_source(forward), language=Language.CPP))
    refused(trial, Outcome.WRONG_VALUES, "timed window")
    assert [check.name for check in trial.checks if check.passed is False] == ["values while timed"]


# ---- no answer of the right kind -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "outcome", "said"),
    [
        (
            "return self.answer(x)[:, :, :-1].contiguous()",
            Outcome.WRONG_SHAPE,
            "returned shape (2, 8, 6, 7), the reference (2, 8, 7, 7)",
        ),
        ("return self.answer(x), x", Outcome.WRONG_SHAPE, "returns 1 tensors, this returned 2 values"),
        ("return self.answer(x).double()", Outcome.WRONG_DTYPE, "returned torch.float64, the reference torch.float32"),
        (
            "return self.answer(x).transpose(2, 3).contiguous().transpose(2, 3)",
            Outcome.WRONG_SHAPE,
            "returned strides (392, 49, 1, 7); the reference's output is contiguous",
        ),
        ("return nn.Parameter(self.answer(x))", Outcome.CHEATED, "returned Parameter, not a plain torch.Tensor"),
        ("return None", Outcome.CHEATED, "returned NoneType"),
        ("return self.answer(x).to('meta')", Outcome.WRONG_SHAPE, "returned a tensor on meta"),
    ],
    ids=["shape", "two", "dtype", "strides", "subclass", "nothing", "device"],
)
def test_outputs_of_another_kind(judge: LocalJudge, forward: str, outcome: Outcome, said: str) -> None:
    refused(cpp(judge, forward), outcome, said)


# ---- not built -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class ModelNew(:", "no Python: line 1"),
        ("class Model: ...", "defines no ModelNew"),
        ("class ModelNew: ...\nimport no_such_module_anywhere", "no_such_module_anywhere"),
        ("class ModelNew:\n    def __init__(self): ...", "takes 1 positional argument"),
    ],
)
def test_text_that_does_not_build(judge: LocalJudge, source: str, said: str) -> None:
    refused(evaluated(judge, source), Outcome.BUILD_FAILED, said)


def test_the_compiler_s_error_comes_with_its_line(judge: LocalJudge) -> None:
    trial = cpp(judge, kernel=edited_kernel("int P = H - K + 1;", "int P = H - K + one;"))
    refused(trial, Outcome.BUILD_FAILED, "CompileError: candidate.cpp does not compile")
    assert "candidate.cpp:5:19: error: 'one' was not declared" in trial.reasons[0]
    assert "int P = H - K + one;" in trial.reasons[0]


def test_a_parameter_without_a_partner_is_named(judge: LocalJudge) -> None:
    source = cpp_source() + "        self.packed = 1\n"
    source = source.replace("self.cache = {}", "self.cache, self.packed = {}, nn.Parameter(torch.zeros(5, 6))")
    source = source.replace("        self.packed = 1\n", "")
    refused(
        evaluated(judge, source), Outcome.BUILD_FAILED, "workload ragged: ModelNew's packed (5, 6) pair with nothing"
    )


def test_without_the_reference_s_weights(judge: LocalJudge) -> None:
    source = "from torch import nn\nclass ModelNew(nn.Module):\n    def __init__(self, *_): super().__init__()"
    refused(evaluated(judge, source), Outcome.BUILD_FAILED, "Model's conv.weight (8, 3, 3, 3), conv.bias (8,) have no")


def test_reaching_into_the_judge_is_screened_out(judge: LocalJudge) -> None:
    stages: list[str] = []
    trial = evaluated(judge, cpp_source() + "import agentgen.verify.draws\n", stages=stages)
    refused(trial, Outcome.SCREENED_OUT, "imports agentgen.verify.draws")
    assert stages == []


# ---- crashes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forward", "outcome", "said"),
    [
        ("ctypes.string_at(0)", Outcome.CRASHED, "ended by SIGSEGV"),
        ("os.abort()", Outcome.CRASHED, "ended by SIGABRT"),
        ('getattr(os, "_ex" + "it")(0)', Outcome.CRASHED, "ended by itself with status 0"),
        ("raise SystemExit", Outcome.CRASHED, "SystemExit"),
        ("raise ValueError('by intention')", Outcome.CRASHED, "ValueError: by intention"),
        ("return torch.empty(1 << 38)", Outcome.OUT_OF_MEMORY, "allocate"),
        ("return bytearray(1 << 40)", Outcome.OUT_OF_MEMORY, "MemoryError"),
    ],
    ids=["segfault", "abort", "exit", "SystemExit", "raise", "1 TiB tensor", "1 TiB of bytes"],
)
def test_crashes_have_a_name(judge: LocalJudge, forward: str, outcome: Outcome, said: str) -> None:
    refused(cpp(judge, forward), outcome, said)


def test_where_it_raised_is_in_the_log(judge: LocalJudge) -> None:
    log = cpp(judge, "raise ValueError('by intention')").log.rstrip().split("\n")
    assert log[-1] == "ValueError: by intention"
    assert any("/candidate.py" in line and "in forward" in line for line in log)


@pytest.mark.parametrize("past", [16, 1000], ids=["64 bytes", "4,000 bytes"])
def test_reading_past_the_end_of_an_input(judge: LocalJudge, past: int) -> None:
    kernel = edited_kernel(
        "double sum = b[o];", f"double sum = b[o] + 0 * ((volatile const float*)x)[N * C * H * H + {past - 1}];"
    )
    refused(cpp(judge, kernel=kernel), Outcome.CRASHED, "ended by SIGSEGV")


def test_memory_that_is_never_written_is_found_though_it_was_zero(judge: LocalJudge) -> None:
    """A block of 4 MiB is fresh from the kernel, or one that nobody has written to there."""
    trial = cpp(
        judge, "y = self.answer(x)\nscratch = torch.empty(1 << 20)\nlib.add(scratch, y)\nreturn y", kernel=SCRATCH
    )
    refused(trial, Outcome.WRONG_VALUES, "fresh memory holds NaN: main, normal")
    assert [check.name for check in trial.checks if check.passed is False] == ["poisoned memory"]


def test_the_log_is_shown(judge: LocalJudge) -> None:
    trial = cpp(judge, "print('about to fall', flush=True)\nctypes.string_at(0)")
    assert "about to fall" in trial.log


# ---- cheats ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("change", ["x.zero_()", "x.view(-1)[-1] += 1"])
def test_changing_its_inputs(judge: LocalJudge, change: str) -> None:
    trial = cpp(judge, f"y = self.answer(x)\n{change}\nreturn y")
    refused(trial, Outcome.CHEATED, "changed its inputs at ragged")


@pytest.mark.parametrize(
    ("forward", "operator"),
    [
        ('return getattr(torch, "conv" + "2d")(x, self.conv.weight, self.conv.bias)', "aten.convolution.default"),
        ("return self.conv(x)", "aten.convolution.default"),
        ("return self.answer(x) * 1", "aten.mul.Tensor"),
    ],
)
def test_having_torch_compute_is_no_own_work(judge: LocalJudge, forward: str, operator: str) -> None:
    refused(cpp(judge, forward), Outcome.CHEATED, f"torch computes for the candidate: {operator}")


# ---- other languages without a GPU -----------------------------------------------------------------------------------


def test_triton_is_interpreted_and_not_timed(judge: LocalJudge) -> None:
    pytest.importorskip("triton")
    trial = judge.evaluate(Candidate(source=TRITON.replace("{edit}", ""), language=Language.TRITON))
    assert trial.outcome is Outcome.PASSED, trial.reasons
    assert trial.timing is None
    assert [check.name for check in trial.checks] == [*EVERYTHING[:3], "values: ragged", *STATE, *HABITS, "audit"]
    assert "Triton's interpreter" in trial.checks[-1].evidence


@pytest.mark.parametrize("edit", [" * 1.0001", " - tl.load(b + o)"])
def test_wrong_triton_is_found(judge: LocalJudge, edit: str) -> None:
    pytest.importorskip("triton")
    trial = evaluated(judge, TRITON.replace("{edit}", edit), Language.TRITON)
    refused(trial, Outcome.WRONG_VALUES, "ragged, normal")


@pytest.mark.usefixtures("nvrtc")
def test_cuda_is_compiled_and_not_run(judge: LocalJudge) -> None:
    trial = evaluated(judge, CUDA.replace("{end}", ";"), Language.CUDA)
    refused(trial, Outcome.NOT_RUN, "compiled, not run: no GPU here. conv (")
    (build,) = trial.build
    assert build.kernel == "conv"
    assert build.registers
    assert build.spill_bytes == 0


@pytest.mark.usefixtures("nvrtc")
def test_cuda_that_does_not_compile(judge: LocalJudge) -> None:
    refused(evaluated(judge, CUDA.replace("{end}", ""), Language.CUDA), Outcome.BUILD_FAILED, "candidate.cu(")
