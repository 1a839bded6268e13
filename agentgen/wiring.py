"""Joins settings to concrete parts: problems, models, the run database, and the judge of a run or of a kernel."""

from __future__ import annotations

import secrets
from collections.abc import Generator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from os.path import expanduser
from pathlib import Path

from sqlalchemy import make_url

from agentgen.config import Layer, Settings
from agentgen.errors import AgentgenError, BadConfig, BadInput
from agentgen.models.chat import ChatModel
from agentgen.models.mailbox import MailboxModel
from agentgen.models.recorded import RecordedModel
from agentgen.models.roster import Part, Roster, split_part
from agentgen.records.candidate import DEFAULT_LANGUAGES, Language
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.run import Caps, Effort, Isolation, Plan, Run, Strategy
from agentgen.store import catalog, foreign, transfer
from agentgen.store.ledger import Ledger, open_ledger
from agentgen.workers.devices import device_type, find_devices
from agentgen.workers.local import Inspector, LocalJudge
from agentgen.workers.pool import Pool
from agentgen.workers.programs import Programs

RECORDED = "recorded"
MAILBOX = "mailbox"

PLANS = {
    Effort.QUICK: Plan(),
    Effort.FULL: Plan(rounds=5, parents=4, ideas=6, next_ideas=4, repairs=3),
}


def find_problem(settings: Settings, given: str) -> Problem:
    """Returns the problem that a command line names: a name, a problem's folder, or a KernelBench-style `.py` file.

    Raises:
        UnknownProblem: no problem has that name.
        BadInput: the file or folder cannot be used.
    """
    return problem_of_file(Path(given)) if given.endswith(".py") else catalog.load(given, settings.problems)


def problem_names(settings: Settings) -> tuple[str, ...]:
    """Returns the names of all problems.

    Raises:
        BadConfig: there is no such folder.
    """
    if not settings.problems.is_dir():
        raise BadConfig(f"there is no folder of problems {settings.problems}: correct AGENTGEN_PROBLEMS or `problems`")
    return catalog.names(settings.problems)


def recording_of(settings: Settings, name: str) -> Path:
    """Returns where the replies recorded for a problem lie, or would."""
    return catalog.recording(name, settings.problems)


def is_recorded(settings: Settings, problem: Problem) -> bool:
    """Returns whether a model's replies are shipped with a problem."""
    return catalog.recording(problem.name, settings.problems).is_dir()


def problem_of_file(path: Path) -> Problem:
    """Returns the problem that a KernelBench-style file states, whatever the file is called.

    Raises:
        BadInput: the file cannot be used.
    """
    return foreign.from_reference(Path(expanduser(path)), None)


def foreign_problem(settings: Settings, file: Path, name: str) -> Problem:
    """Returns the problem of a file from outside, in the arithmetic asked for."""
    return foreign.from_reference(file, Arithmetic(settings.arithmetic) if settings.arithmetic else None, name)


def is_foreign(given: str) -> bool:
    """Returns whether a command line names a file from outside, which nobody has looked at yet."""
    return given.endswith(".py")


def require_admitted(problem: Problem, device: str, arithmetic: Arithmetic, hint: str = "") -> None:
    """Raises BadInput, why and the hint, where a problem cannot be judged on a device, or the first of several."""
    with Inspector(device.split(",")[0]) as inspector:
        admission = inspector.look(problem, arithmetic)
    if admission.reasons:
        raise BadInput(f"{problem.name} cannot be judged: {'; '.join(admission.reasons)}{hint}")


def find_arithmetic(settings: Settings, problem: Problem, device: str) -> Arithmetic:
    """Returns what kernels may compute in: as asked, else the problem's own; as the device has it."""
    wanted = Arithmetic(settings.arithmetic) if settings.arithmetic else problem.arithmetic
    return wanted.on(device_type(device))


