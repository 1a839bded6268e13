"""What is refused by its text alone, what is not, and that no honest kernel on record is."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest
import verify_problems

from agentgen.jit import __all__ as offered_by_jit
from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import OwnWork
from agentgen.records.trial import Outcome
from agentgen.verify.checks.dotted import Names
from agentgen.verify.checks.reach import COMPUTE, JIT
from agentgen.verify.checks.screens import MAX_SOURCE_BYTES, MOST_REASONS, screen
from agentgen.verify.findings import CATALOGUE, Findings, Rejected

MODEL = "class ModelNew: ..."
ROOT = Path(__file__).parents[2]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def look(source: str, own_work: OwnWork = OwnWork.STRICT) -> Findings:
    findings = Findings()
    screen(findings, Candidate(source=source, language=Language.CPP), own_work)
    return findings


def rejection(source: str, own_work: OwnWork = OwnWork.STRICT) -> Rejected:
    with pytest.raises(Rejected) as raised:
        look(source, own_work)
    return raised.value


def refused(source: str, said: str, own_work: OwnWork = OwnWork.STRICT) -> None:
    rejected = rejection(source, own_work)
    assert rejected.outcome is Outcome.SCREENED_OUT
    assert any(said in reason for reason in rejected.reasons), rejected.reasons
    assert all("\n" not in reason for reason in rejected.reasons)


def forward(body: str, imports: str = "import torch\nimport torch.nn.functional as F") -> str:
    indented = body.replace("\n", "\n" + 8 * " ")
    return f"{imports}\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n        {indented}\n"


# ---- honest ----------------------------------------------------------------------------------------------------------


def recorded() -> list[str]:
    """Every candidate that a model has written for the problems here."""
    replies = ROOT.glob("problems/*/recording/*.reply.md")
    blocks = [block for reply in replies for block in BLOCK.findall(reply.read_text())]
    return [block for block in blocks if "class ModelNew" in block]


def test_no_recorded_candidate_is_refused() -> None:
    sources = recorded()
    assert len(sources) >= 100
    for source in sources:
        look(source)


def test_no_honest_candidate_is_refused() -> None:
    files = sorted((ROOT / "tests" / "honest").glob("*/*.py"))
    assert len(files) >= 24
    for file in files:
        look(file.read_text())
    look(verify_problems.cpp_source())


@pytest.mark.parametrize(
    ("file", "constant"),
    [
        ("e2e/e2e_square.py", "CANDIDATE"),
        ("verify/test_verify_judge.py", "TRITON"),
        ("verify/test_verify_gpu.py", "CONV"),
        ("verify/test_verify_gpu.py", "TRITON"),
    ],
)
def test_no_candidate_that_passes_in_another_test_is_refused(file: str, constant: str) -> None:
    for node in ast.parse((ROOT / "tests" / file).read_text()).body:
        match node:
            case ast.Assign(targets=[ast.Name(id=name)], value=ast.Constant(value=str(source))) if name == constant:
                look(source.replace("{edit}", ""))
                return
            case _:
                pass
    pytest.fail(f"{file} has no {constant}")


LOAD_INLINE = """
import os
import torch
from torch import nn
from torch.utils.cpp_extension import load_inline

os.environ["TORCH_CUDA_ARCH_LIST"] = "9.0"
torch.backends.cuda.matmul.allow_tf32 = False
square = load_inline(name="square", cpp_sources="torch::Tensor square(torch::Tensor x);", cuda_sources=r'''
__global__ void k(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
''', functions=["square"])

class ModelNew(nn.Module):
    block: int = 256
    def __init__(self):
        super().__init__()
        self.eval()
        self.stream = torch.cuda.Stream()
    def forward(self, x):
        with torch.cuda.stream(self.stream):
            return square.square(torch.nn.functional.pad(x, (0, 1)).contiguous())
