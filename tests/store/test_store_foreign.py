"""Problems from outside: read, named, added whole or not at all."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgen.errors import BadInput
from agentgen.records.problem import Arithmetic, OwnWork, Workload
from agentgen.store import catalog
from agentgen.store.foreign import add, from_reference, references

REFERENCE = '''"""Adds things.

More words.
"""
N = 4
class Model: ...
def get_inputs(): ...
def get_init_inputs(): ...
'''


def test_a_bare_reference(tmp_path: Path) -> None:
    path = tmp_path / "1_Square matrix (fp32).py"
    path.write_text(REFERENCE)
    problem = from_reference(path, None)
    assert (problem.name, problem.title) == ("1_Square_matrix__fp32_", "Adds things.")
    assert (problem.arithmetic, problem.own_work) == (Arithmetic.FP32, OwnWork.STRICT)
    assert problem.workloads == (Workload(name="main"),)
    assert problem.reference == REFERENCE
    assert from_reference(path, Arithmetic.BF16).arithmetic is Arithmetic.BF16


def test_a_bare_reference_without_words(tmp_path: Path) -> None:
    path = tmp_path / "plain.py"
    path.write_text("from elsewhere import Model\nget_inputs = get_init_inputs = list\n")
    assert from_reference(path, None).title == "plain"


def test_a_bare_file_that_is_no_reference(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    with pytest.raises(BadInput, match=r"kernel\.py is missing"):
        from_reference(path, None)
    path.write_text("class ModelNew: ...\n")
    with pytest.raises(BadInput, match=r"kernel\.py: does not define Model, get_inputs, get_init_inputs"):
        from_reference(path, None)


@pytest.mark.parametrize(
    ("made", "arithmetic"),
    [
        ("torch.randn(4)", Arithmetic.FP32),
        ("torch.randn(4, dtype=torch.bfloat16)", Arithmetic.BF16),
        ("torch.randn(4, dtype=torch.float16)", Arithmetic.FP16),
        ("torch.randn(4).half()", Arithmetic.FP16),
    ],
)
def test_the_arithmetic_is_that_of_the_dtypes_it_names(tmp_path: Path, made: str, arithmetic: Arithmetic) -> None:
    path = tmp_path / "p.py"
    path.write_text(REFERENCE.replace("def get_inputs(): ...", f"def get_inputs(): return [{made}]"))
    assert from_reference(path, None).arithmetic is arithmetic


def test_a_folder_names_problems_after_their_place_and_in_their_order(tmp_path: Path) -> None:
    for place in ("level1/10_b.py", "level1/2_a.py", "level2/1_c.py", "level1/__init__.py", ".git/x.py"):
        (tmp_path / place).parent.mkdir(exist_ok=True)
        (tmp_path / place).write_text(REFERENCE)
    assert [name for name, _ in references(tmp_path)] == ["level1-2_a", "level1-10_b", "level2-1_c"]
    assert references(tmp_path / "level1" / "2_a.py") == (("2_a", tmp_path / "level1" / "2_a.py"),)
    with pytest.raises(BadInput, match="no file or folder"):
        references(tmp_path / "level3")
    (tmp_path / "empty").mkdir()
    with pytest.raises(BadInput, match=r"no \.py file lies under"):
        references(tmp_path / "empty")


def test_what_is_added_is_loaded_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "p: q.py"
    path.write_text(REFERENCE)
    problem = from_reference(path, Arithmetic.TF32)
    folder = tmp_path / "problems"
    home = add(problem, folder, "by force: zeros pass")
    assert home == folder / "p__q"
    assert catalog.load("p__q", folder) == problem
    assert (home / "problem.yaml").read_text().startswith("# by force: zeros pass\n")
    assert [entry.name for entry in folder.iterdir()] == ["p__q"]


def test_adding_the_same_again_changes_nothing_and_another_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(REFERENCE)
    problem = from_reference(path, None)
    home = add(problem, tmp_path / "problems")
    before = (home / "problem.yaml").stat().st_mtime_ns
    assert add(problem, tmp_path / "problems") == home
    assert (home / "problem.yaml").stat().st_mtime_ns == before
    with pytest.raises(BadInput, match="is there already and is another problem: give --name"):
        add(problem.model_copy(update={"title": "other"}), tmp_path / "problems")


def test_a_catalog_that_cannot_be_written(tmp_path: Path) -> None:
    path = tmp_path / "p.py"
    path.write_text(REFERENCE)
    (tmp_path / "file").write_text("")
    with pytest.raises(BadInput, match=r"the problem cannot be written to .*file"):
        add(from_reference(path, None), tmp_path / "file")
