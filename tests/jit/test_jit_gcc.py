"""C++ functions, built and called."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from agentgen import jit

ADD = r"""
#include <cstdint>
extern "C" void add(const float* x, float* out, int64_t n, float a) {
  #pragma omp parallel for
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + a;
}
"""


@pytest.mark.usefixtures("gpp")
def test_cpp_adds_and_is_listed_in_builds() -> None:
    x, out = torch.randn(1000), torch.empty(1000)
    library = jit.cpp(ADD)
    assert library.add(x, out, 1000, 0.5) is None
    torch.testing.assert_close(out, x + 0.5, rtol=0, atol=0)
    assert {"kernel": "add"} in jit.builds()


def test_missing_compiler_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(RuntimeError, match=r"no C\+\+ compiler: install g\+\+"):
        jit.cpp(ADD, options=["-DNEVER_BUILT"])
