"""What several tests of the judge need."""

from __future__ import annotations

import pytest

from agentgen import jit


@pytest.fixture(scope="module")
def nvrtc() -> None:
    """Skips where CUDA source cannot be compiled."""
    try:
        jit.cuda('extern "C" __global__ void probe(int n) {}', arch="sm_90a")
    except RuntimeError as error:
        if "libnvrtc not found" not in str(error):
            raise
        pytest.skip(str(error))