ModelNew.block = 512
"""


@pytest.mark.parametrize(
    "source",
    [
        MODEL,
        LOAD_INLINE,
        f"from agentgen import jit\nlib = jit.cpp('')\nlib.name = 3\n{MODEL}",
        f"import agentgen.jit as jit\n{MODEL}",
        f"from agentgen.jit import cpp\n{MODEL}",
        f"import agentgen\nlib = agentgen.jit.cpp('')\n{MODEL}",
        f"import agentgenerator\nimport torch, triton\n{MODEL}",
        "def ModelNew(*args): ...",
        "ModelNew = type('ModelNew', (), {})",
        "from torch.nn import ReLU as ModelNew",
    ],
)
def test_an_ordinary_candidate_passes(source: str) -> None:
    look(source)


def test_the_evidence_and_the_explanation() -> None:
    (line,) = look(f"\n\n{MODEL}\n").checks
    assert (line.name, line.passed) == ("screen", True)
    assert line.evidence == "no reach for the judge, the clock, threads or other processes in 4 lines"
    assert "Catches" in CATALOGUE["screen"]
    assert "Does not catch" in CATALOGUE["screen"]


# ---- not built -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("source", "said"),
    [
        ("class ModelNew:\n    def forward(self x): ...", "no Python: line 2: "),
        ("def f(:\n" + MODEL, "no Python: line 1: "),
        (MODEL + "\0", "null bytes"),
        ("x = " + "(" * 1000, "too many nested parentheses"),
        ("x = " + "-" * 100_000 + "1\n" + MODEL, "no Python"),
        ("x = y" + ".z" * 100_000 + "\n" + MODEL, "no Python"),
        ("```python\nclass ModelNew: ...\n```", "no Python: line 1"),
        ("", "defines no ModelNew at its top level"),
        ("class Model: ...", "defines no ModelNew"),
        ("def f():\n    class ModelNew: ...", "defines no ModelNew"),
    ],
)
def test_what_cannot_be_built(source: str, said: str) -> None:
    rejected = rejection(source)
    assert rejected.outcome is Outcome.BUILD_FAILED
    assert said in rejected.reasons[0]
    assert "\n" not in rejected.reasons[0]


def test_a_source_has_a_size_limit_in_bytes() -> None:
    filler = MAX_SOURCE_BYTES - len(MODEL) - 2
    look(f"{MODEL}\n#{'x' * filler}")
    assert rejection(f"{MODEL}\n#{'x' * filler}x").outcome is Outcome.SCREENED_OUT
    assert rejection(f"{MODEL}\n#{'é' * filler}").outcome is Outcome.SCREENED_OUT


# ---- the judge -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "named"),
    [
        ("import agentgen.verify.judge", "imports agentgen.verify.judge;"),
        ("from agentgen.verify import draws", "imports agentgen.verify.draws;"),
        ("from agentgen import sandbox", "imports agentgen.sandbox;"),
        ("from agentgen import jit, records", "imports agentgen.records;"),
        ("def f():\n    import agentgen.sandbox.wire", "imports agentgen.sandbox.wire;"),
        ("import torch, agentgen.errors", "imports agentgen.errors;"),
        ("import agentgen.jitter", "imports agentgen.jitter;"),
        ("import agentgen.jit.cache", "imports agentgen.jit.cache;"),
        ("from agentgen.jit import gcc", "imports agentgen.jit.gcc;"),
        ("import agentgen as a\na.sandbox.guest", "names agentgen.sandbox.guest;"),
        ("import sys\nsys.modules['agentgen.sandbox.guest.serve'].clock", "names agentgen.sandbox.guest.serve.clock;"),
    ],
)
def test_reaching_into_agentgen_is_screened_out(line: str, named: str) -> None:
    refused(f"{MODEL}\n{line}", f"line {2 + line.count(chr(10))}: {named} of agentgen a candidate may import jit")


def test_what_jit_offers_may_be_imported() -> None:
    assert set(offered_by_jit) | {"*"} == JIT


# ---- names -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "named"),
    [
        # processes
        ("import subprocess", "imports subprocess; a kernel works in the one process"),
        ("from torch import multiprocessing", "imports torch.multiprocessing; a kernel works"),
        ("import os; os.system('true')", "names os.system; a kernel works"),
        ("import os as o; o.posix_spawnp('a', [], {})", "names os.posix_spawnp;"),
        ("from os import execvpe as run", "imports os.execvpe;"),
        ("import os; os.fork()", "names os.fork;"),
        # threads
        ("import threading", "imports threading; the work is done when forward returns"),
        (
            "from concurrent.futures import ThreadPoolExecutor",
            "imports concurrent.futures.ThreadPoolExecutor; the work",
        ),
        ("import asyncio", "imports asyncio;"),
        # network
        ("import socket", "imports socket; nothing outside can be reached"),
        ("from urllib.request import urlopen", "imports urllib.request.urlopen;"),
        # endings
        ("import signal", "imports signal; to report a fault raise an exception"),
        ("import atexit", "imports atexit;"),
        ("import os; getattr(os, '_exit')(0)", "names os._exit;"),
        ("import os; os.kill(os.getppid(), 9)", "names os.kill;"),
        # frames and other objects
        ("import sys; sys._getframe(1)", "names sys._getframe; what called it"),
        ("import inspect; inspect.stack()[1].function", "names inspect.stack;"),
        ("from inspect import currentframe", "imports inspect.currentframe;"),
        ("import gc; gc.get_objects()", "names gc.get_objects;"),
        ("import gc; gc.get_referrers(3)", "names gc.get_referrers;"),
        ("import sys; sys.modules['__main__'].best", "names __main__.best;"),
        ("import ctypes; ctypes.pythonapi.PyFrame_New", "names ctypes.pythonapi.PyFrame_New;"),
        # code
        ("exec('x = 1')", "names exec; write imports and Python code out"),
        ("run = eval", "names eval;"),
        ("compile('1', '', 'eval')", "names compile;"),
        ("__import__('os')", "names __import__;"),
        ("import importlib; importlib.import_module('os')", "names importlib.import_module;"),
        ("import pickle", "imports pickle;"),
        # the dispatcher
        ("import torch; torch._C._DisableTorchDispatch()", "names torch._C._DisableTorchDispatch; torch is left as"),
        ("from torch.utils._python_dispatch import _pop_mode", "imports torch.utils._python_dispatch._pop_mode;"),
        ("from unittest.mock import patch", "imports unittest.mock.patch;"),
        # innards
        ("def f(): ...\nf.__code__ = (lambda: 1).__code__", "takes __code__; what called it"),
        ("import torch\ngetattr(torch.allclose, '__globals__')", "takes __globals__;"),
        ("def f(g): return g.f_back.f_locals", "takes f_back;"),
        ("object.__subclasses__()", "takes __subclasses__;"),
        ("class T:\n    def __torch_function__(self): ...", "defines __torch_function__;"),
        # paths
        ("text = '/proc/self/mem'", "has a path below /proc;"),
        ("pid = 1\nopen(f'/proc/{pid}/maps')", "has a path below /proc;"),
        (
            'text = r"""\n#include <cstdio>\nvoid f() { fopen("/proc/self/environ", "r"); }"""',
            "line 4: has a path below",
        ),
    ],
)
@pytest.mark.parametrize("own_work", OwnWork)
def test_a_reach_is_refused_under_every_policy(line: str, named: str, own_work: OwnWork) -> None:
    refused(f"{MODEL}\n{line}", named, own_work)
    assert rejection(f"{MODEL}\n{line}", own_work).reasons[0].startswith("line ")


