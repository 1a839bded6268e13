"""Faults of the world outside: each ends in one line that names it, the right exit code, and nothing half-written."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from cli_program import Ended, agentgen_program

from agentgen.cli.main import run

REFERENCE = """
import torch
from torch import nn


class Model(nn.Module):
    def forward(self, x):
        return x.exp()


def get_inputs():
    return [torch.rand(64, 64)]


def get_init_inputs():
    return []
"""


def refused(ended: Ended, says: str) -> None:
    """Exit 2, the fault in the last line of stderr and in the one JSON object, and no traceback."""
    assert ended.code == 2, ended.stderr
    assert says in ended.answer["error"]
    assert ended.answer["exit_code"] == 2
    assert ended.stderr.splitlines()[-1] == f"agentgen: {ended.answer['error']}"
    assert "Traceback" not in ended.stderr


# ---- paths, and who reads --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", ["~nobody-of-that-name/kernel.py", "x" * 5000])
@pytest.mark.parametrize(
    "command",
    [["reverify"], ["verify", "conv2d"], ["report"], ["failures", "list", "--dataset"], ["problems", "import"]],
    ids=" ".join,
)
def test_a_path_that_cannot_be(command: list[str], path: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A home of nobody, a name that no file system takes: neither is a fault of ours."""
    found = run([*command, path, "--json"])
    said = capsys.readouterr()
    if command[0] == "failures" and path[0] == "~":
        assert found == 0  # a dataset that is not there yet
        return
    assert (found, "Traceback" in said.err) == (2, False), said.err
    assert json.loads(said.out)["exit_code"] == 2