def new_run(settings: Settings, given: str) -> Run:
    """Returns a run for the problem that `given` names (see `find_problem`); it has not begun.

    Raises:
        UnknownProblem: no problem has that name.
        BadInput: device, languages and models do not fit together.
        DeviceNotFound: this machine has not the device.
    """
    problem = find_problem(settings, given)
    languages = tuple(dict.fromkeys(Language(name) for name in settings.languages))
    device = ",".join(find_devices(settings.device, languages))
    if device != "cpu" and Language.CPP in languages:
        raise BadInput(f"C++ candidates run on a CPU, not on {device}: give --device cpu, or leave --language cpp out")
    plan = PLANS[effort := Effort(settings.effort)].model_copy(update={"strategy": Strategy(settings.strategy)})
    now = datetime.now(UTC)
    return Run(
        id=f"{now:%Y%m%d-%H%M%S}-{secrets.token_hex(2)}",
        problem=problem,
        arithmetic=find_arithmetic(settings, problem, device),
        device=device,
        languages=languages or DEFAULT_LANGUAGES[device_type(device)],
        models=chosen_models(settings, catalog.recording(given, settings.problems)),
        plan=plan.model_copy(update={"rounds": settings.rounds}) if settings.rounds else plan,
        caps=given_caps(settings, Caps()),
        effort=effort,
        created=now,
    )


def given_caps(given: Settings | Layer, before: Caps) -> Caps:
    """Returns the caps of a run: what is given, over what it had before. For a run that goes on, only its command line
    gives: what a file or the environment says was asked when it began."""
    caps = Caps(
        usd=given.budget_usd,
        tokens=given.budget_tokens,
        minutes=given.budget_minutes,
        candidates=given.max_candidates,
    )
    return before.model_copy(update=caps.model_dump(exclude_none=True))


def chosen_models(settings: Settings, recording: Path) -> tuple[str, ...]:
    """Returns who will be asked: what was chosen, else the recording where no server is known.

    A run may be resumed from another folder, so folders are made absolute; only a run's own mailbox, and a recording in
    the catalog, are found again by the run's settings, and move with them.

    Args:
        settings: with models, server and key.
        recording: where the problem's own recording would lie.

    Raises:
        BadInput: a server without a model's name, or a name without a server.
    """
    server = bool(settings.api_key or settings.base_url)
    if not settings.model and server:
        raise BadInput(
            "OPENAI_API_KEY or AGENTGEN_BASE_URL is set, but no model is named: give --model NAME (or --model recorded)"
        )
    chosen: list[str] = []
    for given in settings.model or (RECORDED,):
        part, name = split_part(given)
        found = _chosen_model(settings, recording, name, server)
        chosen.append(f"{part.value}={found}" if part else found)
    return tuple(chosen)


def _chosen_model(settings: Settings, recording: Path, name: str, server: bool) -> str:
    kind, colon, folder = name.partition(":")
    if name == RECORDED:
        shipped = recording.parent.parent == settings.problems
        return RECORDED if shipped else f"{RECORDED}:{recording.resolve()}"
    if kind in (RECORDED, MAILBOX) and colon:
        if not folder:
            raise BadInput(f"{name} names no folder: give --model {kind} or --model {kind}:DIR")
        return f"{kind}:{Path(expanduser(folder)).resolve()}"
    if name and (name == MAILBOX or server):
        return name
    raise BadInput(
        f"no server for the model {name}: set OPENAI_API_KEY or AGENTGEN_BASE_URL, "
        f"or give --model {RECORDED} or --model {MAILBOX}"
    )


def open_models(settings: Settings, run: Run) -> Roster:
    """Returns the models of a run, ready to be asked; one that has several parts is one model.

    Raises:
        NothingRecorded: the problem has no recording.
        BadInput: the recording cannot be used, or some kind of request has no model.
        ModelUnavailable: OpenAI without a key.
    """
    opened: dict[str, ChatModel] = {}
    members: list[tuple[Part | None, ChatModel]] = []
    for given in run.models:
        part, name = split_part(given)
        if name not in opened:
            opened[name] = _open_model(settings, run, name)
        members.append((part, opened[name]))
    return Roster(tuple(members))


