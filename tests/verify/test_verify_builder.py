"""Building ahead, for an architecture that is not the default one: real compilers, real guests, no GPU."""

from __future__ import annotations

import ast
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from agentgen import jit
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Isolation
from agentgen.sandbox.kin import children
from agentgen.sandbox.process import ProcessSandbox
from agentgen.verify import builder
from agentgen.verify.builder import Builder

ARCH = "sm_80"
SOURCE = '''
import torch
from agentgen import jit

kernels = jit.cuda("""
extern "C" __global__ void scale(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) x[i] *= 3.0f;
}
""")


class ModelNew(torch.nn.Module): ...
'''
LOOKING = f"""
import glob, os
before = glob.glob(os.environ["XDG_CACHE_HOME"] + "/agentgen/jit/*.cubin")
{SOURCE}
after = glob.glob(os.environ["XDG_CACHE_HOME"] + "/agentgen/jit/*.cubin")
raise ValueError("said " + repr((before, after)))
"""


@pytest.fixture(scope="module", autouse=True)
def _nvrtc() -> None:  # pyright: ignore[reportUnusedFunction]
    try:
        jit.cuda('extern "C" __global__ void probe(int n) {}', arch=ARCH)
    except RuntimeError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("temporary")


@pytest.fixture(scope="module")
def warm(folder: Path) -> Iterator[Builder]:
    """One whose zygote has started. Afterwards nothing is left of it."""
    before = set(children(os.getpid()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tempfile.tempdir", str(folder))
        patch.setattr(builder, "SPARE_CORES", 1)
        one = Builder(ARCH, Isolation.JAIL)
        one.begin(cuda(SOURCE), Arithmetic.FP32)
        assert one.take(cuda(SOURCE)) is None  # only the zygote started
        yield one
        one.close()
    assert set(children(os.getpid())) <= before
    assert list(folder.iterdir()) == []


def cuda(source: str) -> Candidate:
    return Candidate(source=source, language=Language.CUDA)


def test_what_was_built_ahead_is_found_by_the_guest_that_is_judged(warm: Builder, folder: Path) -> None:
    candidate = cuda(SOURCE)
    warm.begin(candidate, Arithmetic.FP32)
    built = warm.take(candidate)
    assert built
    assert len(list(built.glob("jit/*.cubin"))) == 1
    assert warm.take(candidate) is None  # once
    sandbox = ProcessSandbox("cpu", ARCH)
    try:
        guest = sandbox.start(candidate.id, built)
        guest.post({"do": "load", "source": LOOKING, "arithmetic": "fp32"})
        message = guest.answer(60)["failure"]["message"]
        before, after = ast.literal_eval(message.partition("said ")[2])
        guest.kill()
    finally:
        sandbox.close()
    assert len(before) == 1
    assert before == after
    assert not built.exists()


@pytest.mark.parametrize(
    "source",
    [
        "import nothing_of_that_name",
        "import os; os._exit(3)",
        "class ModelNew: ...",
        "import ctypes; ctypes.string_at(0)",
    ],
)
def test_what_cannot_be_built_ahead_is_left_to_the_guest_that_is_judged(warm: Builder, source: str) -> None:
    warm.begin(cuda(source), Arithmetic.FP32)
    assert warm.take(cuda(source)) is None


def test_what_has_nothing_to_be_built_starts_nothing(warm: Builder, folder: Path) -> None:
    others = [Candidate(source=SOURCE, language=Language.TRITON), Candidate(source=SOURCE, language=Language.CPP)]
    for candidate in others:
        warm.begin(candidate, Arithmetic.FP32)
        assert warm.take(candidate) is None
    assert not list(folder.glob("*/guest-*"))


def test_another_candidate_gets_nothing_and_the_guest_ends_with_the_next_one(warm: Builder, folder: Path) -> None:
    warm.begin(cuda(SOURCE), Arithmetic.FP32)
    assert warm.take(cuda(SOURCE + "#")) is None
    assert len(list(folder.glob("*/guest-*"))) == 1
    warm.begin(cuda(SOURCE + "##"), Arithmetic.FP32)
    assert [path.name for path in folder.glob("*/guest-*")] == [f"guest-{cuda(SOURCE + '##').id}"]
    warm.take(cuda(SOURCE + "##"))
    assert not list(folder.glob("*/guest-*"))


def test_with_few_cores_nothing_is_built_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(builder, "SPARE_CORES", 10_000)
    one = Builder(ARCH, Isolation.JAIL)
    for _ in range(2):
        one.begin(cuda(SOURCE), Arithmetic.FP32)
    assert one.take(cuda(SOURCE)) is None
    one.close()


KILLED = f"""
import os, signal
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Isolation
from agentgen.verify import builder
builder.SPARE_CORES = 1
candidate = Candidate(source={SOURCE!r}, language=Language.CUDA)
one = builder.Builder("{ARCH}", Isolation.JAIL)
one.begin(candidate, Arithmetic.FP32)  # the zygote
one.begin(candidate, Arithmetic.FP32)
assert one.take(candidate), "nothing was built"
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_nothing_is_left_of_what_was_built_for_a_judge_that_is_killed(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED], env={**os.environ, "TMPDIR": str(tmp_path)}, check=False)
    assert killed.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 10
    while (left := os.listdir(tmp_path)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert left == []
