"""Whatever goes wrong, a user gets one line and the right exit code, and a program gets one JSON object."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from cli_program import agentgen_program

import agentgen
from agentgen.cli.main import run

CANDIDATE = "class ModelNew: ...\n"
REFERENCE = (
    "import torch\nclass Model(torch.nn.Module): ...\ndef get_inputs(): return []\ndef get_init_inputs(): return []\n"
)

REFUSED = {
    "unknown problem": ("solve conv2", {}, "did you mean conv2d?"),
    "unknown problem to verify": ("verify sofmax k.py", {}, "did you mean softmax?"),
    "unknown problem to show": ("problems show matmull", {}, "did you mean matmul?"),
    "no such reference": ("solve nowhere.py", {}, "nowhere.py is missing"),
    "reference that is none": ("solve k.py --model mailbox", {}, "does not define Model, get_inputs, get_init_inputs"),
    "no such candidate": ("verify conv2d nowhere.py", {}, "cannot read the candidate nowhere.py: No such file"),
    "candidate is a folder": ("bench conv2d .", {}, "cannot read the candidate ."),
    "candidate missing": ("verify conv2d", {}, "give PROBLEM and CANDIDATE"),
    "too many beside reference": ("verify --reference r.py conv2d k.py", {}, "give CANDIDATE beside --reference"),
    "unknown flag": ("solve conv2d --langauge cpp", {}, "Did you mean --language?"),
    "unknown language": ("solve conv2d --language cobol", {}, '"triton", "cuda", "cpp"'),
    "unknown command": ("slove conv2d", {}, 'Did you mean "solve"?'),
    "missing argument": ("solve", {}, "PROBLEM requires an argument"),
    "rounds is no number": ("solve conv2d --rounds two", {}, "--rounds"),
    "half a round": ("solve conv2d --rounds 1.5", {}, "Invalid value for --rounds: 1.5 is no whole number in digits"),
    "half a token": ("resume latest --budget-tokens 0.5", {}, "--budget-tokens: 0.5 is no whole number in digits"),
    "half a try": ("failures shrink x --tries 0.5", {}, "--tries: 0.5 is no whole number in digits"),
    "no rounds": ("solve conv2d --rounds 0", {}, "at least 1 round"),
    "no dollars": ("solve conv2d --budget-usd 0", {}, "budget_usd is 0.0; a cap is more than 0"),
    "less than no tokens": ("solve conv2d --budget-tokens -5", {}, "budget_tokens is -5"),
    "minutes are no number": ("solve conv2d --budget-minutes ten", {}, "--budget-minutes"),
    "minutes without end": ("resume latest --budget-minutes inf", {}, "budget_minutes is inf"),
    "no candidates to resume": ("resume latest --max-candidates 0", {}, "max_candidates is 0"),
    "bad cap of the environment": ("solve conv2d", {"AGENTGEN_BUDGET_TOKENS": "x"}, "AGENTGEN_BUDGET_TOKENS is 'x'"),
    "dollars for a model without a price": (
        "solve conv2d --device cpu --model my-model --budget-usd 1",
        {"AGENTGEN_BASE_URL": "http://127.0.0.1:9/v1"},
        "--budget-usd cannot be kept: no price is known for my-model",
    ),
    "unknown kind of device": ("solve conv2d --device tpu", {}, "give auto, cpu or cuda:N"),
    "device not here": ("verify conv2d k.py --device cuda:99", {}, "no device cuda:99 on this machine"),
    "nothing recorded": ("solve r.py --device cpu", {}, "set OPENAI_API_KEY or AGENTGEN_BASE_URL and give --model"),
    "model without a server": ("solve conv2d --model gpt-9", {}, "no server for the model gpt-9"),
    "server without a model": ("solve conv2d", {"OPENAI_API_KEY": "sk-secret"}, "give --model NAME"),
    "mailbox without a folder": ("solve conv2d --model mailbox:", {}, "names no folder"),
    "no such problems": ("problems import nowhere", {}, "there is no file or folder nowhere"),
    "one name for many": ("problems import . --name p", {}, "--name is for one problem"),
    "record without a name": ("record latest", {}, "--model"),
    "unknown run to record": ("record 20000101 --model m", {}, "start one with `agentgen solve PROBLEM`"),
    "unknown run to evaluate": ("evaluate 20000101", {}, "start one with `agentgen solve PROBLEM`"),
    "unknown run": ("resume 20000101", {}, "start one with `agentgen solve PROBLEM`"),
    "store that is no URL": ("resume latest", {"AGENTGEN_STORE": "here"}, "AGENTGEN_STORE"),
    "store that cannot be made": ("resume latest", {"AGENTGEN_STORE": "sqlite:////proc/a/b.db"}, "set AGENTGEN_STORE"),
    "no problems there": ("problems list", {"AGENTGEN_PROBLEMS": "nowhere"}, "AGENTGEN_PROBLEMS"),
}

COMMANDS = (
    "solve",
    "resume",
    "evaluate",
    "record",
    "verify",
    "bench",
    "problems",
    "problems import",
    "doctor",
)


@pytest.fixture
def bare(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working folder, and no settings of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith(("AGENTGEN_", "OPENAI_"))]:
        monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_one_line_and_exit_2(
    case: str, bare: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    command, environment, says = REFUSED[case]
    (bare / "k.py").write_text(CANDIDATE)
    (bare / "r.py").write_text(REFERENCE)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert run([*command.split(), "--json"]) == 2
    printed = capsys.readouterr()
    lines = printed.err.splitlines()
    assert len(lines) == 1, printed.err
    assert lines[0].startswith("agentgen: ")
    assert says in lines[0]
    assert json.loads(printed.out) == {"error": lines[0].removeprefix("agentgen: "), "exit_code": 2}
    assert "sk-secret" not in printed.err


def test_without_json_an_error_leaves_stdout_empty(tmp_path: Path) -> None:
    ended = agentgen_program("solve", "conv2", folder=tmp_path)
    assert (ended.code, ended.stdout) == (2, "")


def test_a_broken_settings_file_is_named(tmp_path: Path) -> None:
    file = tmp_path / "agentgen.toml"
    file.write_text("[agentgen]\neffort = 'huge'\n")
    ended = agentgen_program("problems", "list", "--json", folder=tmp_path)
    assert ended.code == 2
    assert ended.answer["error"] == f"{file}: effort = 'huge': must be one of quick, full"


def test_help_loads_nothing_heavy() -> None:
    """Otherwise it would take over a second; `agentgen --help` is what people try first."""
    program = (
        "import sys\nfrom agentgen.cli.main import run\nassert run(['--help']) == 0\n"
        "print(*sorted({'torch', 'triton', 'pydantic', 'sqlalchemy', 'openai', 'yaml', 'numpy'} & set(sys.modules)))"
    )
    root = str(Path(agentgen.__file__).parents[1])
    done = subprocess.run([sys.executable, "-c", program], cwd=root, capture_output=True, text=True, check=True)
    assert "Search for a fast kernel" in done.stdout
    assert done.stdout.splitlines()[-1] == ""


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_explains_itself(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    printed = capsys.readouterr().out
    assert printed.startswith(f"Usage: agentgen {command}")
    assert "--json" in printed


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("leaderboard add", "the run's own, the first of several"),
        ("reverify", "of an ENTRY cpu or cuda:0"),
        ("verify", "default: auto"),
        ("", "List the problems, show one, or import more."),
    ],
)
def test_help_says_what_is_so(command: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*command.split(), "--help"]) == 0
    assert said in " ".join(capsys.readouterr().out.replace("│", " ").split())  # a frame is around it


def test_the_version_is_that_of_the_package(tmp_path: Path) -> None:
    assert agentgen_program("--version", folder=tmp_path).stdout.strip() == agentgen.__version__


def test_a_fault_of_agentgen_shows_its_traceback_and_is_no_rejection(tmp_path: Path) -> None:
    """Exit code 1 would mean a rejected kernel. The fault: pydantic cannot be imported."""
    (tmp_path / "pydantic.py").write_text("raise RuntimeError('broken on purpose')\n")
    root = str(Path(agentgen.__file__).parents[1])
    ended = agentgen_program(
        "problems", "list", "--json", folder=tmp_path, environment={"PYTHONPATH": f"{tmp_path}:{root}"}
    )
    assert ended.code == 70
    assert "Traceback" in ended.stderr
    assert ended.answer["error"] == "this is a fault in agentgen: RuntimeError: broken on purpose"
    assert ended.answer["exit_code"] == 70


def test_problems_are_listed_and_shown(bare: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["problems", "list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert {"conv2d", "matmul", "softmax"} <= {problem["name"] for problem in listed["problems"]}
    assert run(["problems"]) == 0
    assert "conv2d" in capsys.readouterr().err
    assert run(["problems", "show", "conv2d", "--json"]) == 0
    printed = capsys.readouterr()
    assert json.loads(printed.out)["arithmetic"] == "tf32"
    assert "class Model(nn.Module)" in json.loads(printed.out)["reference"]
    assert "batch_size" in printed.err


def test_doctor_names_faults_but_no_secrets(tmp_path: Path) -> None:
    """It asks a real judge program, and goes on after the first fault."""
    key, password = "sk-very-secret", "pass-word"
    (tmp_path / "not.db").write_text("this is no database, but a letter to a friend" * 100)
    environment = {
        "OPENAI_API_KEY": key,
        "AGENTGEN_BASE_URL": f"http://me:{password}@models.example/v1",
        "AGENTGEN_STORE": f"sqlite:///{tmp_path / 'not.db'}",
    }
    ended = agentgen_program("doctor", "--json", folder=tmp_path, environment=environment)
    assert (ended.code, ended.answer["ok"], ended.answer["store"]) == (2, False, "no")
    assert [fault for fault in ended.answer["faults"] if fault.startswith("store: ") and "not.db" in fault]
    assert ended.answer["OPENAI_API_KEY"] == "yes"
    assert ended.answer["AGENTGEN_BASE_URL"] == "models.example"
    assert ended.answer["torch"][0].isdigit()
    for secret in (key, password):
        assert secret not in ended.stdout + ended.stderr