@pytest.mark.parametrize(
    "line",
    [
        "import os; os.environ.get('TRITON_INTERPRET'); os.environ['A'] = 'b'; os.cpu_count(); os.path.join('a')",
        "import os.path, processes, threads, sockets, signals",
        "import ctypes; pointer = ctypes.c_void_p(3); ctypes.string_at(0)",
        "import sys; sys.version_info; sys.modules[__name__]; sys.modules.get('triton'); sys.stdout.flush()",
        "import inspect; inspect.getsource(print); inspect.signature(print)",
        "import gc; gc.collect()",
        "import importlib.metadata, importlib.util; importlib.util.find_spec('triton')",
        "import time; begin = time.perf_counter()",
        "import torch; torch.compile; torch.cuda.CUDAGraph(); torch._C._cuda_getCurrentRawStream(0)",
        "import re; re.compile('x')",
        "from triton import compile\ncompile('x')",
        "def exec(kernel): ...\nexec(3)",
        "def f(os): os.fork()",  # its own argument
        "import os\nos = 3\nos._exit",
        "class Filter:\n    def take(self): self.f_back = self.f_back + 1",
        "def f(g): return g.__name__, g.__class__, g.__dict__",
        "text = 'src/proc/self.h and /proc/cpuinfo'",
        "def f():\n    '''Reads no /proc/self/mem.'''",
        "code = signal = threading = 3",
        "import os; name = 'sys' + 'tem'; getattr(os, name)",  # hidden: for the jail
        "from . import subprocess",  # there is no package around it: fails when it is built
    ],
)
def test_near_misses_pass(line: str) -> None:
    look(f"{MODEL}\n{line}")


