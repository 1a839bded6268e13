"""The jail as other users build it: root, root without CAP_SYS_ADMIN as in many a container, a plain user. By the
system's own Python, because ours may lie in a home that is closed to them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

PACKAGE = Path(__file__).parents[2] / "agentgen"
PYTHON = "/usr/bin/python3"
PROGRAM = """
import ctypes, json, os, sys, tempfile
from agentgen.sandbox.guest import limits, view
from agentgen.sandbox.guest.nursery import Nursery

limits.adopt_orphans()
folder = tempfile.mkdtemp()
os.chmod(folder, 0o711)
trial, scratch = os.path.join(folder, "trial"), os.path.join(folder, "guest")
for one in (trial, scratch):
    os.mkdir(one)
    if os.geteuid() == 0:
        os.chown(one, 65534, 65534)
out, told = os.pipe()

def become_guest():
    open(os.path.join(scratch, "mine"), "w").close()
    status = dict(line.split(":", 1) for line in open("/proc/self/status"))
    says = [os.getpid(), os.getuid(), int(status["CapEff"], 16), sorted(os.listdir("/")), os.path.exists("/var")]
    os.write(told, json.dumps(says).encode())
    ctypes.CDLL(None).abort()

nursery = Nursery(trial)
nursery.prepare()
born = nursery.bear(scratch, become_guest, ())
print(json.dumps([nursery.jail, born.wait(), json.loads(os.read(out, 4096)), view.readable()]))
"""
CLOSED = """
import os, tempfile
from agentgen.sandbox.guest import limits
from agentgen.sandbox.guest.nursery import Nursery

limits.adopt_orphans()
trial = os.path.join(tempfile.mkdtemp(), "trial")  # in a folder that is root's alone
os.mkdir(trial)
nursery = Nursery(trial)
nursery.prepare()
print(nursery.jail)
"""
USERS = {
    "root": (),
    "root without CAP_SYS_ADMIN": ("--bounding-set=-sys_admin", "--inh-caps=-sys_admin"),
    "a user": ("--reuid=12345", "--regid=12345", "--clear-groups"),
}


@pytest.fixture(scope="module")
def package() -> Iterator[Path]:
    """A copy that everybody may read."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not Path(PYTHON).exists() or shutil.which("setpriv") is None:
        pytest.skip(f"needs {PYTHON} and setpriv")
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        shutil.copytree(PACKAGE, Path(folder) / "agentgen", ignore=shutil.ignore_patterns("__pycache__"))
        yield Path(folder)


@pytest.mark.parametrize("user", USERS)
def test_whoever_builds_it_it_is_a_jail(package: Path, user: str) -> None:
    command = ["setpriv", *USERS[user], PYTHON, "-c", PROGRAM]
    variables = {"PATH": os.defpath, "PYTHONPATH": str(package), "TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    jail, status, says, readable = json.loads(ran.stdout)
    if jail.startswith("none"):
        pytest.skip(f"{jail}, on {sys.platform} for {user}")
    expected: Any = [2, 12345 if user == "a user" else 65534, 0]
    assert says[:3] == expected
    # Besides, a machine may preload a library of its own from anywhere: /check was seen on one.
    assert set(says[3]) <= {"dev", "proc", "tmp"} | {path.split("/")[1] for path in readable}
    assert not {"/", "/home", "/root", "/tmp", "/var"} & set(readable)
    assert says[4] is False
    assert os.WTERMSIG(status) == 6, "abort() is what it was: the guest is not process 1"


def test_a_jail_that_cannot_be_built_is_refused_at_once_and_says_why(package: Path) -> None:
    command = ["setpriv", *USERS["root without CAP_SYS_ADMIN"], PYTHON, "-c", CLOSED]
    variables = {"PATH": os.defpath, "PYTHONPATH": str(package), "TMPDIR": "/tmp", "PYTHONDONTWRITEBYTECODE": "1"}
    ran = subprocess.run(command, env=variables, capture_output=True, text=True, timeout=60, check=False)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("none: plain processes, because the kernel refuses a jail: ")
