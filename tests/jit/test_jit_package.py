"""An exported kernel carries the package along under another name, to where there is no agentgen."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from agentgen import jit

USE = """
import sys
import torch
from kernel_of_somebody import carried as jit
x = torch.ones(2)
jit.cpp('extern "C" void add(float* x, float a) { x[0] += a; }', options="-O0").add(x, 1.0)
print(x.tolist(), [name for name in sys.modules if name.split(".")[0] == "agentgen"])
"""


@pytest.mark.usefixtures("gpp")
def test_folder_carried_along_under_another_name_needs_no_agentgen(tmp_path: Path) -> None:
    shutil.copytree(Path(jit.__file__).parent, tmp_path / "kernel_of_somebody" / "carried")
    script = tmp_path / "use.py"
    script.write_text(USE)
    variables = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run([sys.executable, str(script)], env=variables, capture_output=True, text=True, timeout=60)
    assert done.stdout == "[2.0, 1.0] []\n", done.stderr
