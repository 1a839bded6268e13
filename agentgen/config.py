"""Settings: frozen, merged once, lowest first: defaults, `agentgen.toml`, environment, flags.

The only place on the orchestrator's side that takes settings from the environment; beside it `workers.devices` reads
CUDA_VISIBLE_DEVICES, and `workers.programs` hands the whole environment on to judges. A layer is optional everywhere
(None: inherit); `Settings` is complete, and is all that anybody else sees.

    agentgen.toml, in the working folder or the nearest parent that has one:
        [agentgen]
        model = ["gpt-oss-120b"]            # or "recorded", "recorded:DIR", "mailbox", "mailbox:DIR";
                                            # "ideas=…" for one part
        base_url = "http://localhost:8000/v1"
        store = "postgresql+psycopg://…"    # any SQLAlchemy URL
        problems = "my-problems"            # relative to the file
        device = "cuda:1"
        languages = ["triton"]
        arithmetic = "fp32"
        rounds = 3
        strategy = "best-first"
        effort = "full"
        sandbox = "none"                    # candidates can do what you can
        budget_usd = 2.5                    # a run asks no model for more than these
        budget_tokens = 500000
        budget_minutes = 30
        max_candidates = 40

    AGENTGEN_STORE  AGENTGEN_BASE_URL  AGENTGEN_MODEL  AGENTGEN_PROBLEMS  OPENAI_API_KEY
    AGENTGEN_BUDGET_USD  AGENTGEN_BUDGET_TOKENS  AGENTGEN_BUDGET_MINUTES  AGENTGEN_MAX_CANDIDATES

Imports no pydantic: `agentgen --help` would pay for it. A key belongs into the environment, never into a file.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from difflib import get_close_matches
from math import inf
from os.path import expanduser
from pathlib import Path
from typing import Any, TypeVar, cast
from urllib.parse import urlsplit

from agentgen.errors import BadConfig

Number = TypeVar("Number", int, float)

FILE = "agentgen.toml"
PACKAGE = Path(__file__).resolve().parent

LANGUAGES = ("triton", "cuda", "cpp")
ARITHMETICS = ("fp32", "tf32", "fp16", "bf16")
EFFORTS = ("quick", "full")
SANDBOXES = ("jail", "docker", "none")
STRATEGIES = ("ideas-tree", "best-first", "best-of-n", "refine")
CAPS = ("budget_usd", "budget_tokens", "budget_minutes", "max_candidates")


@dataclass(frozen=True, slots=True)
class Layer:
    """What one source says; None: nothing. The field names are the keys of `agentgen.toml`."""

    model: tuple[str, ...] | None = None
    base_url: str | None = None
    store: str | None = None
    problems: Path | None = None
    device: str | None = None
    languages: tuple[str, ...] | None = None
    arithmetic: str | None = None
    rounds: int | None = None
    strategy: str | None = None
    effort: str | None = None
    sandbox: str | None = None
    budget_usd: float | None = None
    budget_tokens: int | None = None
    budget_minutes: float | None = None
    max_candidates: int | None = None


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything a command needs to know, resolved."""

    results: Path
    """Folder of the run database (unless `store` says otherwise) and of `runs/`."""
    store: str
    """SQLAlchemy URL."""
    problems: Path
    base_url: str | None = None
    api_key: str | None = field(default=None, repr=False)
    model: tuple[str, ...] = ()
    """Empty: nothing was said; see `wiring.chosen_models`."""
    device: str = "auto"
    languages: tuple[str, ...] = ()
    """Empty: those that suit the device."""
    arithmetic: str | None = None
    """None: the problem's own."""
    rounds: int | None = None
    """None: as `effort` says."""
    strategy: str = "ideas-tree"
    effort: str = "quick"
    sandbox: str = "jail"
    budget_usd: float | None = None
    """None, as the three below: no cap."""
    budget_tokens: int | None = None
    budget_minutes: float | None = None
    max_candidates: int | None = None


def here(flags: Layer) -> Settings:
    """Returns the settings of this process: see `load`."""
    try:
        folder = Path.cwd()
    except FileNotFoundError as error:
        raise BadConfig("the working folder is not there any more: go to another one") from error
    return load(flags, os.environ, folder)


def load(flags: Layer, environment: Mapping[str, str], folder: Path) -> Settings:
    """Returns the settings of a command started in `folder`.

    Raises:
        BadConfig: a file cannot be read, or a key or value in it, in the environment or in a flag cannot be used.
    """
    said = Layer()
    for layer in (_from_file(folder), _from_environment(environment, folder), flags):
        said = replace(
            said, **{item.name: value for item in fields(Layer) if (value := getattr(layer, item.name)) is not None}
        )
    if said.rounds is not None and said.rounds < 1:
        raise BadConfig(f"rounds is {said.rounds}; a run has at least 1 round")
    for name in CAPS:
        _check_cap(name, getattr(said, name))
    if said.base_url is not None and not _names_a_server(said.base_url):
        # Not what was given: a password may be in it.
        raise BadConfig(f"AGENTGEN_BASE_URL (base_url in {FILE}) names no server: give http://HOST:PORT/v1")
    root = repository()
    results = (root if root and folder.resolve().is_relative_to(root) else folder) / "results"
    return Settings(
        results=results,
        store=said.store or f"sqlite:///{results / 'agentgen.db'}",
        problems=said.problems or (root / "problems" if root else PACKAGE / "problems"),
        base_url=said.base_url,
        api_key=environment.get("OPENAI_API_KEY") or None,
        model=said.model or (),
        device=said.device or "auto",
        languages=said.languages or (),
        arithmetic=said.arithmetic,
        rounds=said.rounds,
        strategy=said.strategy or "ideas-tree",
        effort=said.effort or "quick",
        sandbox=said.sandbox or "jail",
        budget_usd=said.budget_usd,
        budget_tokens=said.budget_tokens,
        budget_minutes=said.budget_minutes,
        max_candidates=said.max_candidates,
    )