def _open_model(settings: Settings, run: Run, name: str) -> ChatModel:
    kind, _, folder = name.partition(":")
    if kind == RECORDED:
        return RecordedModel(Path(folder) if folder else catalog.recording(run.problem.name, settings.problems))
    if kind == MAILBOX:
        return MailboxModel(_mailbox(settings, run, name))
    # Here and not above: importing openai takes half a second, which only its users should wait.
    from agentgen.models.client import OpenAIModel

    return OpenAIModel(name, settings.base_url, settings.api_key, journal=run_folder(settings, run) / "replies")


def mailboxes(settings: Settings, run: Run) -> tuple[Path, ...]:
    """Returns the folders in which requests of a run wait for answers."""
    names = dict.fromkeys(split_part(given)[1] for given in run.models)
    return tuple(_mailbox(settings, run, name) for name in names if name.partition(":")[0] == MAILBOX)


def _mailbox(settings: Settings, run: Run, name: str) -> Path:
    folder = name.partition(":")[2]
    return Path(folder) if folder else run_folder(settings, run) / "mailbox"


def is_replayed(run: Run) -> bool:
    """Returns whether replies of a run come from a recording."""
    return any(split_part(given)[1].partition(":")[0] == RECORDED for given in run.models)


def run_folder(settings: Settings, run: Run) -> Path:
    """Returns where a run leaves its files. Not made yet."""
    return settings.results / "runs" / run.id


def find_run(settings: Settings, ledger: Ledger, given: str) -> tuple[Run, Settings]:
    """Returns the run that `latest`, an id or a folder (which is merged in) names, and settings that find its files.

    Raises:
        BadInput: there is none.
    """
    folder = Path(expanduser(given))
    if not (folder / transfer.FILE).is_file():
        folder = settings.results / "runs" / given
    if not (folder / transfer.FILE).is_file():
        run = ledger.run(given)
        folder = run_folder(settings, run)
        return (transfer.unpack(folder, ledger) if (folder / transfer.FILE).is_file() else run), settings
    run, folder = transfer.unpack(folder, ledger), folder.resolve()
    if (folder.parent.name, folder.name) != ("runs", run.id):
        raise BadInput(f"{folder} holds run {run.id}: its folder must be called runs/{run.id}, as it was")
    return run, replace(settings, results=folder.parent.parent)


@contextmanager
def packed(settings: Settings, ledger: Ledger, run: Run) -> Generator[None]:
    """Leaves a run's folder complete in itself, however the work on it ends, so that it can be carried elsewhere."""
    folder = run_folder(settings, run)
    try:
        yield
    except BaseException:
        with suppress(AgentgenError):
            transfer.pack(ledger, run.id, folder)
        raise
    transfer.pack(ledger, run.id, folder)


def ledger(settings: Settings) -> Ledger:
    """Returns the opened run database.

    Raises:
        StoreUnavailable: it cannot be opened.
    """
    return open_ledger(settings.store)


def store_shown(settings: Settings) -> str:
    """Returns the store's URL without its password; only for one that could be opened."""
    return make_url(settings.store).render_as_string(hide_password=True)


def judge(
    settings: Settings,
    problem: Problem,
    device: str,
    arithmetic: Arithmetic,
    effort: Effort,
    programs: Programs | None = None,
) -> LocalJudge:
    """Returns the judge of a problem on a device; a context manager, its program starts when first needed, of its own
    or among `programs`."""
    return LocalJudge(problem, device, arithmetic, effort, Isolation(settings.sandbox), programs)


def run_judge(settings: Settings, run: Run, places: tuple[str, ...]) -> Pool:
    """Returns who judges a run's candidates on some devices of this machine; a context manager, as of `judge`."""
    return Pool({place: judge(settings, run.problem, place, run.arithmetic, run.effort) for place in places})
