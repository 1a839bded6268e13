"""Control groups: real ones, wherever this machine lets us make any; those of version 2, which it may not have, as the
kernel would show them, in a folder."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from sandbox_processes import eventually, firsts, gone

from agentgen.records.candidate import Candidate, Language
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Isolation
from agentgen.records.trial import Outcome
from agentgen.sandbox import cgroup
from agentgen.sandbox.cgroup import Group, Groups, sweep
from agentgen.sandbox.forked import ProcessGuest
from agentgen.sandbox.hierarchies import Home, available, homes
from agentgen.sandbox.process import ProcessSandbox
from agentgen.verify.findings import Rejected
from agentgen.verify.session import Session

ROOT = Path(__file__).parents[2]
BOTH = frozenset({"memory", "pids"})
MODEL = "class ModelNew: ..."
GREEDY = "everything = b'x' * (3 << 30)"
FILES = """
import os
for number in range(3):
    file = os.memfd_create(str(number))
    for _ in range(1000):
        os.write(file, bytes(1 << 20))
"""
BOMB = """
import os, time
born = 0
try:
    while True:
        if os.fork() == 0:
            os.setsid()
            time.sleep(60)
        born += 1
except OSError as error:
    raise ValueError(f"{born} and then {type(error).__name__}")
"""
SMALL_ZYGOTE = """
import os, sys, time
from agentgen.sandbox.cgroup import Groups

group = Groups(1 << 30, 64).enter_next()
child = os.fork()
if child == 0:
    os.setsid()
    time.sleep(60)
