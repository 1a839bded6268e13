"""Settings come from four layers; what cannot be used is named with the place it stands at."""

from __future__ import annotations

from pathlib import Path
from typing import get_args

import pytest

from agentgen import config
from agentgen.cli.options import ArithmeticName, EffortName, LanguageName, StrategyName
from agentgen.config import Layer, Settings, load
from agentgen.errors import BadConfig
from agentgen.records.candidate import Language
from agentgen.records.problem import Arithmetic
from agentgen.records.run import Effort, Strategy


def write(folder: Path, text: str) -> Path:
    file = folder / "agentgen.toml"
    file.write_text(text)
    return file


def test_without_anything_said_the_defaults_hold(tmp_path: Path) -> None:
    settings = load(Layer(), {}, tmp_path)
    assert settings.results == tmp_path / "results"
    assert settings.store == f"sqlite:///{tmp_path / 'results' / 'agentgen.db'}"
    assert (settings.problems / "conv2d" / "problem.yaml").is_file()
    assert (settings.device, settings.effort, settings.model, settings.languages) == ("auto", "quick", (), ())
    assert settings.sandbox == "jail"
    assert settings.api_key is settings.base_url is settings.arithmetic is settings.rounds is None


def test_each_layer_wins_over_the_ones_below(tmp_path: Path) -> None:
    write(tmp_path, '[agentgen]\nmodel = "file"\nstore = "sqlite:///file.db"\nrounds = 3\ndevice = "cpu"\n')
    environment = {"AGENTGEN_MODEL": "environment", "AGENTGEN_STORE": "sqlite:///environment.db"}
    settings = load(Layer(model=("flag",)), environment, tmp_path)
    assert settings.model == ("flag",)
    assert settings.store == "sqlite:///environment.db"
    assert (settings.rounds, settings.device) == (3, "cpu")


def test_the_strategies_are_those_of_the_records(tmp_path: Path) -> None:
    assert set(config.STRATEGIES) == set(get_args(StrategyName)) == {strategy.value for strategy in Strategy}
    assert load(Layer(), {}, tmp_path).strategy == "ideas-tree"
    write(tmp_path, '[agentgen]\nstrategy = "best-first"\n')
    assert load(Layer(), {}, tmp_path).strategy == "best-first"
    assert load(Layer(strategy="refine"), {}, tmp_path).strategy == "refine"
    write(tmp_path, '[agentgen]\nstrategy = "greedy"\n')
    with pytest.raises(BadConfig, match="strategy = 'greedy': must be one of ideas-tree, best-first"):
        load(Layer(), {}, tmp_path)


def test_caps_come_from_every_layer_and_there_are_none_by_themselves(tmp_path: Path) -> None:
    def caps(settings: Settings) -> tuple[float | None, ...]:
        return settings.budget_usd, settings.budget_tokens, settings.budget_minutes, settings.max_candidates

    assert caps(load(Layer(), {"AGENTGEN_BUDGET_USD": ""}, tmp_path)) == (None, None, None, None)
    write(tmp_path, "[agentgen]\nbudget_usd = 2\nbudget_tokens = 500_000\nbudget_minutes = 1.5\nmax_candidates = 4\n")
    assert caps(load(Layer(), {}, tmp_path)) == (2.0, 500_000, 1.5, 4)
    environment = {
        "AGENTGEN_BUDGET_USD": "0.5",
        "AGENTGEN_BUDGET_TOKENS": "20000",
        "AGENTGEN_BUDGET_MINUTES": "3",
        "AGENTGEN_MAX_CANDIDATES": "9",
    }
    assert caps(load(Layer(), environment, tmp_path)) == (0.5, 20_000, 3.0, 9)
    assert caps(load(Layer(budget_usd=0.25, max_candidates=2), environment, tmp_path)) == (0.25, 20_000, 3.0, 2)


@pytest.mark.parametrize(
    ("name", "text", "says"),
    [
        ("AGENTGEN_BUDGET_USD", "much", "AGENTGEN_BUDGET_USD is 'much', which is no number"),
        ("AGENTGEN_BUDGET_USD", "0", "budget_usd is 0.0; a cap is more than 0"),
        ("AGENTGEN_BUDGET_USD", "nan", "budget_usd is nan"),
        ("AGENTGEN_BUDGET_TOKENS", "1.5", "AGENTGEN_BUDGET_TOKENS is '1.5', which is no whole number"),
        ("AGENTGEN_BUDGET_TOKENS", "-1", "budget_tokens is -1"),
        ("AGENTGEN_BUDGET_MINUTES", "inf", "budget_minutes is inf"),
        ("AGENTGEN_MAX_CANDIDATES", "0", "max_candidates is 0"),
    ],
)
def test_a_cap_that_can_mean_nothing_is_refused(tmp_path: Path, name: str, text: str, says: str) -> None:
    with pytest.raises(BadConfig) as caught:
        load(Layer(), {name: text}, tmp_path)
    assert says in str(caught.value)


