"""Errors as the real compilers word them, found again in the candidate's lines."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from triton.compiler import CompilationError

from agentgen.sandbox.guest import failure
from agentgen.sandbox.guest.candidate import load_module
from agentgen.search.located import MOST, located, raised

HEAD = "import torch\nfrom agentgen import jit\n\n"


def said(source: str, folder: Path) -> str:
    """Returns what a trial has of a candidate whose module raises: reason and traceback."""
    try:
        load_module(source, str(folder / "candidate.py"), "candidate_located")
    except (RuntimeError, NameError, TypeError, CompilationError) as error:
        told = failure.describe(error, "build")["failure"]
        return f"{told['message']}\n{told['traceback']}"
    pytest.fail("it was to fail")


def numbered(source: str, *texts: str) -> list[int]:
    """Returns on which lines of `source` these texts stand."""
    lines = source.split("\n")
    return [next(i for i, line in enumerate(lines, 1) if text in line) for text in texts]


@pytest.mark.usefixtures("nvrtc")
def test_nvrtc_counts_from_the_text_that_it_is_given(tmp_path: Path) -> None:
    source = HEAD + (
        'SRC = r"""\n#include <cuda_fp16.h>\n'
        "__device__ float helper() { return bar(1); }\n"
        'extern "C" __global__ void scale(const float* x, float* y, int n) {\n'
        "  int i = threadIdx.x\n  if (i < n) y[i] = foo(x[i]);\n  y[0] = 1 / nothing;\n}\n"
        '"""\n\nkernels = jit.cuda(SRC, options=("-DN=1",))\n'
    )
    bar, semicolon, nothing = numbered(source, "bar(1)", "foo(x[i])", "nothing")
    assert located(source, said(source, tmp_path)) == [
        f'line {bar}: error: identifier "bar" is undefined\n{bar} | __device__ float helper() {{ return bar(1); }}',
        f'line {semicolon}: error: expected a ";"\n{semicolon} | if (i < n) y[i] = foo(x[i]);',
        f'line {nothing}: error: identifier "nothing" is undefined\n{nothing} | y[0] = 1 / nothing;',
    ]


@pytest.mark.usefixtures("nvrtc")
def test_what_nvrtc_says_below_an_error_is_renumbered_too(tmp_path: Path) -> None:
    source = HEAD + (
        'k = jit.cuda(r"""\ntemplate <typename T> __device__ T twice(T x) {\n  return x.doubled();\n}\n'
        'extern "C" __global__ void f(float* y) {\n  y[0] = twice(y[1]);\n}\n""")\n'
    )
    inside, call = numbered(source, "doubled", "twice(y[1])")
    (found,) = located(source, said(source, tmp_path))
    assert found.startswith(f"line {inside}: error: expression must have class type but it has type")
    assert f'  detected during instantiation of "T twice(T) [with T=float]" at line {call}\n' in found
    assert found.endswith(f"\n{inside} | return x.doubled();")


@pytest.mark.usefixtures("nvrtc")
def test_inline_assembly_that_ptxas_refuses(tmp_path: Path) -> None:
    source = HEAD + (
        'k = jit.cuda(r"""\nextern "C" __global__ void f(float* y) {\n  asm volatile("bogus.op;");\n}\n""")\n'
    )
    (line,) = numbered(source, "bogus")
    (found,) = located(source, said(source, tmp_path))
    assert found.startswith(f"line {line}: error: ")
    assert "Not a name of any known instruction: 'bogus'" in found
    assert found.endswith(f'{line} | asm volatile("bogus.op;");')


@pytest.mark.usefixtures("nvrtc", "gpp")
@pytest.mark.parametrize("kind", ["cuda", "cpp"])
@pytest.mark.parametrize(
    "line",
    ["\tx[0] =\tfoo(1);", "  x[0] = " + "x[1] + " * 60 + "foo(1);", "  x[0] = foo(1); // é"],
    ids=["tabs", "longer than is kept", "letters of two bytes"],
)
def test_lines_that_compilers_show_otherwise(kind: str, line: str, tmp_path: Path) -> None:
    mark = " __global__" if kind == "cuda" else ""
    source = f'{HEAD}k = jit.{kind}(r"""extern "C"{mark} void f(float* x) {{\n{line}\n}}\n""")\n'
    (found,) = located(source, said(source, tmp_path))
    assert found.startswith("line 5: error: ")
    assert found.endswith(f"\n5 | {line.strip()}")


