"""Which commit this is: of its own checkout, and of none around it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

import agentgen
from agentgen.cli.checkout import code, commit

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="no git on the PATH")


def git(folder: Path, *arguments: str) -> str:
    names = ("-c", "user.name=n", "-c", "user.email=e@example.org")
    return subprocess.run(
        ["git", *names, *arguments], cwd=folder, capture_output=True, text=True, check=True
    ).stdout.strip()


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package of that name in a folder of its own."""
    file = tmp_path / "root" / "agentgen" / "__init__.py"
    file.parent.mkdir(parents=True)
    file.write_text("")
    monkeypatch.setattr(agentgen, "__file__", str(file))
    return file


@needs_git
def test_a_checkout_of_its_own_has_a_commit_and_tells_whether_it_was_changed(package: Path) -> None:
    root = package.parents[1]
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "all")
    assert commit() == {"id": git(root, "rev-parse", "HEAD"), "changed": False}
    (root / "notes").write_text("nobody's")
    assert commit() == {"id": git(root, "rev-parse", "HEAD"), "changed": False}
    package.write_text("# changed")
    assert commit() == {"id": git(root, "rev-parse", "HEAD"), "changed": True}


@needs_git
def test_the_text_of_the_package_is_told_apart_whatever_else_is_committed(package: Path) -> None:
    root = package.parents[1]
    git(root, "init", "-q")
    git(root, "add", ".")
    git(root, "commit", "-qm", "all")
    first = code()
    (root / "report.json").write_text("{}")
    git(root, "add", ".")
    git(root, "commit", "-qm", "a report")
    assert code() == first != ""
    package.write_text("# changed")
    changed = code()
    git(root, "commit", "-qam", "changed")
    assert len({first, changed, code()}) == 3


@needs_git
def test_a_checkout_around_an_installed_package_is_not_its_own(package: Path, tmp_path: Path) -> None:
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-qm", "all")
    assert (commit(), code()) == (None, "")


def test_without_a_checkout_there_is_none(package: Path) -> None:
    assert (commit(), code()) == (None, "")
