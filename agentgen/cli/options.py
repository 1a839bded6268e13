"""Options that several commands share, with their help. No pydantic here: the choices are those of `records`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

from cyclopts import Parameter, Token


def whole(_hint: object, tokens: Sequence[Token]) -> int:
    """Returns what an option says; cyclopts by itself rounds 1.5 to 2.

    Raises:
        ValueError: That is no whole number, in digits.
    """
    try:
        return int(tokens[0].value)
    except ValueError:
        raise ValueError(f"{tokens[0].value} is no whole number in digits") from None


Whole = Annotated[int, Parameter(converter=whole)]
WholeOrNone = Annotated[int | None, Parameter(converter=whole)]

LanguageName = Literal["triton", "cuda", "cpp"]
ArithmeticName = Literal["fp32", "tf32", "fp16", "bf16"]
EffortName = Literal["quick", "full"]
StrategyName = Literal["ideas-tree", "best-first", "best-of-n", "refine"]
SandboxName = Literal["jail", "docker", "none"]
DisplayName = Literal["live", "plain", "none"]

Languages = Annotated[
    tuple[LanguageName, ...],
    Parameter(
        name="--language",
        negative="",
        show_default=False,
        help="Language to write in; may be given several times. [default: triton and cuda on a GPU, cpp on a CPU]",
    ),
]
LanguageOption = Annotated[LanguageName | None, Parameter(help="Of the candidate. [default: guessed from its text]")]
Models = Annotated[
    tuple[str, ...],
    Parameter(
        name="--model",
        negative="",
        show_default=False,
        help="A server's name for a model, recorded, recorded:DIR, mailbox or mailbox:DIR; may be given several times, "
        "also for one part: ideas=NAME, code=NAME, repair=NAME.",
    ),
]
Device = Annotated[str | None, Parameter(help="auto, cpu or cuda:N. [default: auto, a GPU if there is one]")]
Devices = Annotated[
    str | None,
    Parameter(
        name="--device",
        help="auto, cpu, cuda:N, GPUs with commas between them, or cuda:all. [default: auto, a GPU if there is one]",
    ),
]
RunDevice = Annotated[
    str | None, Parameter(name="--device", help="auto, cpu or cuda:N. [default: the run's own, the first of several]")
]
KernelDevice = Annotated[
    str | None,
    Parameter(
        name="--device",
        help="auto, cpu or cuda:N. [default: of a RUN its own, the first of several; of an ENTRY cpu or cuda:0, "
        "whichever it is for; else auto, a GPU if there is one]",
    ),
]
OtherDevices = Annotated[
    str | None, Parameter(name="--device", help="As for solve, of the same kind. [default: the run's own]")
]
ArithmeticOption = Annotated[
    ArithmeticName | None,
    Parameter(help="What kernels may compute in; decides error gate and baselines. [default: the problem's own]"),
]
Sandbox = Annotated[
    SandboxName | None,
    Parameter(help="jail, as far as Linux allows it; docker; or none: candidates can do what you can. [default: jail]"),
]
BudgetUsd = Annotated[
    float | None, Parameter(help="Ask no model for more than so many dollars in this run. [default: no limit]")
]
BudgetTokens = Annotated[
    WholeOrNone, Parameter(help="Nor for more than so many tokens, input and output. [default: no limit]")
]
BudgetMinutes = Annotated[
    float | None, Parameter(help="Send no request later than so many minutes from now. [default: no limit]")
]
MaxCandidates = Annotated[WholeOrNone, Parameter(help="Keep no more candidates than so many. [default: no limit]")]
Strategies = Annotated[StrategyName | None, Parameter(help="How to search: docs/search.md. [default: ideas-tree]")]
Wait = Annotated[
    bool,
    Parameter(negative="", show_default=False, help="Stay and look for answers in the mailbox instead of ending (75)."),
]
Force = Annotated[
    bool, Parameter(negative="", show_default=False, help="Take a problem from outside even if it cannot be judged.")
]
Display = Annotated[
    DisplayName | None,
    Parameter(
        help="What is seen meanwhile: live, plain lines without colours, or none, only the end. "
        "[default: live on a terminal, else plain]"
    ),
]
Json = Annotated[bool, Parameter(negative="", show_default=False, help="Print exactly one JSON object on stdout.")]
