"""The zygote in a Docker container: one for each sandbox, for as long as the sandbox lives.

Promised: no network, a read-only root, nobody's rights (or the user's own id, without any rights), no capabilities,
no-new-privileges, limits on memory and processes, Docker's own seccomp profile. The image is empty (`Dockerfile`): what
Python needs is mounted read-only from where it lies, the list being that of the jail (`guest.view`).

Judge and guests share memory and sockets by descriptors, which containers do not hinder; the engine must therefore run
on the judge's own system, not in another machine.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import time
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound
from docker.types import LogConfig, Mount, Ulimit

from agentgen.errors import ProtocolError, SandboxUnavailable
from agentgen.sandbox import folders
from agentgen.sandbox.cgroup import PROCESSES
from agentgen.sandbox.guest import view
from agentgen.sandbox.guest.jail import NOBODY
from agentgen.sandbox.kin import children
from agentgen.sandbox.wire import Channel

PACKAGE = Path(__file__).parents[2]
"""Where the package lies that the judge itself is of."""
LABEL = "agentgen.judge"
FOLDER_LABEL = "agentgen.folder"
DOCKERFILE = Path(__file__).with_name("Dockerfile")
MEMORY_SHARE = 0.75
START_S = 60.0
_OWN = ("/sys", "/proc", "/dev")
"""What an engine makes anew for each container."""


class ZygoteContainer:
    """One that runs in a container."""

    def __init__(
        self, command: Sequence[str], variables: Mapping[str, str], folder: Path, preload: Path | None
    ) -> None:
        """Starts it; the path of its socket is named at the end of its command.

        Args:
            command: Of the zygote.
            variables: Its whole environment.
            folder: The sandbox's own: all of the judge's that guests may write to.
            preload: A shared library to be seen besides.

        Raises:
            SandboxUnavailable: there is no engine, or it does not start the container.
        """
        address = folder / "zygote.sock"
        with _told(), socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(address))
            address.chmod(0o666)  # in a folder of ours that nobody else finds the way to
            listener.listen(1)
            self._client: Any = docker.from_env()
            _remove_left_behind(self._client)
            self._container = self._client.containers.run(
                _image(self._client),
                [*command, "--connect", str(address)],
                # By path, not as its working folder: an engine makes that, and with it a /tmp that nobody can write to.
                environment={**variables, "PYTHONPATH": str(PACKAGE)},
                mounts=_mounts(folder, preload),
                devices=[f"{path}:{path}:rw" for path in view.devices() if "nvidia" in path],
                labels={LABEL: f"{os.getpid()} {_born(os.getpid())}", FOLDER_LABEL: str(folder)},
                **_walls(),
            )
            self.channel = Channel(self._accepted(listener))
            self._container.reload()
        self.pid = int(self._container.attrs["State"]["Pid"])
        if not Path(f"/proc/{self.pid}").exists():
            self.end()
            raise SandboxUnavailable(
                "Docker's engine runs on another machine than this one: guests could share no memory"
            )

    def here(self, pid: int) -> int:
        """By what the kernel says of its children: their ids, from our namespace inwards."""
        for child in children(self.pid):
            with contextlib.suppress(OSError):
                lines = Path(f"/proc/{child}/status").read_text().splitlines()
                if [line.split()[-1] for line in lines if line.startswith("NSpid:")] == [str(pid)]:
                    return child
        raise ProtocolError(f"the container has no process {pid}")

    def isolation(self, jail: str) -> str:
        """Of the container, and round each guest in there, which has no control group but the container's."""
        memory = _memory_bytes() / 2**30
        return f"Docker: no network, read-only, {memory:.0f} GiB, {PROCESSES} processes; {jail.partition('; ')[0]}"

    def end(self) -> None:
        """It ends by itself when nobody is there any more; the engine removes it."""
        self.channel.close()
        with contextlib.suppress(DockerException):
            self._container.remove(force=True)
        with contextlib.suppress(DockerException):
            _wait_until_gone(self._client, self._container.id)
        self._client.close()

    def _accepted(self, listener: socket.socket) -> socket.socket:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            if select.select([listener], [], [], 0.2)[0]:
                return listener.accept()[0]
            self._container.reload()
            if self._container.status not in {"created", "running"}:
                break
        said = self._container.logs(tail=20).decode(errors="replace").strip()
        self._container.remove(force=True)
        raise SandboxUnavailable(f"the guests' zygote did not start in its container: {said or 'it said nothing'}")


def engine() -> str:
    """Returns the engine's version.

    Raises:
        SandboxUnavailable: there is none, or it is not ours to use.
    """
    with _told(), contextlib.closing(docker.from_env()) as client:
        return str(client.version()["Version"])


@contextlib.contextmanager
def _told() -> Generator[None]:
    try:
        yield
    except DockerException as error:
        raise SandboxUnavailable(f"Docker: {str(error).splitlines()[0]}; see `agentgen doctor`") from error


def _image(client: Any) -> str:
    text = DOCKERFILE.read_bytes()
    tag = f"agentgen-sandbox:{hashlib.sha256(text).hexdigest()[:12]}"
    try:
        client.images.get(tag)
    except ImageNotFound:
        with DOCKERFILE.open("rb") as file:
            client.images.build(fileobj=file, tag=tag, rm=True, network_mode="none")
    return tag


def _walls() -> dict[str, Any]:
    user = (NOBODY, NOBODY) if os.geteuid() == 0 else (os.getuid(), os.getgid())
    return {
        "detach": True,
        "auto_remove": False,  # what it said last is wanted if it does not start
        "network_mode": "none",
        "ipc_mode": "private",
        "read_only": True,
        "user": "{}:{}".format(*user),
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": PROCESSES,
        "mem_limit": _memory_bytes(),
        "memswap_limit": _memory_bytes(),
        "shm_size": "1g",
        "tmpfs": {"/tmp": "rw,exec,nosuid,nodev,size=1g,mode=1777"},
        "ulimits": [Ulimit(name="core", soft=0, hard=0)],
        "log_config": LogConfig(type=LogConfig.types.JSON, config={"max-size": "1m"}),
    }


def _mounts(folder: Path, preload: Path | None) -> list[Mount]:
    shown = {path for path in view.readable() if not path.startswith(_OWN)}
    if preload:
        shown.add(str(preload.parent))
    mounts = [Mount(path, path, type="bind", read_only=True) for path in sorted(shown)]
    return [*mounts, Mount(str(folder), str(folder), type="bind")]


def _memory_bytes() -> int:
    return int(MEMORY_SHARE * os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))


def _born(pid: int) -> str:
    """Returns when a process began, in ticks since the machine did: with its id that names it; "" if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[19].decode()
    except OSError:
        return ""


def _remove_left_behind(client: Any) -> None:
    """Removes containers whose judge was killed before it could, and the folders that these worked in."""
    for container in client.containers.list(all=True, filters={"label": LABEL}):
        pid, _, born = container.labels[LABEL].partition(" ")
        if _born(int(pid)) != born:
            with contextlib.suppress(DockerException):
                container.remove(force=True)
                folders.remove(container.labels.get(FOLDER_LABEL, ""))


def _wait_until_gone(client: Any, container: str) -> None:
    for _ in range(100):
        if not client.containers.list(all=True, filters={"id": container}):
            return
        time.sleep(0.02)
