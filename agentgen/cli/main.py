"""`agentgen`: takes the command line apart, and turns every way a command can end into an exit code.

    0    done, or stopped by a cap of the run; verify, bench, reverify: the kernel was accepted
    1    verify, bench, reverify, leaderboard add: the kernel was rejected; reverify of an entry: or is slower than it
         was; leaderboard: an entry is broken; eval: a case was not as expected or has no verdict, with --baseline: a
         regression; failures shrink: nothing smaller fails the same way; problems import: a problem was refused
    2    bad usage, or a machine, store, model or stdout that cannot be used: one line says what and what to do
    70   a fault in agentgen itself: the only case with a traceback
    75   a run waits for answers in its mailbox, or for its device; eval: nothing but such answers is missing
    130  stopped by Ctrl-C (or SIGTERM, SIGHUP)

What is for people goes to stderr. With `--json`, exactly one JSON object goes to stdout, however the command ends; an
error is `{"error": ..., "exit_code": ...}`.

Commands are named by import path and imported when used: `agentgen --help` loads neither pydantic, SQLAlchemy nor
openai, and so takes a quarter of a second instead of over one.
"""

from __future__ import annotations

import signal
import sys
import traceback
from collections.abc import Sequence
from errno import ENAMETOOLONG
from types import FrameType

from cyclopts import App, CycloptsError

from agentgen import __version__
from agentgen.cli import streams
from agentgen.cli.answer import answer, wants_json
from agentgen.errors import AgentgenError, StoreUnavailable
from agentgen.report.plain import harmless

INTERRUPTED = 130
BUG = 70
_SHOWN = 100
"""Characters of a path that no file system takes."""

app = App(
    name="agentgen",
    version=__version__,
    help="Turns language models' ideas into kernels, behind an honest judge.",
    help_epilogue="Exit codes: 0 done or accepted, 1 rejected, 2 cannot be done (one line says why), 75 waiting.",
    result_action="return_value",
    exit_on_error=False,
    print_error=False,
    # It would end the process without a word, and with --json without an answer.
    suppress_keyboard_interrupt=False,
    # Nothing in our texts is Markdown, and loading its parser takes a fifth of the time of --help.
    help_format="plaintext",
)
_EITHER = "(PROBLEM | --reference FILE) CANDIDATE [OPTIONS]"
app.command("agentgen.cli.solve:solve", name="solve", help="Search for a fast kernel for a problem.")
app.command("agentgen.cli.evaluate:evaluate", name="evaluate", help="Judge what is pending of a run, nothing else.")
app.command("agentgen.cli.record:keep", name="record", help="Keep a run's replies as its problem's recording.")
app.command("agentgen.cli.resume:resume", name="resume", help="Go on with a run that waits or was stopped.")
app.command(
    "agentgen.cli.verify:verify",
    name="verify",
    help="Judge one kernel: is it right, honest and fast?",
    usage=f"Usage: agentgen verify {_EITHER}",
)
app.command(
    "agentgen.cli.bench:bench",
    name="bench",
    help="Judge one kernel against every baseline, torch.compile's modes included.",
    usage=f"Usage: agentgen bench {_EITHER}",
)
app.command(
    "agentgen.cli.reverify:reverify",
    name="reverify",
    help="Certify one kernel: memory and race checkers, 100 draws, a second measurement.",
    usage="Usage: agentgen reverify (ENTRY | RUN | (PROBLEM | --reference FILE) CANDIDATE) [OPTIONS]",
)
app.command(
    "agentgen.cli.leaderboard:app", name="leaderboard", help="Show the certified kernels, or enter one of a run."
)
app.command(
    "agentgen.cli.eval:evaluate",
    name="eval",
    help="Judge a dataset's kernels and solve its problems.",
)
app.command("agentgen.cli.failures:app", name="failures", help="What runs could not do: list, keep as cases, shrink.")
app.command("agentgen.cli.report:report", name="report", help="Write a run as one HTML file.")
app.command("agentgen.cli.problems:app", name="problems", help="List the problems, show one, or import more.")
app.command("agentgen.cli.doctor:doctor", name="doctor", help="Tell what this machine can do.")


def main() -> None:
    """Runs the command of `sys.argv` and ends the process with its exit code."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # nohup and shells without job control have these ignored, and want that to stay so.
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _interrupt)
    streams.guard()
    sys.exit(run(sys.argv[1:]))


def run(arguments: Sequence[str]) -> int:
    """Runs one command line and returns its exit code."""
    as_json = wants_json(arguments)
    try:
        code = app(list(arguments))
    except CycloptsError as error:
        return _fail(f"{error} (agentgen --help shows the usage)", 2, as_json=as_json)
    except AgentgenError as error:
        return _fail(_with_notes(str(error), error), error.exit_code, as_json=as_json)
    except KeyboardInterrupt as error:
        return _fail(_with_notes("interrupted", error), INTERRUPTED, as_json=as_json)
    except OSError as error:
        if error.errno != ENAMETOOLONG:
            return _bug(error, as_json=as_json)
        return _fail(f"{error.strerror}: {str(error.filename)[:_SHOWN]}…", 2, as_json=as_json)
    except Exception as error:  # noqa: BLE001  (the border to the shell: even a bug has an exit code and an answer)
        return _bug(error, as_json=as_json)
    return code if isinstance(code, int) else 0


def _bug(error: Exception, *, as_json: bool) -> int:
    traceback.print_exception(error)
    return _fail(f"this is a fault in agentgen: {type(error).__name__}: {error}", BUG, as_json=as_json)


def _with_notes(message: str, error: BaseException) -> str:
    return "; ".join([message, *getattr(error, "__notes__", ())])


def _fail(message: str, exit_code: int, *, as_json: bool) -> int:
    line = " ".join(harmless(message).split())
    sys.stderr.write(f"agentgen: {line}\n")
    if as_json:
        try:
            answer({"error": line, "exit_code": exit_code})
        except StoreUnavailable as unheard:
            sys.stderr.write(f"agentgen: {unheard}\n")
    return exit_code


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    """Raises KeyboardInterrupt, so that context managers end what they began; a second signal cannot disturb them."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt
