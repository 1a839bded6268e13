"""The architecture that a zygote is told before anything imports torch."""

from __future__ import annotations

import pytest
import torch

from agentgen.verify.architecture import architecture, named


@pytest.mark.parametrize(
    ("capability", "name"), [((8, 0), "sm_80"), ((8, 9), "sm_89"), ((9, 0), "sm_90a"), ((10, 0), "sm_100a")]
)
def test_a_compute_capability_has_the_name_that_compilers_know(capability: tuple[int, int], name: str) -> None:
    assert named(*capability) == name


@pytest.mark.parametrize("device", ["cpu", "cuda:4096"])
def test_what_is_no_gpu_here_has_none(device: str) -> None:
    assert architecture(device) is None


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="torch finds no CUDA device")
def test_the_driver_names_what_torch_names() -> None:
    assert architecture("cuda:0") == named(*torch.cuda.get_device_capability(0))
