"""Runs the program `interpreted` once under Triton's interpreter and tells of each of its checks."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

CHECKS = Path(__file__).with_name("interpreted")
ROOT = Path(__file__).parents[2]
NAMES = [
    name
    for module in ("programs.py", "arithmetic.py")
    for name in re.findall(r"^def (check_\w+)", (CHECKS / module).read_text(encoding="utf-8"), re.MULTILINE)
]
REFUSALS = """
import json, sys
from agentgen.sandbox.guest import interpreter

def refusal():
    try:
        interpreter.install()
    except Exception as error:
        return f"{type(error).__name__}: {error}"

assert "triton" not in sys.modules
sys.modules["triton"] = None
missing = refusal()
del sys.modules["triton"]
json.dump({"missing": missing, "compiling": refusal()}, sys.stdout)
"""

needs_triton = pytest.mark.skipif(
    importlib.util.find_spec("triton") is None, reason="triton is not installed, so there is no interpreter to patch"
)


def python(*arguments: str, interpret: bool = True) -> subprocess.CompletedProcess[str]:
    environment = {key: value for key, value in os.environ.items() if key != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
    if interpret:
        environment["TRITON_INTERPRET"] = "1"
    command = [sys.executable, *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@cache
def report() -> dict[str, str | None]:
    ended = python(str(CHECKS))
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@needs_triton
@pytest.mark.parametrize("name", NAMES)
def test_interpreted_kernel(name: str) -> None:
    problem = report()[name]
    assert problem is None, problem


@cache
def refusals() -> dict[str, str]:
    """What `install` says without triton, and then with a triton that was imported to compile."""
    ended = python("-c", REFUSALS, interpret=False)
    assert ended.returncode == 0, ended.stderr
    return json.loads(ended.stdout)


@needs_triton
def test_install_refuses_a_triton_that_compiles() -> None:
    said = "RuntimeError: Triton was imported to compile. Set TRITON_INTERPRET=1 before anything imports triton."
    assert refusals()["compiling"] == said


def test_without_triton_the_module_loads_and_install_says_what_to_do() -> None:
    assert re.match(
        r"ImportError: Triton's interpreter cannot be loaded: .* Install triton 3\.6", refusals()["missing"]
    )
