"""Where a guest may write: real processes that confine themselves and try."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

PRELUDE = """
import ctypes, errno, json, os, socket, subprocess, sys
from agentgen.sandbox.guest.landlock import write_only_below
inside, outside, *more = sys.argv[1:]
def tried(action, *arguments):
    try:
        action(*arguments)
    except OSError as error:
        return errno.errorcode[error.errno]
    return "fine"
def write(path):
    with open(path, "r+") as file:
        file.write("x")
def create(path):
    os.close(os.open(path, os.O_WRONLY | os.O_CREAT))
def on_each(folder):
    return {
        "write": tried(write, f"{folder}/file"),
        "create": tried(create, f"{folder}/new"),
        "make a folder": tried(os.mkdir, f"{folder}/new folder"),
        "link": tried(os.symlink, "file", f"{folder}/link"),
        "fifo": tried(os.mkfifo, f"{folder}/fifo"),
        "rename": tried(os.rename, f"{folder}/file", f"{folder}/renamed"),
        "remove": tried(os.remove, f"{folder}/old"),
        "remove a folder": tried(os.rmdir, f"{folder}/empty"),
        "read": tried(lambda: open(f"{folder}/kept").read()),
        "list": tried(os.listdir, folder),
    }
assert ctypes.CDLL(None).prctl(38, 1, 0, 0, 0) == 0
abi = write_only_below([inside, "/dev/null"])
found = {}
"""
POSTLUDE = """
print(json.dumps(found))
"""
PROBE = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
abi = libc.syscall(444, None, ctypes.c_size_t(0), 1)
print(abi if abi > 0 else os.strerror(ctypes.get_errno()))
"""


@dataclass
class Ground:
    """A folder where writing will be allowed and one where it will not."""

    inside: Path
    outside: Path
    abi: int = 0

    def tried(self, body: str, *more: str) -> dict[str, Any]:
        """What a confined process finds."""
        done = self.run(body, *more)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def run(self, body: str, *more: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-B", "-c", PRELUDE + body + POSTLUDE, str(self.inside), str(self.outside), *more]
        return subprocess.run(command, capture_output=True, text=True, timeout=60)

    def needs(self, abi: int) -> None:
        if self.abi < abi:
            pytest.skip(f"needs Landlock's ABI {abi}, here is {self.abi}")


@pytest.fixture(scope="module")
def abi() -> int:
    if sys.platform != "linux":
        pytest.skip(f"no Landlock on {sys.platform}")
    found = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True, timeout=60).stdout.strip()
    if not found.isdigit():
        pytest.skip(f"the kernel has no Landlock here: {found}")
    return int(found)


@pytest.fixture
def ground(tmp_path: Path, abi: int) -> Ground:
    for name in ("inside", "outside"):
        (tmp_path / name / "empty").mkdir(parents=True)
        (tmp_path / name / "other").mkdir()
        for file in ("file", "old", "kept"):
            (tmp_path / name / file).write_text("kept")
    return Ground(tmp_path / "inside", tmp_path / "outside", abi)


@pytest.fixture
def listening() -> Iterator[str]:
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(f"\0agentgen-{os.getpid()}")
        one.listen()
        yield one.getsockname()[1:].decode()


def test_everything_is_allowed_inside(ground: Ground) -> None:
    found = ground.tried("found = on_each(inside)")
    assert set(found.values()) == {"fine"}


def test_outside_only_reading_is_allowed(ground: Ground) -> None:
    before = sorted(ground.outside.iterdir())
    found = ground.tried("found = on_each(outside)")
    assert {found.pop(name) for name in ("read", "list")} == {"fine"}
    assert set(found.values()) == {"EACCES"}
    assert sorted(ground.outside.iterdir()) == before
    assert (ground.outside / "file").read_text() == "kept"


def test_a_file_outside_cannot_be_truncated(ground: Ground) -> None:
    ground.needs(3)
    found = ground.tried("""
for name in ("inside", "outside"):
    found[name] = tried(os.truncate, f"{globals()[name]}/file", 0)
found["opened"] = tried(lambda: os.open(f"{outside}/file", os.O_RDONLY | os.O_TRUNC))
""")
    assert found == {"inside": "fine", "outside": "EACCES", "opened": "EACCES"}
    assert (ground.outside / "file").read_text() == "kept"