print(os.getppid(), os.getpid(), child, *group.folders, flush=True)
time.sleep(60)
"""


@pytest.fixture(scope="module", params=[Isolation.JAIL, Isolation.NONE])
def sandbox(request: pytest.FixtureRequest) -> Iterator[ProcessSandbox]:
    one = ProcessSandbox("cpu", isolation=request.param, memory_bytes=1 << 30, processes=64)
    refused = request.param is Isolation.JAIL and one.isolation.startswith("none")
    if refused or not one.isolation.endswith("; cgroup: memory 1 GiB, pids"):
        pytest.skip(f"not both controllers are ours: {one.isolation}")
    yield one
    one.close()


def folders_of(guest: ProcessGuest) -> tuple[Path, ...]:
    group = guest._group  # pyright: ignore[reportPrivateUsage]
    assert group
    return group.folders


def inside(folder: Path) -> set[int]:
    return set(map(int, (folder / "cgroup.procs").read_text().split()))


def load(guest: ProcessGuest, source: str) -> Session:
    session = Session(guest, None)
    session.load(Candidate(source=source, language=Language.CPP), Arithmetic.FP32)
    return session


# ---- real ones -------------------------------------------------------------------------------------------------------


def test_what_is_limited_is_told(sandbox: ProcessSandbox) -> None:
    assert sandbox.isolation.endswith("; cgroup: memory 1 GiB, pids")


def test_a_guest_is_born_in_its_group_and_its_zygote_leaves_it(sandbox: ProcessSandbox) -> None:
    first, second = sandbox.start(), sandbox.start()
    assert not set(folders_of(first)) & set(folders_of(second))
    for guest in (first, second):
        own = {guest.pid, guest._first}  # pyright: ignore[reportPrivateUsage]
        for folder in folders_of(guest):
            assert own <= inside(folder), "process 1 of its namespace, too"
            assert eventually(lambda: inside(folder) == own)  # noqa: B023
        guest.kill()
        assert not any(folder.exists() for folder in folders_of(guest))


@pytest.mark.parametrize("source", [GREEDY, FILES], ids=["its own", "files in memory"])
def test_whoever_wants_more_memory_than_it_may_have_is_ended_with_these_words(
    sandbox: ProcessSandbox, source: str
) -> None:
    guest = sandbox.start()
    with pytest.raises(Rejected, match=r"more memory than it may have \(cgroup: memory 1 GiB, pids\)") as caught:
        load(guest, source)
    assert caught.value.outcome is Outcome.OUT_OF_MEMORY
    guest.kill()
    assert not any(folder.exists() for folder in folders_of(guest))
    load(sandbox.start(), MODEL).close()


def test_whoever_ends_itself_was_not_starved(sandbox: ProcessSandbox) -> None:
    guest = sandbox.start()
    with pytest.raises(Rejected, match="ended by SIGKILL") as caught:
        load(guest, "import os; os.kill(os.getpid(), 9)")
    assert caught.value.outcome is Outcome.CRASHED
    guest.kill()


def test_a_bomb_of_processes_is_small_and_goes_with_its_guest(sandbox: ProcessSandbox) -> None:
    guest = sandbox.start()
    with pytest.raises(Rejected, match=r"[3-6]\d and then BlockingIOError"):
        load(guest, BOMB)
    children = inside(folders_of(guest)[0])
    assert 30 < len(children) <= 64
    guest.kill()
    assert gone(children)
    assert not any(folder.exists() for folder in folders_of(guest))
    load(sandbox.start(), MODEL).close()


def test_a_jail_that_is_founded_ahead_is_in_its_guest_s_group(sandbox: ProcessSandbox) -> None:
    if sandbox.isolation.startswith("none"):
        pytest.skip("nothing is founded ahead")
    zygote = sandbox._zygote.pid  # pyright: ignore[reportPrivateUsage]
    sandbox.start().kill()
    assert eventually(lambda: len(firsts(zygote)) == 1)
    (ahead,) = firsts(zygote)
    guest = sandbox.start()
    assert guest._first == ahead  # pyright: ignore[reportPrivateUsage]
    assert all(ahead in inside(folder) for folder in folders_of(guest))
    guest.kill()


def test_close_leaves_no_group(sandbox: ProcessSandbox) -> None:
    """The last test with this sandbox."""
    guest = sandbox.start()
    places = [folder.parent for folder in folders_of(guest)]
    ours = f"agentgen-{os.getpid()}-*-{sandbox._zygote.pid}-*"  # pyright: ignore[reportPrivateUsage]
    assert all(list(place.glob(ours)) for place in places)
    sandbox.close()
    assert not any(list(place.glob(ours)) for place in places)


@pytest.mark.parametrize("killed", ["zygote", "judge, then zygote"])
def test_groups_whose_zygote_was_killed_are_removed_with_all_that_is_in_them(killed: str) -> None:
    # The shell stands for a judge: it waits for the program, whose parent it is.
    process = subprocess.Popen(
        ["sh", "-c", '"$0" -c "$1"; :', sys.executable, SMALL_ZYGOTE],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    judge, zygote, child, *paths = process.stdout.readline().split()
    assert int(judge) == process.pid
    folders = list(map(Path, paths))
    if not folders:
        os.kill(int(zygote), 9)
        os.kill(int(child), 9)
        pytest.skip("no cgroup can be made here")
    assert all(inside(folder) == {int(zygote), int(child)} for folder in folders)
    places = {folder.parent for folder in folders}
    sweep(places)
    assert all(folder.exists() for folder in folders), "both live"
    if "judge" in killed:
        os.kill(int(judge), 9)
        process.wait()
        sweep(places)
        assert all(inside(folder) == {int(zygote), int(child)} for folder in folders), "it cleans up by itself"
    os.kill(int(zygote), 9)
    process.wait()
    assert gone([int(zygote)])
    sweep(places)
    assert not any(folder.exists() for folder in folders)
    assert gone([int(zygote), int(child)])
    process.stdout.close()


def test_version_2_ends_whatever_is_in_a_group_at_once() -> None:
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    mount = next((Path(line[1]) for line in mounts if line[2] == "cgroup2"), None)
    if mount is None:
        pytest.skip("there is no hierarchy of version 2")
    folder = mount / f"agentgen-{os.getpid()}-0-0-1"
    try:
        folder.mkdir()
    except OSError as error:
        pytest.skip(f"no group can be made in version 2: {error}")
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        (folder / "cgroup.procs").write_text(str(sleeper.pid))
        Group((folder,), "").remove()
        assert not folder.exists()
        assert sleeper.wait() == -9


# ---- as a kernel would show them -------------------------------------------------------------------------------------


@pytest.fixture
def tree(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A hierarchy: what is made in it has a group's files, of the version that its root tells; a group may be removed
    with them."""
    make, unmake, root = os.mkdir, os.rmdir, tmp_path / "cgroup"

    def mkdir(path: Path, mode: int = 0o777) -> None:
        make(path, mode)
        names = V2 if (root / "cgroup.controllers").exists() else V1
        for name in names.split():
            Path(path, name).touch()

    def rmdir(path: Path) -> None:
        for file in Path(path).iterdir():
            file.unlink()
        unmake(path)

    root.mkdir()
    monkeypatch.setattr(os, "mkdir", mkdir)
    monkeypatch.setattr(os, "rmdir", rmdir)
    return root


V1 = "cgroup.procs memory.limit_in_bytes memory.memsw.limit_in_bytes pids.max"
V2 = "cgroup.procs cgroup.subtree_control cgroup.controllers memory.max memory.swap.max pids.max"


