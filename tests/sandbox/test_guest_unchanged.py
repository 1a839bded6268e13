"""What a call must leave as it was: torch's settings and the tensors it is given."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest
import torch

from agentgen.sandbox.guest.unchanged import torch_state, unchanged
from agentgen.sandbox.guest.window import WrongOutput


@pytest.fixture
def x() -> torch.Tensor:
    return torch.zeros(4, 6)


@pytest.fixture(autouse=True)
def _restores() -> Iterator[None]:  # pyright: ignore[reportUnusedFunction]
    """Puts torch back as these tests found it."""
    state, threads, precision = torch.get_rng_state(), torch.get_num_threads(), torch.get_float32_matmul_precision()
    cudnn = (torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32)
    yield
    torch.set_rng_state(state)
    torch.set_num_threads(threads)
    torch.set_float32_matmul_precision(precision)
    torch.backends.cudnn.enabled, torch.backends.cudnn.benchmark, torch.backends.cudnn.allow_tf32 = cudnn
    torch.set_default_dtype(torch.float32)
    torch.set_grad_enabled(True)
    torch.set_deterministic_debug_mode("default")


def other_precision() -> None:
    torch.set_float32_matmul_precision("medium" if torch.get_float32_matmul_precision() != "medium" else "high")


def flip(name: str) -> Callable[[], None]:
    return lambda: setattr(torch.backends.cudnn, name, not getattr(torch.backends.cudnn, name))


SETTINGS: dict[str, tuple[Callable[[], object], str]] = {
    "default dtype": (lambda: torch.set_default_dtype(torch.float64), "default dtype from torch.float32 to torch.fl"),
    "grad mode": (lambda: torch.set_grad_enabled(False), "grad mode from True to False"),
    "deterministic": (lambda: torch.set_deterministic_debug_mode("error"), "deterministic mode from False to True"),
    "threads": (lambda: torch.set_num_threads(torch.get_num_threads() + 1), "threads from"),
    "precision": (other_precision, "float32 matmul precision from"),
    "cuDNN": (flip("enabled"), "cuDNN settings from"),
    "cuDNN benchmark": (flip("benchmark"), "cuDNN settings from"),
    "cuDNN TF32": (flip("allow_tf32"), "cuDNN settings from"),
    "seed": (lambda: torch.manual_seed(torch.initial_seed() + 1), "random state from"),
    "draw": (lambda: torch.rand(1), "random state from"),
}


@pytest.mark.parametrize(("change", "said"), SETTINGS.values(), ids=SETTINGS)
def test_a_changed_setting_is_named(x: torch.Tensor, change: Callable[[], object], said: str) -> None:
    with pytest.raises(WrongOutput, match=f"a call changed torch's {said}") as raised, unchanged([[x]], "cpu"):
        change()
    assert raised.value.kind == "state"


def test_a_thread_that_goes_on_is_seen(x: torch.Tensor) -> None:
    done = threading.Event()
    thread = threading.Thread(target=done.wait)
    with pytest.raises(WrongOutput, match="Python threads"), unchanged([[x]], "cpu"):
        thread.start()
    done.set()
    thread.join()


def test_inference_mode_that_goes_on_is_seen(x: torch.Tensor) -> None:
    mode = torch.inference_mode()
    with pytest.raises(WrongOutput, match=r"(grad|inference) mode"), unchanged([[x]], "cpu"):
        mode.__enter__()
    assert torch_state("cpu")["inference mode"]
    mode.__exit__(None, None, None)


SAME = r"\(4, 6\) strides \(6, 1\) torch.float32 at 0x\w+, requires_grad="
TENSORS: dict[str, tuple[str, str]] = {
    "resize_": ("x.resize_(2, 6)", r"\(2, 6\) strides \(6, 1\)"),
    "t_": ("x.t_()", r"\(6, 4\) strides \(1, 6\)"),
    "unsqueeze_": ("x.unsqueeze_(0)", r"\(1, 4, 6\)"),
    "set_": ("x.set_(torch.zeros(4, 6))", SAME),
    "data": ("x.data = torch.zeros(4, 6)", SAME),
    "dtype": ("x.data = x.data.double()", r"\(4, 6\) strides \(6, 1\) torch.float64"),
    "requires_grad_": ("x.requires_grad_()", f"{SAME}True"),
}


@pytest.mark.parametrize(("change", "to"), TENSORS.values(), ids=TENSORS)
def test_an_input_that_is_another_tensor_afterwards(x: torch.Tensor, change: str, to: str) -> None:
    said = rf"a call changed its input from {SAME}False to {to}"
    with pytest.raises(WrongOutput, match=said) as raised, unchanged([[2.5, torch.ones(3)], [x]], "cpu"):
        exec(change, {"x": x, "torch": torch})
    assert raised.value.kind == "state"


def test_a_call_that_changes_nothing_passes(x: torch.Tensor) -> None:
    with unchanged([[x, 3]], "cpu"), torch.no_grad():
        x.view(-1).t().contiguous().add_(1)


def test_what_the_call_raises_comes_first(x: torch.Tensor) -> None:
    """Also where it has changed something: the failure tells more."""

    def fail() -> None:
        torch.set_grad_enabled(False)
        raise ValueError("by intention")

    with pytest.raises(ValueError, match="by intention"), unchanged([[x]], "cpu"):
        fail()
