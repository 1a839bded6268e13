"""Settings become a run: device, languages, models and plan that fit together."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from agentgen import wiring
from agentgen.config import Layer, Settings, load
from agentgen.errors import BadInput, NothingRecorded
from agentgen.models.mailbox import MailboxModel
from agentgen.records.candidate import Language
from agentgen.records.chat import Role
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Caps, Plan, Strategy


def settings(folder: Path, flags: Layer | None = None, environment: dict[str, str] | None = None) -> Settings:
    return load(replace(flags or Layer(), device="cpu"), environment or {}, folder)


def test_a_run_on_a_cpu_has_what_suits_a_cpu(tmp_path: Path) -> None:
    run = wiring.new_run(settings(tmp_path), "conv2d")
    assert re.fullmatch(r"\d{8}-\d{6}-[0-9a-f]{4}", run.id)
    assert (run.device, run.languages, run.models) == ("cpu", (Language.CPP,), ("recorded",))
    assert run.arithmetic is Arithmetic.FP32, "a CPU has no TF32"
    assert run.plan == Plan()


def test_effort_sets_the_plan_and_rounds_overrides_it(tmp_path: Path) -> None:
    run = wiring.new_run(settings(tmp_path, Layer(effort="full", rounds=7)), "conv2d")
    assert run.plan == Plan(rounds=7, parents=4, ideas=6, next_ideas=4, repairs=3)


def test_caps_are_kept_with_the_run_and_given_anew_replace_its_own(tmp_path: Path) -> None:
    assert wiring.new_run(settings(tmp_path), "conv2d").caps == Caps()
    caps = wiring.new_run(settings(tmp_path, Layer(budget_usd=0.5, budget_tokens=20_000)), "conv2d").caps
    assert caps == Caps(usd=0.5, tokens=20_000)
    given = Layer(budget_tokens=40_000, budget_minutes=1.5, max_candidates=3)
    assert wiring.given_caps(given, caps) == Caps(usd=0.5, tokens=40_000, minutes=1.5, candidates=3)
    assert wiring.given_caps(Layer(), caps) == caps


def test_a_language_named_twice_is_written_in_once(tmp_path: Path) -> None:
    run = wiring.new_run(settings(tmp_path, Layer(languages=("triton", "cpp", "triton"))), "matmul")
    assert run.languages == (Language.TRITON, Language.CPP)


def test_models_are_the_ones_named_and_a_server_wants_a_name(tmp_path: Path) -> None:
    key = {"OPENAI_API_KEY": "sk"}
    named = wiring.new_run(settings(tmp_path, Layer(model=("llama3:8b", "recorded")), key), "conv2d")
    assert named.models == ("llama3:8b", "recorded")
    with pytest.raises(BadInput, match="--model NAME"):
        wiring.new_run(settings(tmp_path, environment=key), "conv2d")
    with pytest.raises(BadInput, match="no server for the model llama3:8b"):
        wiring.new_run(settings(tmp_path, Layer(model=("llama3:8b",))), "conv2d")


def test_a_run_keeps_its_mailbox_wherever_it_is_resumed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    run = wiring.new_run(settings(tmp_path, Layer(model=("mailbox:box", "mailbox"))), "conv2d")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    monkeypatch.chdir(elsewhere)
    models = wiring.open_models(settings(tmp_path), run).models
    folders = [model.folder for model in models if isinstance(model, MailboxModel)]
    assert folders == [tmp_path / "box", tmp_path / "results" / "runs" / run.id / "mailbox"]
    assert wiring.mailboxes(settings(tmp_path), run) == tuple(folders)


def test_the_recording_of_a_problem_of_ones_own_lies_in_its_folder(tmp_path: Path) -> None:
    own = tmp_path / "mine"
    own.mkdir()
    for name in ("problem.yaml", "reference.py"):
        (own / name).write_bytes((settings(tmp_path).problems / "softmax" / name).read_bytes())
    run = wiring.new_run(settings(tmp_path), str(own))
    assert run.problem.name == "mine"
    assert run.models == (f"recorded:{own / 'recording'}",)
    assert wiring.is_replayed(run)
    with pytest.raises(NothingRecorded, match=str(own)):
        wiring.open_models(settings(tmp_path), run)


def test_models_may_be_chosen_for_parts(tmp_path: Path) -> None:
    chosen = ("ideas=mailbox:hot", "code=recorded", "repair=mailbox:hot")
    run = wiring.new_run(settings(tmp_path, Layer(model=chosen, strategy="best-first")), "conv2d")
    assert run.models == (
        f"ideas=mailbox:{Path('hot').resolve()}",
        "code=recorded",
        f"repair=mailbox:{Path('hot').resolve()}",
    )
    assert run.plan.strategy is Strategy.BEST_FIRST
    roster = wiring.open_models(settings(tmp_path), run)
    assert len(roster.models) == 2, "one that has two parts is one model"
    assert isinstance(roster.chosen(Role.IDEAS, "0"), MailboxModel)
    assert roster.chosen(Role.REPAIR, "0") is roster.chosen(Role.IDEAS, "0")
    assert wiring.mailboxes(settings(tmp_path), run) == (Path("hot").resolve(),)
    assert wiring.is_replayed(run)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        (("ideas=",), "no server for the model "),
        (("ideas=gpt-5",), "no server for the model gpt-5"),
        (("ideas=mailbox:",), "mailbox: names no folder"),
    ],
)
def test_a_part_needs_a_model_that_is_there(tmp_path: Path, models: tuple[str, ...], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        wiring.new_run(settings(tmp_path, Layer(model=models)), "conv2d")


def test_every_part_needs_a_model(tmp_path: Path) -> None:
    run = wiring.new_run(settings(tmp_path, Layer(model=("ideas=mailbox",))), "conv2d")
    with pytest.raises(BadInput, match="no model for code and repair"):
        wiring.open_models(settings(tmp_path), run)


def test_the_store_is_shown_without_its_password(tmp_path: Path) -> None:
    environment = {"AGENTGEN_STORE": "postgresql+psycopg://me:secret@db.example/runs"}
    shown = wiring.store_shown(settings(tmp_path, environment=environment))
    assert "secret" not in shown
    assert "db.example" in shown