def test_the_nearest_file_above_counts_and_its_paths_are_relative_to_it(tmp_path: Path) -> None:
    inner = tmp_path / "a" / "b"
    inner.mkdir(parents=True)
    write(tmp_path, '[agentgen]\nproblems = "far"\n')
    write(tmp_path / "a", '[agentgen]\nproblems = "near"\nmodel = ["one", "two"]\nlanguages = ["triton"]\n')
    settings = load(Layer(), {}, inner)
    assert settings.problems == tmp_path / "a" / "near"
    assert settings.model == ("one", "two")
    assert settings.languages == ("triton",)


def test_environment_paths_are_relative_to_the_working_folder_and_empty_means_unset(tmp_path: Path) -> None:
    environment = {"AGENTGEN_PROBLEMS": "mine", "AGENTGEN_MODEL": "", "OPENAI_API_KEY": "", "AGENTGEN_BASE_URL": ""}
    settings = load(Layer(), environment, tmp_path)
    assert settings.problems == tmp_path / "mine"
    assert settings.model == ()
    assert settings.api_key is settings.base_url is None


def test_a_key_is_read_but_never_shown(tmp_path: Path) -> None:
    settings = load(Layer(), {"OPENAI_API_KEY": "sk-secret"}, tmp_path)
    assert settings.api_key == "sk-secret"
    assert "sk-secret" not in repr(settings)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("[agentgen\n", "line 1"),
        ("[agentgen]\nmodle = 'x'\n", "unknown key modle; did you mean model?"),
        ("[agentgen]\nzzz = 'x'\n", "unknown key zzz; known keys: model"),
        ("[agentgen]\napi_key = 'sk'\n", "OPENAI_API_KEY"),
        ("[agentgen]\nrounds = '3'\n", "rounds = '3': must be a whole number"),
        ("[agentgen]\nrounds = true\n", "must be a whole number"),
        ("[agentgen]\nrounds = 0\n", "at least 1"),
        ("[agentgen]\nbudget_usd = '2'\n", "budget_usd = '2': must be a number"),
        ("[agentgen]\nbudget_minutes = true\n", "budget_minutes = True: must be a number"),
        ("[agentgen]\nbudget_tokens = 1.5\n", "budget_tokens = 1.5: must be a whole number"),
        ("[agentgen]\nbuget_usd = 2\n", "unknown key buget_usd; did you mean budget_usd?"),
        ("[agentgen]\neffort = 'huge'\n", "must be one of quick, full"),
        ("[agentgen]\nsandbox = 'chroot'\n", "must be one of jail, docker, none"),
        ("[agentgen]\nlanguages = ['cobol']\n", "must be one of triton, cuda, cpp"),
        ("[agentgen]\nmodel = 3\n", "must be a text"),
        ("model = 'x'\n", "only a table [agentgen]"),
        ("agentgen = 3\n", "only a table [agentgen]"),
    ],
)
def test_a_bad_file_is_named_with_its_key(tmp_path: Path, text: str, says: str) -> None:
    file = write(tmp_path, text)
    with pytest.raises(BadConfig) as caught:
        load(Layer(), {}, tmp_path)
    assert says in str(caught.value)
    if "at least 1" not in says:
        assert str(file) in str(caught.value)


@pytest.mark.parametrize(
    "url",
    [
        "http://[::1",
        "http://x:99999999/v1",
        "http://me:se:cret@h:p/v1",
        "localhost:8000/v1",
        "ftp://h/v1",
        "http:///v1",
    ],
)
def test_a_server_that_is_none_is_refused_without_its_password(tmp_path: Path, url: str) -> None:
    with pytest.raises(BadConfig, match="names no server") as caught:
        load(Layer(), {"AGENTGEN_BASE_URL": url}, tmp_path)
    assert "cret" not in str(caught.value)
    write(tmp_path, f'[agentgen]\nbase_url = "{url}"\n')
    with pytest.raises(BadConfig, match="names no server"):
        load(Layer(), {}, tmp_path)


@pytest.mark.parametrize("url", ["http://localhost:8000/v1", "https://me:pass@[::1]/v1"])
def test_a_server_is_taken_as_it_is_named(tmp_path: Path, url: str) -> None:
    assert load(Layer(), {"AGENTGEN_BASE_URL": url}, tmp_path).base_url == url


def test_a_working_folder_that_was_removed_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(BadConfig, match="working folder is not there any more"):
        config.here(Layer())


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "agentgen.toml").write_bytes(b"\xff\xfe[")
    with pytest.raises(BadConfig, match=r"agentgen\.toml"):
        load(Layer(), {}, tmp_path)


def test_inside_the_checkout_results_go_to_its_own_folder() -> None:
    root = config.repository()
    if root is None:
        pytest.skip("not run from a checkout")
    assert load(Layer(), {}, root / "tests").results == root / "results"


def test_the_choices_are_those_of_the_records() -> None:
    """The command line repeats them, as importing the records would cost `--help` half of its time."""
    assert set(config.LANGUAGES) == {item.value for item in Language} == set(get_args(LanguageName))
    assert set(config.ARITHMETICS) == {item.value for item in Arithmetic} == set(get_args(ArithmeticName))
    assert set(config.EFFORTS) == {item.value for item in Effort} == set(get_args(EffortName))