@pytest.mark.usefixtures("gpp")
def test_gpp_counts_from_the_text_that_it_is_given(tmp_path: Path) -> None:
    source = HEAD + (
        'lib = jit.cpp("""#include <cstdint>\nextern "C" void f(float* x, int64_t n) {\n'
        "  for (int64_t i = 0; i < n; ++i) x[i] = foo(i);\n  y = 1;\n}\n"
        '""", options=("-ffast-math",))\n'
    )
    foo, y = numbered(source, "foo(i)", "y = 1")
    assert located(source, said(source, tmp_path)) == [
        f"line {foo}: error: 'foo' was not declared in this scope\n"
        f"{foo} | for (int64_t i = 0; i < n; ++i) x[i] = foo(i);",
        f"line {y}: error: 'y' was not declared in this scope\n{y} | y = 1;",
    ]


@pytest.mark.usefixtures("gpp")
def test_of_several_texts_the_one_that_was_compiled(tmp_path: Path) -> None:
    broken = 'extern "C" void f(int* x) {\n  x[0] = foo(1);\n}\n'
    whole = "static int foo(int n) { return n; }\n"
    source = HEAD + f'GOOD = """{whole}{broken}"""\na = jit.cpp(GOOD)\nBAD = """{broken}"""\nb = jit.cpp(BAD)\n'
    line = source.split("\n").index("  x[0] = foo(1);", 7) + 1
    text = said(source, tmp_path)
    assert located(source, text) == [
        f"line {line}: error: 'foo' was not declared in this scope\n{line} | x[0] = foo(1);"
    ]
    reason = text.split("Traceback")[0]
    assert located(source, reason), "by what g++ shows of the line: the other text has another one there"
    alike = source.replace(whole, "\n")
    assert located(alike, reason.replace("cpp:2", "cpp:3")), "three lines only in one of them"
    twice = HEAD + f'A = """{broken}"""\nB = """{broken} """\na = jit.cpp(A)\nb = jit.cpp(B)\n'
    assert located(twice, reason) == [], "either may be meant"
    assert located(twice, said(twice, tmp_path)), "the traceback says which"


@pytest.mark.usefixtures("gpp")
def test_a_text_that_is_put_together_is_not_guessed_at(tmp_path: Path) -> None:
    source = HEAD + 'N = 3\nlib = jit.cpp(f"""\nextern "C" void f(int* x) {{ x[{N}] = foo(1); }}\n""")\n'
    assert located(source, said(source, tmp_path)) == []
    (entry,) = raised(source, said(source, tmp_path))
    (line,) = numbered(source, "lib = jit")
    assert entry.startswith(
        f"line {line}: in <module>: agentgen.jit.errors.CompileError: candidate.cpp does not compile"
    )


@pytest.mark.usefixtures("gpp")
def test_at_most_so_many_errors(tmp_path: Path) -> None:
    lines = "\n".join(f"line {i}" for i in range(1, MOST + 4))
    text = "\n".join(f"candidate.cpp:{i}:1: error: no\n    {i} | line {i}\n      | ^" for i in range(1, MOST + 4))
    found = located(f'{HEAD}lib = jit.cpp("""{lines}""")\n', text)
    assert len(found) == MOST + 1
    assert found[-1] == "and 3 further errors"


def test_a_traceback_is_cut_to_the_candidates_own_frames(tmp_path: Path) -> None:
    source = HEAD + "def first(x):\n    return x + missing\n\n\ndef second(x):\n    return [first(x)]\n\n\nsecond(1)\n"
    (line,) = numbered(source, "missing")
    assert raised(source, said(source, tmp_path)) == [
        f"line {line}: in first: NameError: name 'missing' is not defined\n{line} | return x + missing"
    ]


def test_what_is_no_python() -> None:
    assert located("x = = 1\n", "the source is no Python: line 1: invalid syntax") == [
        "line 1: error: invalid syntax\n1 | x = = 1"
    ]


TRITON = """
import torch
import triton
import triton.language as tl


@triton.jit
def helper(x):
    return x + tl.foo(x)


@triton.autotune(configs=[triton.Config({}, num_warps=4)], key=["n"])
@triton.jit
def outer(x_ptr, n,
          BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    # loads
    tl.store(x_ptr + at, helper(tl.load(x_ptr + at)), mask=at < n)


@triton.jit
def ragged(x_ptr, n, BLOCK: tl.constexpr):
    at = tl.arange(0, 100)
    tl.store(x_ptr + at, 1.0, mask=at < n)
"""