def test_files_move_between_folders_inside_and_not_across_the_border(ground: Ground) -> None:
    ground.needs(2)
    found = ground.tried("""
found["within"] = tried(os.rename, f"{inside}/file", f"{inside}/other/file")
found["out"] = tried(os.rename, f"{inside}/old", f"{outside}/other/old")
found["in"] = tried(os.rename, f"{outside}/file", f"{inside}/taken")
found["linked"] = tried(os.link, f"{outside}/file", f"{inside}/linked")
""")
    assert found.pop("within") == "fine"
    assert set(found.values()) <= {"EACCES", "EXDEV"}


def test_a_way_out_by_a_link_is_refused(ground: Ground) -> None:
    (ground.inside / "out").symlink_to(ground.outside)
    found = ground.tried(
        "found = {'link': tried(write, f'{inside}/out/file'), 'dots': tried(create, f'{inside}/../x')}"
    )
    assert found == {"link": "EACCES", "dots": "EACCES"}


def test_a_file_that_is_listed_can_be_written(ground: Ground) -> None:
    found = ground.tried("""
found = {name: tried(os.open, f"/dev/{name}", os.O_WRONLY | os.O_TRUNC) for name in ("null", "full")}
found["shell"] = subprocess.run(["/bin/sh", "-c", "echo x > /dev/null"]).returncode
""")
    assert found == {"null": "fine", "full": "EACCES", "shell": 0}


def test_the_kernel_s_abi_is_returned(ground: Ground) -> None:
    assert ground.tried("found['abi'] = abi") == {"abi": ground.abi}


def test_what_it_starts_is_confined_too(ground: Ground) -> None:
    found = ground.tried("""
import threading
def shell(target):
    return subprocess.run(["/bin/sh", "-c", f"echo x > '{target}'"], stderr=subprocess.DEVNULL).returncode == 0
found["programs"] = [shell(f"{inside}/made"), shell(f"{outside}/made")]
child = os.fork()
if child == 0:
    os._exit(7 if tried(create, f"{outside}/made") == "EACCES" else 1)
found["fork"] = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
thread = threading.Thread(target=lambda: found.update(thread=tried(create, f"{outside}/made")))
thread.start()
thread.join()
""")
    assert found == {"programs": [True, False], "fork": 7, "thread": "EACCES"}
    assert not (ground.outside / "made").exists()


def test_tcp_is_refused(ground: Ground) -> None:
    ground.needs(4)
    found = ground.tried("""
found["bind"] = tried(socket.socket().bind, ("127.0.0.1", 0))
found["connect"] = tried(socket.socket().connect, ("127.0.0.1", 9))
""")
    assert found == {"bind": "EACCES", "connect": "EACCES"}


def test_abstract_sockets_and_processes_outside_are_out_of_reach(ground: Ground, listening: str) -> None:
    ground.needs(6)
    found = ground.tried(
        """
found["socket"] = tried(socket.socket(socket.AF_UNIX).connect, "\\0" + more[0])
found["signal"] = tried(os.kill, int(more[1]), 0)
child = subprocess.Popen(["/bin/sleep", "60"])
child.kill()
found["its child"] = child.wait()
""",
        listening,
        str(os.getpid()),
    )
    assert found == {"socket": "EPERM", "signal": "EPERM", "its child": -9}


def test_it_can_be_ended_from_outside(ground: Ground) -> None:
    command = [sys.executable, "-B", "-c", PRELUDE + "print('there', flush=True)\nimport time\ntime.sleep(60)"]
    with subprocess.Popen([*command, str(ground.inside), str(ground.outside)], stdout=subprocess.PIPE) as guest:
        assert guest.stdout
        assert guest.stdout.readline() == b"there\n"
        guest.terminate()
        assert guest.wait(10) == -15


def test_a_folder_that_is_not_there_is_an_error(ground: Ground) -> None:
    ground.inside = ground.inside / "nowhere"
    assert "FileNotFoundError" in ground.run("").stderr
