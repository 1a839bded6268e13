"""The reference: its oracle, its state, and what is said of one that does not run."""

from __future__ import annotations

import pytest
import torch
from verify_problems import REFERENCE, small_conv

from agentgen.errors import ReferenceInvalid
from agentgen.records.problem import Arithmetic, Problem, Workload
from agentgen.verify.checks.values import truth
from agentgen.verify.numerics import Pool
from agentgen.verify.reference import Reference, load

MAIN = Workload(name="main")
MODULE = """
import torch
from torch import nn
n = 4
class Model(nn.Module):
    def __init__(self, *args):
        super().__init__()
        {init}
    def forward(self, x):
        {forward}
def get_inputs():
    {inputs}
def get_init_inputs():
    {init_args}
"""


def text(
    init: str = "pass",
    forward: str = "return x * 2",
    inputs: str = "return [torch.randn(n, 3)]",
    init_args: str = "return []",
) -> str:
    return MODULE.format(init=init, forward=forward, inputs=inputs, init_args=init_args)


def loaded(source: str, workload: Workload = MAIN, arithmetic: Arithmetic = Arithmetic.FP32) -> Reference:
    problem = Problem(name="p", title="P", reference=source, workloads=(MAIN,), arithmetic=Arithmetic.FP32)
    return load(problem, workload, "cpu", arithmetic)


def test_shapes_of_inputs_and_outputs() -> None:
    reference = load(small_conv(), small_conv().main, "cpu")
    assert reference.inputs == (((4, 3, 32, 32), torch.float32),)
    assert reference.outputs == (((4, 8, 30, 30), torch.float32),)
    assert reference.init_args == (3, 8, 3)
    assert reference.constants == {"batch": 4, "size": 32}


def test_a_workload_overrides_constants_of_its_own_module_only() -> None:
    ragged = load(small_conv(), small_conv().workloads[1], "cpu")
    assert ragged.inputs == (((2, 3, 9, 9), torch.float32),)
    assert ragged.constants == {"batch": 2, "size": 9}
    assert load(small_conv(), small_conv().main, "cpu").inputs[0][0] == (4, 3, 32, 32)


def test_models_of_one_problem_start_alike() -> None:
    """Under the public seed, so that a candidate's renamed parameters pair by content."""
    one, two = (load(small_conv(), small_conv().main, "cpu") for _ in range(2))
    assert all(torch.equal(a, b) for a, b in zip(one.state().values(), two.state().values(), strict=True))


def test_the_oracle_computes_in_float64_from_the_same_weights() -> None:
    reference = load(small_conv(), small_conv().main, "cpu")
    state = {name: torch.rand_like(tensor) for name, tensor in reference.state().items()}
    reference.set_state(state)
    x = torch.randn(4, 3, 32, 32)
    (oracle,) = reference.oracle_outputs([x])
    assert oracle.dtype == torch.float64
    by_hand = torch.conv2d(x.double(), state["conv.weight"].double(), state["conv.bias"].double())
    assert torch.allclose(oracle, by_hand, rtol=1e-12)
    (by_torch,) = reference.torch_outputs([x])
    assert by_torch.dtype == torch.float32
    assert 0 < (by_torch.double() - oracle).abs().max() < 1e-4


def test_it_is_in_evaluation_mode_and_keeps_no_gradients() -> None:
    reference = loaded(text(init="self.drop = nn.Dropout(0.9)", forward="return self.drop(x)"))
    x = torch.ones(4, 3)
    assert torch.equal(reference.torch_outputs([x])[0], x)
    assert not load(small_conv(), small_conv().main, "cpu").torch_outputs([torch.randn(4, 3, 32, 32)])[0].requires_grad


def test_buffers_are_state_and_integers_stay_integers() -> None:
    init = "self.register_buffer('index', torch.tensor([2, 0]), persistent=False)"
    reference = loaded(text(init=init, forward="return x[:, self.index], self.index"))
    assert reference.state()["index"].tolist() == [2, 0]
    values, index = reference.oracle_outputs([torch.arange(12.0).view(4, 3)])
    assert values[0].tolist() == [2.0, 0.0]
    assert index.dtype == torch.int64


def test_several_outputs_in_a_list_or_a_tuple() -> None:
    for forward in ("return x, x[0]", "return [x, x[0]]"):
        assert [shape for shape, _ in loaded(text(forward=forward)).outputs] == [(4, 3), (3,)]


