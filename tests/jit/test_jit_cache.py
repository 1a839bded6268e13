"""Builds that are found again: without a compiler, by other processes, and not after a change of the compiler."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import agentgen
from agentgen import jit

ADD = r"""
#include <cstdint>
extern "C" void add(const float* x, float* out, int64_t n, float a) {
  #pragma omp parallel for
  for (int64_t i = 0; i < n; i++) out[i] = x[i] + a;
}
"""
USE_ADD = f"""
import sys, torch
from agentgen import jit
x = torch.ones(2)
jit.cpp({ADD!r}, options=sys.argv[1]).add(x, x, 2, 1.0)
print(x.tolist())
"""


def _other_process(option: str, **environment: str) -> subprocess.Popen[str]:
    """Builds ADD with `option`, runs it on two ones and prints the result."""
    variables = {**os.environ, "PYTHONPATH": str(Path(agentgen.__file__).parents[1]), **environment}
    command = [sys.executable, "-c", USE_ADD, option]
    return subprocess.Popen(command, env=variables, text=True, stdout=subprocess.PIPE)


@pytest.mark.usefixtures("gpp")
def test_cache_hit_needs_no_compiler(tmp_path: Path) -> None:
    jit.cpp(ADD, options=["-DHIT"])
    process = _other_process("-DHIT", PATH=str(tmp_path))
    assert process.communicate(timeout=60)[0] == "[2.0, 2.0]\n"


@pytest.mark.usefixtures("gpp")
def test_newer_compiler_builds_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, cache: Path) -> None:
    jit.cpp(ADD, options=["-DNEWER"])
    before = set(cache.glob("*.so"))
    newer = tmp_path / "g++"
    newer.write_text(f'#!/bin/sh\nexec {shutil.which("g++")} "$@"\n')
    newer.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    jit.cpp(ADD, options=["-DNEWER"])
    assert len(set(cache.glob("*.so")) - before) == 1


@pytest.mark.usefixtures("gpp")
def test_processes_may_build_the_same_source_at_once(cache: Path) -> None:
    before = set(cache.iterdir())
    processes = [_other_process("-DPARALLEL") for _ in range(2)]
    assert [process.communicate(timeout=120)[0] for process in processes] == ["[2.0, 2.0]\n"] * 2
    assert sorted(file.suffix for file in set(cache.iterdir()) - before) == [".log", ".so"]


@pytest.mark.usefixtures("gpp")
def test_cache_folder_that_cannot_be_written_is_replaced_by_one_that_goes_with_the_process(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    (tmp_path / "temporary").mkdir()
    places = {"XDG_CACHE_HOME": str(tmp_path / "file"), "TMPDIR": str(tmp_path / "temporary")}
    process = _other_process("-DREPLACED", **places)
    assert process.communicate(timeout=120)[0] == "[2.0, 2.0]\n"
    assert list((tmp_path / "temporary").glob("agentgen-*")) == []


SCALE = 'extern "C" __global__ void scale(float* x, float a) { x[threadIdx.x] *= a; }'


@pytest.mark.usefixtures("nvrtc")
def test_cuda_cache_hit_is_byte_identical_and_keeps_the_report(cache: Path) -> None:
    first = jit.cuda(SCALE, options=["-DHIT"], arch="sm_80")
    files = {file: file.stat().st_mtime_ns for file in cache.iterdir()}
    second = jit.cuda(SCALE, options=["-DHIT"], arch="sm_80")
    assert second.report == first.report
    assert {file: file.stat().st_mtime_ns for file in cache.iterdir()} == files
    jit.cuda(SCALE, options=["-DHIT"], arch="sm_90a")
    assert len(set(cache.glob("*.cubin")) - set(files)) == 1