@pytest.mark.parametrize("option", ["--json", "--markdown"])
def test_a_reader_who_has_gone_is_no_rejection(option: str, tmp_path: Path) -> None:
    """`agentgen ... | head -1`: 1 would say that the kernel was rejected."""
    line = [sys.executable, "-c", "from agentgen.cli.main import main; main()", "leaderboard", option]
    with subprocess.Popen(line, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
        assert program.stdout
        program.stdout.close()
        assert program.stderr
        said = program.stderr.read()
    assert program.returncode == 2
    assert said.splitlines()[-1] == "agentgen: stdout cannot be written: whoever read it has gone"
    assert "Traceback" not in said


# ---- references and candidates ---------------------------------------------------------------------------------------

BAD_REFERENCES = {
    "does not import": ("import no_such_module_anywhere\n" + REFERENCE, "No module named 'no_such_module_anywhere'"),
    "no Python": (REFERENCE + "def broken(:\n", "reference.py, line 17: no Python:"),
    "raises": (REFERENCE.replace("x.exp()", "x.exp().no_such_method()"), "no attribute 'no_such_method'"),
    "cannot be judged": (REFERENCE.replace("x.exp()", "x * 0"), "zeros passes every value family"),
}


@pytest.mark.parametrize("case", BAD_REFERENCES)
def test_a_reference_of_no_use(case: str, tmp_path: Path) -> None:
    text, says = BAD_REFERENCES[case]
    (tmp_path / "reference.py").write_text(text)
    ended = agentgen_program(
        "solve", "reference.py", "--device", "cpu", "--model", "mailbox", "--json", folder=tmp_path
    )
    refused(ended, says)
    assert not list(tmp_path.glob("results/runs/*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("source", "outcome", "says"),
    [
        ("class Model: ...\n", "BUILD_FAILED", "ModelNew"),
        ("class ModelNew(:\n", "BUILD_FAILED", "line 1"),
        ("raise ValueError('by intention')\nclass ModelNew: ...\n", "BUILD_FAILED", "by intention"),
    ],
)
def test_a_candidate_at_fault_is_rejected_with_1(source: str, outcome: str, says: str, tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    (tmp_path / "kernel.py").write_text(source)
    ended = agentgen_program(
        "verify", "--reference", "reference.py", "kernel.py", "--device", "cpu", "--json", folder=tmp_path
    )
    assert ended.code == 1, ended.stderr
    assert ended.answer["outcome"] == outcome
    assert not ended.answer["accepted"]
    assert any(says in reason for reason in ended.answer["reasons"])


# ---- devices ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("solve", "softmax", "--device", "cuda:0,cuda:0"), "names one device twice"),
        (("solve", "softmax", "--device", "cpu,cuda:0"), "names two kinds of devices"),
        (("solve", "softmax", "--device", "cuda:0,tpu"), "unknown device tpu"),
        (("solve", "softmax", "--device", "cuda:98,cuda:99"), "no device cuda:98 on this machine"),
        (("eval", "kernels.yaml", "--device", "cpu,cpu"), "names one device twice"),
        (("verify", "softmax", "kernel.py", "--device", "cuda:0,cuda:1"), "one is wanted here"),
        (("bench", "softmax", "kernel.py", "--device", "cuda:all"), "one is wanted here"),
        (("reverify", "softmax", "kernel.py", "--device", "cuda:0,cuda:1"), "one is wanted here"),
        (("problems", "import", "kernel.py", "--device", "cuda:0,cuda:1"), "one is wanted here"),
    ],
)
def test_devices_that_cannot_be_used_together(arguments: tuple[str, ...], says: str, tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text("class ModelNew: ...\n")
    refused(agentgen_program(*arguments, "--json", folder=tmp_path), says)
    assert not list(tmp_path.glob("results/runs/*"))


# ---- the place where runs are kept -----------------------------------------------------------------------------------


def test_a_file_that_cannot_grow(tmp_path: Path) -> None:
    refused(solve(tmp_path, largest_file=8 << 10), "check the disk's space")


@pytest.mark.parametrize(
    ("options", "says"), [("size=16k", "check the disk's space"), ("ro,size=64k", "make its folder writable")]
)
def test_a_full_disk_and_a_read_only_one(options: str, says: str, tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if mounted.returncode:
        pytest.skip("mounting a file system needs root")
    try:
        refused(solve(tmp_path), says)
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """/proc is read-only to root as well."""
    (tmp_path / "results").symlink_to("/proc/sys")
    refused(solve(tmp_path), "make its folder writable")


def test_a_store_of_a_newer_version(tmp_path: Path) -> None:
    store = tmp_path / "runs.db"
    environment = {"AGENTGEN_STORE": f"sqlite:///{store}"}
    agentgen_program("resume", "latest", folder=tmp_path, environment=environment)  # makes the store
    with closing(sqlite3.connect(store)) as connection:
        assert connection.execute("update meta set value = value + 1 where key = 'version'").rowcount == 1
        connection.commit()
    before = store.read_bytes()
    ended = agentgen_program("resume", "latest", "--json", folder=tmp_path, environment=environment)
    refused(ended, "was written by a newer agentgen")
    assert store.read_bytes() == before


def solve(folder: Path, largest_file: int | None = None) -> Ended:
    """Begins a run whose answers would come from a mailbox."""
    return agentgen_program(
        "solve", "softmax", "--device", "cpu", "--model", "mailbox", "--json", folder=folder, largest_file=largest_file
    )


# ---- the model's server ----------------------------------------------------------------------------------------------


class Refusing(BaseHTTPRequestHandler):
    """Refuses every key."""

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        body = b'{"error": {"message": "Incorrect API key provided", "type": "invalid_request_error"}}'
        self.send_response(401)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Keeps the tests' output clean."""


@pytest.fixture
def refusing_server() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Refusing)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()


@pytest.mark.slow
def test_a_refused_key_stops_the_run_which_can_be_resumed(refusing_server: str, tmp_path: Path) -> None:
    (tmp_path / "reference.py").write_text(REFERENCE)
    environment = {"AGENTGEN_BASE_URL": refusing_server, "OPENAI_API_KEY": "sk-very-secret"}
    ended = agentgen_program(
        "solve", "reference.py", "--device", "cpu", "--model", "m", "--json", folder=tmp_path, environment=environment
    )
    refused(ended, "agentgen resume")
    assert "key" in ended.answer["error"].lower()
    assert "sk-very-secret" not in ended.stdout + ended.stderr