def test_casts_and_plain_tensors_of_a_reference_are_float64_in_the_oracle() -> None:
    """Statistics in fp32 inside a bf16 module, an LSTM's h0: as references are written."""
    reference = loaded(
        text(
            init="self.w = torch.full((3, 3), 1 / 3)",
            forward="return (x.float().to(torch.float32) @ self.w + torch.full((3,), 0.1)).to(x.dtype)",
            inputs="return [torch.randn(n, 3, dtype=torch.bfloat16)]",
        )
    )
    x = torch.randn(4, 3, dtype=torch.bfloat16)
    (oracle,) = reference.oracle_outputs([x])
    by_hand = x.double() @ torch.full((3, 3), 1 / 3).double() + 0.1
    assert torch.allclose(oracle, by_hand, rtol=1e-14)
    assert torch.get_default_dtype() == torch.float32
    assert reference.torch_outputs([x])[0].dtype == torch.bfloat16


def test_the_oracle_is_no_copy_of_the_model() -> None:
    """KernelBench's MiniGPT keeps its feed-forward part as a lambda, which a copy would share with the original."""
    reference = loaded(
        text(
            init="linear = nn.Linear(3, 3); self.linear = linear; self.apply_it = lambda x: linear(x)",
            forward="return self.apply_it(x)",
        )
    )
    assert reference.oracle_outputs([torch.randn(4, 3)])[0].dtype == torch.float64


def test_a_reference_that_cannot_be_computed_in_float64_is_refused() -> None:
    reference = loaded(text(forward="assert x.dtype == torch.float32, 'fp32 only'; return x"))
    with pytest.raises(ReferenceInvalid, match="does not run in float64, which its oracle needs: fp32 only"):
        reference.oracle_outputs([torch.zeros(4, 3)])


def test_a_reference_that_fails_on_some_values_in_its_own_arithmetic_is_refused() -> None:
    """1 + 1e-9 is 1 in fp32: the matrix of ones is positive definite in float64 only."""
    reference = loaded(
        text(
            forward="return torch.linalg.cholesky(x @ x.mT + torch.eye(3, dtype=x.dtype) * 1e-9)",
            inputs="return [torch.randn(n, 3, 3)]",
        )
    )
    ones = [torch.ones(2, 3, 3)]
    assert reference.oracle_outputs(ones)[0].isfinite().all()
    with pytest.raises(ReferenceInvalid, match="fails on values that kernels are judged on: "):
        reference.torch_outputs(ones)


def test_numbers_among_the_inputs_reach_the_model() -> None:
    source = text(forward="return x * s", inputs="return [torch.randn(n, 3), 2.5]").replace("(self, x)", "(self, x, s)")
    reference = loaded(source)
    assert reference.torch_outputs([torch.ones(4, 3)])[0].unique().tolist() == [2.5]
    assert reference.oracle_outputs([torch.ones(4, 3)])[0].unique().tolist() == [2.5]
    assert reference.nbytes == (48, 48)


@pytest.mark.parametrize(
    ("forward", "shape", "strides"),
    [
        ("return x * 2", (4, 3), None),
        ("return x.T", (3, 4), (1, 3)),
        ("return x[:, None].transpose(0, 2)", (3, 1, 4), (1, 3, 3)),
        ("return x[:, :2]", (4, 2), None),
        ("return x.expand(2, 4, 3)", (2, 4, 3), None),
    ],
    ids=["contiguous", "transposed", "transposed with a dimension of one", "with gaps", "overlapping"],
)
def test_outputs_keep_torch_s_strides_but_for_gaps_and_overlaps(
    forward: str, shape: tuple[int, ...], strides: tuple[int, ...] | None
) -> None:
    reference = loaded(text(forward=forward))
    assert reference.outputs == ((shape, torch.float32),)
    assert reference.output_strides == (strides,)
    (y,) = reference.torch_outputs([torch.zeros(4, 3)])
    assert y.is_contiguous() if strides is None else y.stride() == strides


