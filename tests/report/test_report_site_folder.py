"""A site on disk: whole or not at all, and in the place of nothing but a site."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import pytest

from agentgen.errors import BadInput
from agentgen.report.site.folder import LIST, write

OLD = {"index.html": b"old", "kernels/a.html": b"a"}
NEW = {"index.html": b"new", "kernels/b.html": b"b"}


def there(folder: Path) -> dict[str, bytes]:
    """Returns the files of a site, but for the list of them."""
    files = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert sorted(json.loads(files.pop(LIST))["files"]) == sorted([*files, LIST])
    return files


def alone(folder: Path) -> bool:
    """Whether nothing but a folder is left beside it."""
    return [path.name for path in folder.parent.iterdir()] == [folder.name]


def test_a_site_takes_the_place_of_an_older_one_of_an_empty_folder_or_of_none(tmp_path: Path) -> None:
    home = tmp_path / "new" / "site"
    write(OLD, home)
    assert there(home) == OLD
    write(NEW, home)
    assert there(home) == NEW
    assert alone(home)
    assert home.stat().st_mode & 0o777 == 0o755
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "empty")
    write(OLD, tmp_path / "link")
    assert there(tmp_path / "empty") == OLD
    assert (tmp_path / "link").is_symlink()


def test_what_was_not_written_here_is_left_alone(tmp_path: Path) -> None:
    home = tmp_path / "site"
    home.mkdir()
    (home / "thesis.txt").write_text("mine")
    with pytest.raises(BadInput, match="holds files, and is no site of agentgen"):
        write(NEW, home)
    (home / "thesis.txt").unlink()
    write(OLD, home)
    mine = home / "kernels" / "mine"
    for make in (mine.touch, mine.mkdir, partial(mine.symlink_to, tmp_path)):
        make()
        with pytest.raises(BadInput, match="holds kernels/mine, which agentgen did not write there"):
            write(NEW, home)
        if mine.is_symlink() or mine.is_file():
            mine.unlink()
        else:
            mine.rmdir()
    assert there(home) == OLD
    (home / LIST).write_text("[" * 100_000)
    with pytest.raises(BadInput, match="is no site of agentgen"):
        write(NEW, home)
    assert alone(home)


def test_a_file_and_the_folder_one_is_in_are_no_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match="is no folder"):
        write(NEW, tmp_path / "file")
    inside = tmp_path / "a" / "b"
    inside.mkdir(parents=True)
    monkeypatch.chdir(inside)
    for place in (Path(), Path("..")):
        with pytest.raises(BadInput, match="the folder you are in, or above it"):
            write(NEW, place)
    (tmp_path / "loop").symlink_to(tmp_path / "loop")
    with pytest.raises(BadInput, match="cannot be written"):
        write(NEW, tmp_path / "loop" / "site")


def test_what_fails_half_way_leaves_the_older_site_as_it_was(tmp_path: Path) -> None:
    home = tmp_path / "site"
    write(OLD, home)
    with pytest.raises(BadInput, match="cannot be written to"):
        write({**NEW, "index.html/x": b"no folder"}, home)
    assert there(home) == OLD
    assert alone(home)
    with pytest.raises(BadInput, match="cannot be written to"):
        write({"x" * 300: b""}, tmp_path / "other")
    assert alone(home)