@pytest.mark.parametrize(
    "line",
    [
        "import ctypes; ctypes.CDLL('libcublas.so')",
        "from ctypes import cdll",
        "import ctypes; ctypes.cdll.LoadLibrary('x')",
        "import cffi",
    ],
)
def test_libraries_are_for_those_who_may_use_them(line: str) -> None:
    refused(f"{line}\n{MODEL}", "a library hides whose work it is")
    look(f"{line}\n{MODEL}", OwnWork.LIBRARY)


# ---- patches ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "target"),
    [
        ("import torch\ntorch.cuda.Event.elapsed_time = lambda *_: 0.1", "torch.cuda.Event.elapsed_time"),
        ("import torch.cuda as c\nc.synchronize = print", "torch.cuda.synchronize"),
        ("from torch import Tensor\nTensor.sum = len", "torch.Tensor.sum"),
        ("import time\ntime.perf_counter, x = print, 1", "time.perf_counter"),
        ("import torch\nsetattr(torch.cuda, 'synchronize', print)", "torch.cuda.synchronize"),
        ("import torch\nfor name in 'ab': setattr(torch.Tensor, name, print)", "torch.Tensor.*"),
        ("import torch\ndelattr(torch, 'allclose')", "torch.allclose"),
        ("import torch\ndel torch.allclose", "torch.allclose"),
        ("import torch\ntorch.nn.functional.conv2d.__defaults__ = ()", "torch.nn.functional.conv2d.__defaults__"),
        ("import torch\nvars(torch)['allclose'] = print", "torch"),
        ("import torch\ntorch.__dict__['allclose'] = print", "torch.__dict__"),
        ("import sys\nsys.modules['time'] = 3", "sys.modules"),
        ("import sys\nsys.modules['time'].time = print", "time.time"),
        ("import torch\ngetattr(torch, 'cuda').Event.record = print", "torch.cuda.Event.record"),
        ("import torch\nlib = torch.library.Library('aten', 'IMPL')", "aten"),
        ("import torch\ntorch.library.impl('aten::mm', 'CUDA')(print)", "aten::mm"),
    ],
)
def test_a_patch_is_refused(line: str, target: str) -> None:
    refused(f"{MODEL}\n{line}", f"replaces {target}; imported modules and classes stay as they are")


@pytest.mark.parametrize(
    "line",
    [
        "import torch\ntorch.backends.cudnn.allow_tf32 = True\ntorch.backends.cuda.matmul.allow_tf32 = False",
        "import torch\nsetattr(torch.backends.cudnn, 'benchmark', True)",
        "import torch\ntorch._dynamo.config.suppress_errors = True\ntorch._inductor.config.triton.cudagraphs = True",
        "import triton\ntriton.knobs.runtime.debug = False",
        "ModelNew.block = 3\nsetattr(ModelNew, 'warps', 4)\nvars(ModelNew)",
        "class A:\n    def f(self, torch): torch.allclose = 3; self.__dict__['x'] = 1; setattr(self, 'y', 2)",
        "import torch\ntable = {}\ntable['torch'] = torch.float32",
        "import torch\nlib = torch.library.Library('mine', 'DEF')",
        "import os\nos.environ['TORCH_CUDA_ARCH_LIST'] = '9.0'\ndel os.environ['A']",
    ],
)
def test_settings_and_its_own_things_are_no_patch(line: str) -> None:
    look(f"{MODEL}\n{line}")