BAD = {
    "no python": ("class Model(", "SyntaxError"),
    "no Model": ("def get_inputs(): return []\ndef get_init_inputs(): return []", "'Model'"),
    "no get_inputs": (REFERENCE.replace("def get_inputs", "def inputs"), "'get_inputs'"),
    "no get_init_inputs": (REFERENCE.replace("def get_init_inputs", "def init_inputs"), "'get_init_inputs'"),
    "import": ("import no_such_module_anywhere", "no_such_module_anywhere"),
    "arguments": (REFERENCE.replace("return [3, 8, 3]", "return [3]"), "missing 2 required positional arguments"),
    "shapes": (text(forward="return x @ x"), "cannot be multiplied"),
    "raises": (text(forward="raise ValueError('by intention')"), "ValueError: by intention"),
    "returns no tensor": (text(forward="return x.sum().item()"), "returns a float, not tensors"),
    "returns a dict": (text(forward="return {'y': x}"), "returns a dict, not tensors"),
    "returns None": (text(forward="pass"), "returns a NoneType, not tensors"),
    "takes lists": (text(inputs="return [[torch.randn(3)]]"), "input 0 of get_inputs() is a list, neither a tensor"),
    "takes one tensor": (text(inputs="return torch.zeros(0)"), "get_inputs() returns a Tensor, not a list"),
    "complex": (text(forward="return torch.fft.fft(x)"), "tensors of torch.complex64 cannot be judged"),
    "init args": (text(init_args="return [torch.float16]"), "dtype is not JSON serializable"),
}


@pytest.mark.parametrize(("source", "said"), BAD.values(), ids=BAD)
def test_a_bad_reference_is_told_in_one_useful_line(source: str, said: str) -> None:
    with pytest.raises(ReferenceInvalid) as raised:
        loaded(source)
    assert said in str(raised.value)
    assert str(raised.value).count("\n") <= 2  # torch's own words may have more lines
    assert raised.value.exit_code == 2


def test_the_workload_and_the_device_are_named() -> None:
    with pytest.raises(ReferenceInvalid, match="p: the reference fails at workload odd on cpu: RuntimeError"):
        loaded(text(forward="return x.view(4, 3) * 2"), Workload(name="odd", constants={"n": 5}))


def test_an_unknown_constant_is_named() -> None:
    with pytest.raises(ReferenceInvalid, match=r"workload main overrides unknown constants \['batch_sise'\]"):
        loaded(text(), Workload(name="main", constants={"batch_sise": 3}))


# ---- in half precision -----------------------------------------------------------------------------------------------

LINEAR = text("self.one = nn.Linear(64, 1)", "return torch.relu(self.one(x))", "return [torch.randn(4096, 64)]")


@pytest.mark.parametrize(
    ("arithmetic", "low", "high"),
    [(Arithmetic.FP32, 0, 1e-6), (Arithmetic.BF16, 1e-3, 8e-3)],
)
def test_torch_computes_in_the_arithmetic_asked_for(arithmetic: Arithmetic, low: float, high: float) -> None:
    reference = loaded(LINEAR, arithmetic=arithmetic)
    x = torch.randn(4096, 64, generator=torch.Generator().manual_seed(1))
    (by_torch,), (oracle,) = reference.torch_outputs([x]), reference.oracle_outputs([x])
    assert by_torch.dtype is torch.float32
    assert low <= ((by_torch - oracle).norm() / oracle.norm()).item() <= high


def test_tensors_that_are_half_already_are_left_to_torch() -> None:
    source = text(inputs="return [torch.randn(n, 3, dtype=torch.bfloat16)]")
    assert loaded(source, arithmetic=Arithmetic.BF16).half is None


@pytest.mark.parametrize("torch_s_own", [Arithmetic.FP32, Arithmetic.BF16])
def test_what_half_precision_lifts_over_a_relu_is_no_fault_of_a_kernel(torch_s_own: Arithmetic) -> None:
    """In rows of the oracle that are zero as a whole only torch's own error in the same arithmetic tells what is due:
    four of four right kernels of conv2d_relu_maxpool in BF16 were refused while that was its error in fp32."""
    source = torch.Generator().manual_seed(2)
    reference = loaded(LINEAR, arithmetic=torch_s_own)
    state = reference.state()
    x = torch.randn(4096, 64, generator=source)
    products = x.bfloat16().float() @ state["one.weight"].detach().bfloat16().float().T
    out = torch.relu(products + state["one.bias"].detach())
    pool = Pool("main", "normal", Arithmetic.BF16, must_be_exact=False)
    truth(reference, [x], source).add_to(pool, [out])
    assert bool(pool.problems()) is (torch_s_own is Arithmetic.FP32)


def test_on_a_cpu_products_in_fp16_are_emulated_and_not_asked_for() -> None:
    assert loaded(LINEAR, arithmetic=Arithmetic.FP16).half is None