def delegated(tree: Path) -> Path:
    """A session below a slice, as systemd makes them: the judge's processes are in the session."""
    (tree / "cgroup.controllers").write_text("cpu memory pids\n")
    session = tree / "slice" / "session"
    (tree / "slice").mkdir()
    session.mkdir()
    (tree / "slice" / "cgroup.subtree_control").write_text("memory pids\n")
    return session


def only(monkeypatch: pytest.MonkeyPatch, *found: Home) -> None:
    monkeypatch.setattr(cgroup, "homes", lambda: list(found))


def says(folder: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in folder.iterdir() if file.is_file() and file.read_text()}


def test_in_version_2_groups_lie_beside_the_judge_s_own(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = delegated(tree)
    only(monkeypatch, Home(session, BOTH, unified=True))
    group = Groups(3 << 29, 64).enter_next()
    assert [folder.parent for folder in group.folders] == [session.parent]
    assert group.words == "cgroup: memory 1.5 GiB, pids"
    limits = {"memory.max": str(3 << 29), "memory.swap.max": "0", "pids.max": "64"}
    assert says(group.folders[0]) == {**limits, "cgroup.procs": "0"}


def test_in_the_root_of_version_2_controllers_are_asked_for(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    delegated(tree)
    (tree / "cgroup.subtree_control").touch()
    only(monkeypatch, Home(tree, BOTH, unified=True))
    group = Groups(1 << 30, 64).enter_next()
    assert [folder.parent for folder in group.folders] == [tree]
    assert (tree / "cgroup.subtree_control").read_text() == "+memory +pids"


def test_in_version_1_there_is_one_in_each_hierarchy_and_swap_counts(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in BOTH:
        (tree / name).mkdir()
    only(monkeypatch, *(Home(tree / name, frozenset({name}), unified=False) for name in sorted(BOTH)))
    memory, pids = Groups(1 << 30, 64).enter_next().folders
    assert (memory.parent, pids.parent) == (tree / "memory", tree / "pids")
    limits = dict.fromkeys(["memory.limit_in_bytes", "memory.memsw.limit_in_bytes"], str(1 << 30))
    assert says(memory) == {**limits, "cgroup.procs": "0"}
    assert says(pids) == {"pids.max": "64", "cgroup.procs": "0"}


@pytest.mark.parametrize(
    ("number", "said"),
    [
        (errno.EROFS, "no cgroup: read-only file system"),
        (errno.EACCES, "no cgroup: permission denied"),
        (errno.EBUSY, "no cgroup: the judge's own holds processes"),
    ],
)
@pytest.mark.parametrize("call", ["mkdir", "write"])
def test_whatever_the_kernel_refuses_is_told_and_nothing_fails(
    tree: Path, monkeypatch: pytest.MonkeyPatch, number: int, said: str, call: str
) -> None:
    def refused(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    session = delegated(tree)
    only(monkeypatch, Home(session, BOTH, unified=True))
    groups = Groups(1 << 30, 64)
    monkeypatch.setattr(os, call, refused)
    for _ in range(2):
        group = groups.enter_next()
        assert (group.folders, group.words, group.starved) == ((), said, False)
        group.remove()
    assert list(session.parent.glob("agentgen-*")) == []


def test_without_a_controller_there_is_none(monkeypatch: pytest.MonkeyPatch) -> None:
    only(monkeypatch)
    assert Groups(None, 64).enter_next().words == "no cgroup: there is no controller of memory or processes"


def test_where_one_hierarchy_refuses_the_other_still_holds(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tree / "pids").mkdir()
    elsewhere = Home(tree / "not there", frozenset({"memory"}), unified=False)
    only(monkeypatch, elsewhere, Home(tree / "pids", frozenset({"pids"}), unified=False))
    assert Groups(1 << 30, 64).enter_next().words == "cgroup: pids"


def test_a_zygote_that_gets_no_further_group_leaves_the_last(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    session = delegated(tree)
    only(monkeypatch, Home(session, BOTH, unified=True))
    groups = Groups(1 << 30, 64)
    assert groups.enter_next().folders
    assert (session / "cgroup.procs").read_text() == ""
    (session.parent / "cgroup.subtree_control").write_text("")  # the slice gives no controllers any more
    (session / "cgroup.subtree_control").unlink()
    assert groups.enter_next().words == "no cgroup: no such file or directory"
    assert (session / "cgroup.procs").read_text() == "0"


@pytest.mark.parametrize(
    ("name", "words", "starved"),
    [
        ("memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 1\noom_group_kill 0\n", True),
        ("memory.events", "low 0\nhigh 0\nmax 12\noom 1\noom_kill 0\noom_group_kill 1\n", False),
        ("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 12\n", True),
        ("memory.oom_control", "oom_kill_disable 1\nunder_oom 1\noom_kill 0\n", False),
        ("memory.oom_control", "oom_kill_disable 1\nunder_oom 1\n", False),
    ],
)
def test_what_the_kernel_counts_tells_who_was_starved(tmp_path: Path, name: str, words: str, starved: bool) -> None:
    (tmp_path / name).write_text(words)
    assert Group((tmp_path,), "").starved is starved


def test_a_group_that_its_zygote_did_not_leave_is_kept_and_the_zygote_lives(
    tree: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: Path) -> None:
        raise OSError(errno.EBUSY, "busy")

    monkeypatch.setattr(os, "rmdir", busy)
    with subprocess.Popen(["sleep", "60"]) as zygote:
        folder = tree / f"agentgen-{os.getpid()}-1-{zygote.pid}-1"
        folder.mkdir()
        (folder / "cgroup.procs").write_text(f"{zygote.pid}\n")
        Group((folder,), "").remove()
        assert folder.exists()
        assert zygote.poll() is None
        zygote.kill()


def test_groups_of_other_process_namespaces_and_of_others_are_left_alone(tree: Path) -> None:
    for name in ("agentgen-999999999-1-999999999-1", "agentgen-mine", "user.slice"):
        (tree / name).mkdir()
    sweep([tree])
    assert len(list(tree.iterdir())) == 3


# ---- where a process is ----------------------------------------------------------------------------------------------


def placed(tmp_path: Path, groups: str, mounts: str) -> list[Home]:
    (tmp_path / "cgroup").write_text(groups)
    (tmp_path / "mountinfo").write_text(mounts.replace("AT", str(tmp_path / "sys")))
    return homes(tmp_path)


def test_in_a_hybrid_the_controllers_are_where_they_are(tmp_path: Path) -> None:
    mounts = """31 23 0:28 / AT rw,relatime - tmpfs tmpfs rw,mode=755
32 31 0:29 / AT/memory rw,relatime - cgroup cgroup rw,memory
33 31 0:30 / AT/pids rw shared:9 - cgroup cgroup rw,pids
34 31 0:30 / AT/pids-again rw - cgroup cgroup rw,pids
40 31 0:37 / AT/systemd rw - cgroup cgroup rw,name=systemd
41 31 0:38 / AT/unified rw - cgroup2 cgroup2 rw
"""
    found = placed(tmp_path, "9:name=systemd:/\n8:pids:/\n4:memory:/one/two\n0::/\n", mounts)
    memory, pids = frozenset({"memory"}), frozenset({"pids"})
    assert found == [
        Home(tmp_path / "sys/memory/one/two", memory, unified=False),
        Home(tmp_path / "sys/pids", pids, unified=False),
    ]


def test_in_version_2_the_kernel_says_which_controllers_there_are(tmp_path: Path) -> None:
    own = tmp_path / "sys" / "slice" / "session"
    own.mkdir(parents=True)
    (own / "cgroup.controllers").write_text("cpuset cpu io memory pids\n")
    found = placed(tmp_path, "0::/slice/session\n", "29 23 0:26 / AT rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n")
    assert found == [Home(own, BOTH, unified=True)]


def test_a_container_may_see_only_its_own_part(tmp_path: Path) -> None:
    found = placed(
        tmp_path, "4:memory:/docker/abc\n", "32 31 0:29 /docker/abc AT/memory ro - cgroup cgroup rw,memory\n"
    )
    assert [home.own for home in found] == [tmp_path / "sys/memory"]
    assert placed(tmp_path, "4:memory:/x\n", "32 31 0:29 /docker/abc AT ro - cgroup cgroup rw,memory\n") == []
    assert placed(tmp_path, "4:memory:/../..\n", "32 31 0:29 / AT ro - cgroup cgroup rw,memory\n") == []


def test_no_more_is_available_than_the_groups_above_allow(tmp_path: Path) -> None:
    own = tmp_path / "slice" / "session"
    own.mkdir(parents=True)
    home = Home(own, BOTH, unified=True)
    assert available([home]) == pytest.approx(available([]), rel=0.2)
    (own / "memory.max").write_text("max\n")
    (own.parent / "memory.max").write_text("3000000\n")
    assert available([home]) == 3000000
