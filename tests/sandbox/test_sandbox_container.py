"""What is Docker's own: the engine, the container, and what becomes of them. (The promises of every sandbox are in
test_sandbox_process.py, test_sandbox_kin.py and test_sandbox_jail.py.)"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import pytest
from sandbox_processes import eventually, gone, require_engine

from agentgen.errors import SandboxUnavailable
from agentgen.records.run import Isolation
from agentgen.sandbox import container
from agentgen.sandbox.process import ProcessSandbox

ROOT = Path(__file__).parents[2]
OWNER = """
import sys
from agentgen.records.run import Isolation
from agentgen.sandbox.process import ProcessSandbox

sandbox = ProcessSandbox("cpu", isolation=Isolation.DOCKER)
sandbox.wait_until_warm()
print("warm", flush=True)
sys.stdin.read()
"""
GREEDY = """
held = bytearray(3 << 30)
class ModelNew: ...
"""


@pytest.fixture
def engine() -> Iterator[Any]:
    require_engine()
    client = docker.from_env()
    yield client
    client.close()


def ours(client: Any) -> list[Any]:
    return client.containers.list(all=True, filters={"label": container.LABEL})


def test_without_an_engine_it_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    with pytest.raises(SandboxUnavailable, match=r"^Docker: .*see `agentgen doctor`$"):
        ProcessSandbox("cpu", isolation=Isolation.DOCKER)
    with pytest.raises(SandboxUnavailable, match=r"^Docker: "):
        container.engine()


@pytest.mark.docker
@pytest.mark.slow
def test_a_zygote_that_does_not_start_is_no_candidates_fault(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/usr/bin/false")
    with pytest.raises(SandboxUnavailable, match="did not start in its container: it said nothing"):
        ProcessSandbox("cpu", isolation=Isolation.DOCKER)
    assert ours(engine) == []


@pytest.mark.docker
@pytest.mark.slow
def test_the_container_of_a_judge_that_was_killed_ends_and_goes_with_the_next_start(engine: Any) -> None:
    variables = {**os.environ, "PYTHONPATH": str(ROOT)}
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], env=variables, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout
    assert owner.stdout.readline() == "warm\n"
    (left,) = ours(engine)
    zygote = left.attrs["State"]["Pid"]
    owner.kill()
    owner.communicate()
    assert gone([zygote])
    folder = Path(left.labels[container.FOLDER_LABEL])
    assert folder.exists()
    sandbox = ProcessSandbox("cpu", isolation=Isolation.DOCKER)
    assert [one.id for one in ours(engine)] != [left.id]
    assert len(ours(engine)) == 1
    assert not folder.exists()
    sandbox.close()
    assert eventually(lambda: ours(engine) == [])


@pytest.mark.docker
@pytest.mark.slow
def test_its_memory_has_an_end_and_the_next_guest_is_fine(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    monkeypatch.setattr(container, "MEMORY_SHARE", (2 << 30) / total)
    sandbox = ProcessSandbox("cpu", isolation=Isolation.DOCKER)
    assert "2 GiB" in sandbox.isolation
    greedy = sandbox.start("greedy")
    greedy.post({"do": "load", "source": GREEDY, "arithmetic": "fp32"})
    assert eventually(lambda: greedy.exit_status is not None)
    assert greedy.exit_status == -9
    greedy.kill()
    modest = sandbox.start("modest")
    modest.post({"do": "load", "source": "class ModelNew: ...", "arithmetic": "fp32"})
    assert modest.answer(20)["ok"]
    modest.kill()
    sandbox.close()
