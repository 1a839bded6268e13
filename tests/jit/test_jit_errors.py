"""What is left of a compiler's log in the message: its errors, with the lines of the source."""

from __future__ import annotations

import pytest

from agentgen import jit


@pytest.mark.usefixtures("gpp")
def test_cpp_error_shows_the_lines_of_the_source() -> None:
    source = '#include <vector>\nextern "C" void f(float* x) {\n  int unused = 1;\n  x[0] = missing;\n  broken(\n}\n'
    with pytest.raises(jit.CompileError) as caught:
        jit.cpp(source, options=["-Wall"])
    message = str(caught.value)
    assert "candidate.cpp:4:10: error: 'missing' was not declared" in message
    assert "4 |   x[0] = missing;\n      |          ^~" in message
    assert "warning" not in message
    assert "warning" in caught.value.log
    assert len(message.splitlines()) <= 40


@pytest.mark.usefixtures("gpp")
def test_cpp_reports_what_cannot_be_linked() -> None:
    with pytest.raises(jit.CompileError, match=r"undefined reference to `elsewhere\(\)'"):
        jit.cpp('void elsewhere();\nextern "C" void f() { elsewhere(); }')


@pytest.mark.usefixtures("nvrtc")
def test_cuda_error_shows_the_lines_of_the_source() -> None:
    source = 'extern "C" __global__ void f(float* x, int n) {\n  int unused;\n  x[n] = missing;\n  broken(x);\n}\n'
    with pytest.raises(jit.CompileError) as caught:
        jit.cuda(source)
    message = str(caught.value)
    assert 'candidate.cu(3): error: identifier "missing" is undefined\n    x[n] = missing;\n           ^' in message
    assert 'candidate.cu(4): error: identifier "broken" is undefined' in message
    assert message.startswith("candidate.cu does not compile (NVRTC), 2 error(s):")
    assert "unused" not in message
    assert "unused" in caught.value.log


@pytest.mark.usefixtures("nvrtc")
def test_cuda_many_errors_stay_a_short_message() -> None:
    lines = "\n".join(f"  x[{i}] = missing{i};" for i in range(90))
    with pytest.raises(jit.CompileError, match=r"more lines in \.log") as caught:
        jit.cuda(f'extern "C" __global__ void f(float* x) {{\n{lines}\n}}')
    assert len(str(caught.value).splitlines()) <= 40
