"""Problems on disk, good and bad."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgen.errors import BadInput, UnknownProblem
from agentgen.records.problem import Arithmetic
from agentgen.store import catalog

PROBLEMS = Path(__file__).parents[2] / "problems"
REFERENCE = '''"""Adds things.

More words.
"""
N = 4
rows, columns = 2, 3
class Model: ...
def get_inputs(): ...
def get_init_inputs(): ...
'''
DEFINITION = (
    "title: An addition\narithmetic: fp32\nworkloads:\n  - {name: main}\n  - {name: tiny, constants: {N: 1, rows: 1}}\n"
)


def write(folder: Path, name: str, definition: str = DEFINITION, reference: str | None = REFERENCE) -> Path:
    home = folder / name
    home.mkdir()
    (home / "problem.yaml").write_text(definition)
    if reference is not None:
        (home / "reference.py").write_text(reference)
    return home


def test_the_problems_that_we_ship() -> None:
    shipped = catalog.names(PROBLEMS)
    assert len(shipped) == 12
    for name in shipped:
        problem = catalog.load(name, PROBLEMS)
        assert problem.name == name
        assert [workload.name for workload in problem.workloads] == ["main", "ragged", "tiny"]
        assert problem.main.constants == {}, "main is the reference as it stands"
        assert problem.main.cpu_constants
    conv2d = catalog.load("conv2d", PROBLEMS)
    assert conv2d.arithmetic is Arithmetic.TF32
    assert conv2d.main.constants_on("cpu") == {"batch_size": 2}
    assert conv2d.reference == (PROBLEMS / "conv2d" / "reference.py").read_text()


def test_a_catalog(tmp_path: Path) -> None:
    write(tmp_path, "b")
    write(tmp_path, "a")
    (tmp_path / "no-problem").mkdir()
    (tmp_path / "file").write_text("")
    assert catalog.names(tmp_path) == ("a", "b")
    assert catalog.names(tmp_path / "nowhere") == ()
    assert catalog.recording("a", tmp_path) == tmp_path / "a" / "recording"


def test_a_problem_in_a_folder_of_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "catalog").mkdir()
    own = write(tmp_path, "mine")
    assert catalog.load(str(own), tmp_path / "catalog").name == "mine"
    monkeypatch.chdir(own)
    assert catalog.load(".", tmp_path / "catalog").name == "mine"
    assert catalog.recording(".", tmp_path / "catalog") == own / "recording"


def test_a_name_means_the_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "catalog").mkdir()
    write(tmp_path / "catalog", "same", DEFINITION.replace("An addition", "The listed one"))
    write(tmp_path, "same")
    monkeypatch.chdir(tmp_path)
    assert catalog.load("same", tmp_path / "catalog").title == "The listed one"
    assert catalog.load("./same", tmp_path / "catalog").title == "An addition"


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("Conv2D", "did you mean conv2d"),
        ("softmx", "did you mean softmax"),
        ("zzz", "there are conv2d, matmul"),
    ],
)
def test_an_unknown_problem(tmp_path: Path, name: str, hint: str) -> None:
    for known in ("conv2d", "matmul", "softmax"):
        write(tmp_path, known)
    with pytest.raises(UnknownProblem, match=f"no problem is called '{name}'.*{hint}"):
        catalog.load(name, tmp_path)


def test_an_empty_catalog(tmp_path: Path) -> None:
    with pytest.raises(UnknownProblem, match="there are no problems in"):
        catalog.load("conv2d", tmp_path)


MAIN = "title: T\narithmetic: fp32\nworkloads: [{name: main}]\n"


@pytest.mark.parametrize(
    ("definition", "said"),
    [
        ("title: [unclosed", r"problem\.yaml, line 1: no YAML: "),
        ("title: T\n\tarithmetic: fp32\n", r"problem\.yaml, line 2: no YAML: "),
        ("title: \x00", r"problem\.yaml: no YAML: "),
        ("", r"problem\.yaml: must be fields"),
        ("- a list", r"problem\.yaml: must be fields"),
        ("1: x", r"problem\.yaml: must be fields"),
        ("title: T\n", r"problem\.yaml: workloads: Field required; arithmetic: Field required$"),
        (MAIN.replace("fp32", "fp8"), r"problem\.yaml: arithmetic: Input should be 'fp32', 'tf32', 'fp16' or 'bf16'$"),
        (MAIN + "colour: red\n", r"problem\.yaml: colour: Extra inputs are not permitted$"),
        (MAIN + "name: other\n", r"problem\.yaml: name: is the folder's name"),
        (MAIN + "reference: x\n", r"problem\.yaml: reference: is reference\.py"),
        (MAIN.replace("main", "small"), r"problem\.yaml: workloads must have distinct names and exactly one 'main'"),
        (
            MAIN + "smaller: [{name: main}]\n",
            r"problem\.yaml: workloads must have distinct names and exactly one 'main'",
        ),
        (MAIN + "smaller: [{name: s, constants: {k: 1}}]\n", r"constants of s: reference\.py has no constant 'k'$"),
        (MAIN.replace("main", "main, constants: {N: [1]}"), r"workloads\[0\]\.constants\.N: Input should be [a-z ]+$"),
        (MAIN.replace("main", "main, constants: {M: 1}"), r"constants of main: reference\.py has no constant 'M'$"),
        (MAIN.replace("main", "main, cpu_constants: {n: 1}"), r"cpu_constants of main: .* no constant 'n'$"),
    ],
)
def test_a_definition_of_no_use(tmp_path: Path, definition: str, said: str) -> None:
    write(tmp_path, "bad", definition)
    with pytest.raises(BadInput, match=said) as caught:
        catalog.load("bad", tmp_path)
    assert "\n" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        (None, r"reference\.py is missing$"),
        ("class Model: ...\n", r"reference\.py: does not define get_inputs, get_init_inputs$"),
        ("def f(:\n", r"reference\.py, line 1: no Python: invalid syntax$"),
        ("x = 1\nif x\n", r"reference\.py, line 2: no Python: "),
        ("\x00", r"reference\.py.*no Python: "),
    ],
)
def test_a_reference_of_no_use(tmp_path: Path, reference: str | None, said: str) -> None:
    write(tmp_path, "bad", reference=reference)
    with pytest.raises(BadInput, match=said) as caught:
        catalog.load("bad", tmp_path)
    assert "\n" not in str(caught.value)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    home = write(tmp_path, "bad")
    (home / "reference.py").write_bytes(b"\xff\xfe")
    with pytest.raises(BadInput, match=r"reference\.py cannot be read"):
        catalog.load("bad", tmp_path)