def _check_cap(name: str, value: float | None) -> None:
    """Raises BadConfig where a cap can mean nothing: 0, less, not a number, or infinite."""
    if value is not None and not 0 < value < inf:
        raise BadConfig(f"{name} is {value}; a cap is more than 0 (leave --{name.replace('_', '-')} out for none)")


def _names_a_server(url: str) -> bool:
    try:
        parts = urlsplit(url)
        _ = parts.port  # read, and refused, only when it is asked for
    except ValueError:
        return False
    return parts.scheme in ("http", "https") and bool(parts.hostname)


def repository() -> Path | None:
    """Returns the root of the checkout this package runs from; None where it was installed as a copy."""
    root = PACKAGE.parent
    return root if (root / "pyproject.toml").is_file() and (root / "problems").is_dir() else None


def _from_environment(environment: Mapping[str, str], folder: Path) -> Layer:
    """An empty variable counts as unset, as shells cannot unset one for a single command."""
    model, problems = environment.get("AGENTGEN_MODEL"), environment.get("AGENTGEN_PROBLEMS")
    return Layer(
        model=(model,) if model else None,
        base_url=environment.get("AGENTGEN_BASE_URL") or None,
        store=environment.get("AGENTGEN_STORE") or None,
        problems=folder / expanduser(problems) if problems else None,
        budget_usd=_number_of(environment, "AGENTGEN_BUDGET_USD", float),
        budget_tokens=_number_of(environment, "AGENTGEN_BUDGET_TOKENS", int),
        budget_minutes=_number_of(environment, "AGENTGEN_BUDGET_MINUTES", float),
        max_candidates=_number_of(environment, "AGENTGEN_MAX_CANDIDATES", int),
    )


def _number_of(environment: Mapping[str, str], name: str, read: Callable[[str], Number]) -> Number | None:
    """Returns a number of the environment; None where it is unset.

    Raises:
        BadConfig: it is none; names the variable.
    """
    text = environment.get(name)
    try:
        return read(text) if text else None
    except ValueError:
        whole = "whole " if read is int else ""
        raise BadConfig(f"{name} is {text!r}, which is no {whole}number") from None


def _from_file(folder: Path) -> Layer:
    file = next((path for parent in (folder, *folder.parents) if (path := parent / FILE).is_file()), None)
    if file is None:
        return Layer()
    try:
        document = tomllib.loads(file.read_text())
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise BadConfig(f"{file}: {error}") from error
    table = document.pop("agentgen", {})
    if document or not isinstance(table, dict):
        raise BadConfig(f"{file}: only a table [agentgen] is understood, not {sorted(document) or 'a value'}")
    return Layer(**{key: _value(file, key, value) for key, value in cast("dict[str, object]", table).items()})


def _value(file: Path, key: str, value: object) -> Any:
    """Returns a value of the file as `Layer` holds it.

    Raises:
        BadConfig: with file and key.
    """
    if key == "api_key":
        raise BadConfig(f"{file}: api_key: a key belongs into the environment (OPENAI_API_KEY), not into a file")
    if key not in _READERS:
        near = get_close_matches(key, _READERS, 1)
        hint = f"did you mean {near[0]}?" if near else f"known keys: {', '.join(_READERS)}"
        raise BadConfig(f"{file}: unknown key {key}; {hint}")
    try:
        return _READERS[key](file, value)
    except ValueError as error:
        raise BadConfig(f"{file}: {key} = {value!r}: {error}") from error


def _text(_file: Path, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ValueError("must be a text")
    return value


def _texts(file: Path, value: object) -> tuple[str, ...]:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return tuple(_text(file, item) for item in items)


def _path(file: Path, value: object) -> Path:
    return file.parent / expanduser(_text(file, value))


def _count(_file: Path, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError("must be a whole number")
    return value


def _amount(_file: Path, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        raise ValueError("must be a number")
    return float(value)


def _among(*known: str) -> Callable[[Path, object], str]:
    def read(file: Path, value: object) -> str:
        if (text := _text(file, value)) not in known:
            raise ValueError(f"must be one of {', '.join(known)}")
        return text

    return read


def _languages(file: Path, value: object) -> tuple[str, ...]:
    return tuple(_among(*LANGUAGES)(file, text) for text in _texts(file, value))


_READERS: dict[str, Callable[[Path, object], object]] = {
    "model": _texts,
    "base_url": _text,
    "store": _text,
    "problems": _path,
    "device": _text,
    "languages": _languages,
    "arithmetic": _among(*ARITHMETICS),
    "rounds": _count,
    "strategy": _among(*STRATEGIES),
    "effort": _among(*EFFORTS),
    "sandbox": _among(*SANDBOXES),
    "budget_usd": _amount,
    "budget_tokens": _count,
    "budget_minutes": _amount,
    "max_candidates": _count,
}
