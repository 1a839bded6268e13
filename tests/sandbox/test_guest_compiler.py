"""What a zygote has Triton do before any guest: it leaves nothing behind that a fork, CUDA or a cache would mind."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

PROGRAM = """
import os, re, warnings
from pathlib import Path
import torch, triton
from agentgen.sandbox.guest import compiler

def threads():
    return int(re.search(r"Threads:\\s*(\\d+)", Path("/proc/self/status").read_text())[1])

built, compile = [], triton.compile
triton.compile = lambda *args, **options: built.append(compile(*args, **options))
before = threads()
warnings.simplefilter("error")
compiler.warm_up("sm_90a")
assert built[0].asm["cubin"]
assert threads() == before, "threads do not survive a fork"
assert not torch.cuda.is_initialized()
print(os.listdir(os.environ["HOME"]))
"""


def test_warming_up_leaves_no_thread_no_context_and_no_file(tmp_path: Path) -> None:
    variables = {**os.environ, "HOME": str(tmp_path), "TMPDIR": str(tmp_path), "TRITON_INTERPRET": "0"}
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=variables, capture_output=True, text=True, timeout=120, check=False
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.strip() == "[]"
    assert ran.stderr == ""