COMPILE = """

from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

kernel = {kernel}
signature = {{"x_ptr": "*fp32", "n": "i32", "BLOCK": "constexpr"}}
triton.compile(ASTSource(fn=kernel, signature=signature, constexprs={{"BLOCK": 128}}), target=GPUTarget("cuda", 90, 32))
"""


def test_tritons_compiler_counts_from_the_def(tmp_path: Path) -> None:
    source = TRITON + COMPILE.format(kernel="ragged")
    text = said(source, tmp_path)
    (line,) = numbered(source, "tl.arange(0, 100)")
    expected = f"line {line}: error: arange's range must be a power of 2\n{line} | at = tl.arange(0, 100)"
    assert located(source, text) == [expected]
    assert located(source, text.split("Traceback")[0]) == [expected], "as in trials without a traceback"


def test_an_error_of_tritons_passes_is_on_stderr(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    store = "tl.store(x_ptr + at, 1.0, mask=at < n)"
    asm = 'tl.inline_asm_elementwise("add $0, $1, $1;", "=r,r", [at], dtype=tl.int32, is_pure=True, pack=3)'
    source = TRITON.replace("tl.arange(0, 100)", "tl.arange(0, BLOCK)").replace(store, f"tl.store(x_ptr + at, {asm})")
    reason = said(source + COMPILE.format(kernel="ragged"), tmp_path)
    (line,) = numbered(source, "pack=3")
    (entry,) = located(source, f"{reason}\n{capfd.readouterr().err}")
    assert entry.startswith(f"line {line}: error: number of input elements 128 must be a multiple of the op's packed")


def test_an_error_in_a_function_that_a_triton_kernel_calls(tmp_path: Path) -> None:
    source = TRITON + COMPILE.format(kernel="outer.fn")
    inside, call = numbered(source, "tl.foo(x)", "helper(tl.load")
    assert located(source, said(source, tmp_path)) == [
        f"line {call}: called from here\n{call} | tl.store(x_ptr + at, helper(tl.load(x_ptr + at)), mask=at < n)",
        f"line {inside}: error: AttributeError(\"module 'triton.language' has no attribute 'foo'\")\n"
        f"{inside} | return x + tl.foo(x)",
    ]


INTERPRET = """
import json, sys
import triton
from agentgen.sandbox.guest import failure, interpreter
from agentgen.sandbox.guest.candidate import load_module

interpreter.install()
try:
    load_module(open("source.py").read(), "candidate.py")
except Exception as error:
    print(json.dumps(failure.describe(error, "run")["failure"]))
"""


def test_tritons_interpreter_raises_in_the_candidates_lines(tmp_path: Path) -> None:
    source = TRITON + "\n\nouter[(1,)](torch.zeros(128), 128, BLOCK=128)\n"
    (tmp_path / "source.py").write_text(source)
    environment = {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", INTERPRET]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True)
    told = json.loads(done.stdout.splitlines()[-1])
    inside, call, launch = numbered(source, "tl.foo(x)", "helper(tl.load", "outer[(1,)]")
    assert [entry.split("\n")[0] for entry in raised(source, f"{told['message']}\n{told['traceback']}")] == [
        f"line {inside}: in helper: AttributeError: module 'triton.language' has no attribute 'foo'",
        f"line {call}: in outer",
        f"line {launch}: in <module>",
    ]


def test_a_call_under_another_name_is_not_taken_for_the_next_best() -> None:
    texts = 'B = """// b\nhelper\n"""\nA = """// a\nhelper\n"""\n'
    source = f"{HEAD}{texts}mk = jit.cpp\nx = mk(B)\ny = jit.cpp(A)\n"
    (line,) = numbered(source, "mk(B)")
    error = "candidate.cpp:2:1: error: no\n    2 | helper\n      | ^\n"
    where = f'Traceback (most recent call last):\n  File "candidate.py", line {line}, in <module>\n    x = mk(B)\n'
    assert located(source, f"{error}{where}agentgen.jit.errors.CompileError: no\n") == []
    assert located(source, error), "without a traceback: the only text that is seen to be compiled"


def test_lines_of_included_headers_keep_their_numbers() -> None:
    lines = "".join(f"line {i}\n" for i in range(1, 9))
    source = f'{HEAD}k = jit.cuda(r"""{lines}""")\n'
    detail = "detected during instantiation at line 3 of /usr/include/invoke.h\n            called at line 3"
    said = f"candidate.cu(2): error: no\n  line 2\n  ^\n          {detail}\n"
    (found,) = located(source, said)
    assert "at line 3 of /usr/include/invoke.h" in found
    assert "called at line 6" in found