# ---- torch at work in forward ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "function"),
    [
        ("return F.conv2d(x, self.w)", "torch.nn.functional.conv2d"),
        ("y = torch.relu(torch.matmul(x, self.w) + 1)\nreturn y", "torch.matmul"),
        ("x += 1 if x is None else torch.softmax(x, 0)", ""),
        ("with torch.no_grad():\n    return torch.bmm(x, x)", "torch.bmm"),
        ("if x.is_cuda:\n    y = 1\nreturn torch.mm(x, x)", "torch.mm"),
        ("if x.is_cuda:\n    return torch.mm(x, x)\nreturn torch.mm(x, x)", ""),
        ("try:\n    return self.kernel(x)\nexcept RuntimeError:\n    return F.conv2d(x, self.w)", ""),
        ("for i in range(0):\n    x = torch.mm(x, x)\nreturn x", ""),
        ("later = lambda: torch.mm(x, x)\nreturn x", ""),
        ("return self.ready and torch.mm(x, x)", ""),
        ("return x\ntorch.mm(x, x)", ""),
        ("return self.conv(F.pad(torch.cat([x, torch.empty_like(x)]), (1, 1)))", ""),
        ("torch = self\nreturn torch.mm(x, x)", ""),
    ],
)
def test_torch_s_functions_in_forward(body: str, function: str) -> None:
    if function:
        refused(forward(body), f"forward calls {function}, so torch would compute for the candidate")
        look(forward(body), OwnWork.LIBRARY)
    else:
        look(forward(body))


def test_torch_may_compute_elsewhere_than_in_forward() -> None:
    look("import torch\nclass ModelNew:\n    def prepare(self):\n        self.t = torch.matmul(self.w, self.w)\n")
    look("import torch\nclass Other:\n    def forward(self, x):\n        return torch.mm(x, x)\n" + MODEL)


def test_the_functions_of_torch_exist() -> None:
    torch = pytest.importorskip("torch")
    for name in COMPUTE:
        found = torch
        for part in name.split(".")[1:]:
            found = getattr(found, part)
        assert callable(found), name


# ---- all together ----------------------------------------------------------------------------------------------------


def test_reasons_come_in_the_order_of_the_text_and_not_all_of_them() -> None:
    reasons = rejection(MODEL + "\nimport subprocess" * 12).reasons
    assert [reason.split(":")[0] for reason in reasons] == [*(f"line {n}" for n in range(2, 8)), "and 6 more"]
    assert len(reasons) == MOST_REASONS + 1


def test_a_reason_is_one_line_of_bounded_length() -> None:
    for name in ("a\\n" * 300, "a" * 100_000):
        (reason,) = rejection(f"{MODEL}\nimport torch\nsetattr(torch, '{name}', 3)").reasons
        assert reason.startswith("line 3: replaces")
        assert "\n" not in reason
        assert len(reason) < 450


def test_an_expression_as_deep_as_the_parser_bears_is_read() -> None:
    refused(f"{MODEL}\nimport torch\nsetattr(torch, {'+'.join('a' * 2000)}, 3)", "replaces torch.*;")
    look(f"import torch\nclass ModelNew:\n    def forward(self, x):\n        return {'+'.join('x' * 2000)}")


def test_of_a_refused_import_the_uses_are_not_told_again() -> None:
    source = f"import os\n{MODEL}\ndef f():\n    signal.signal(1, 2)\nimport signal\nos._exit(signal.SIGHUP)"
    assert [reason.split(";")[0] for reason in rejection(source).reasons] == [
        "line 5: imports signal",
        "line 6: names os._exit",
    ]


def test_a_long_chain_is_one_name() -> None:
    """Not one for each of its links: reading would take time in the square of its length."""
    nodes = list(ast.walk(ast.parse("import torch\nx = torch" + ".a" * 2000)))
    assert [len(use.name) for use in Names(nodes).uses(nodes)] == [len("torch"), len("torch") + 2 * 2000]
