"""What a trial found, in few words for a model: it pays for every line, and reads the first ones best."""

from __future__ import annotations

from collections.abc import Iterator

from agentgen.records.machine import Target
from agentgen.records.trial import Outcome, Trial
from agentgen.search.bottleneck import bottleneck_lines
from agentgen.search.facts import us
from agentgen.search.kernels import build_lines, profile_lines
from agentgen.search.located import located, raised

_LOG_LINES = 30
_LINES_BEFORE_ERROR = 4
_LINE_CHARACTERS = 240
_ACCURACY_ROWS = 6
_GUEST = "/sandbox/guest/serve.py"


def trial_report(trial: Trial | None, target: Target | None = None, source: str = "") -> str:
    """Returns what a model needs to go on from a trial: times and compiler figures, or what failed and where.

    Args:
        trial: None: not evaluated yet.
        target: Of the run; None: nothing is said of what binds.
        source: The candidate's, in which errors are looked up; "": they stay as the compilers say them.
    """
    if trial is None:
        return "It has not been evaluated."
    reasons = [reason.split("\n") for reason in trial.reasons]
    lines = [f"- Outcome: {trial.outcome.value}", *(f"- Reason: {_clip(first)}" for first, *_ in reasons)]
    lines += [f"- Failed check `{c.name}`: {_clip(c.evidence)}" for c in trial.checks if c.passed is False]
    lines += [*_times(trial), *(bottleneck_lines(target, trial) if target else ())]
    lines += [*_accuracy(trial), *build_lines(trial), *profile_lines(trial)]
    if trial.outcome is not Outcome.PASSED:
        lines += _errors([line for _, *rest in reasons for line in rest], trial, source)
    return "\n".join(lines)


def _errors(details: list[str], trial: Trial, source: str) -> Iterator[str]:
    """Yields the errors by the lines of the candidate, and what there is of a log where a compiler's are not found."""
    said = "\n".join([*trial.reasons, trial.log])
    compiled = located(source, said) if source else []
    found = compiled or (raised(source, said) if source else [])
    if found:
        text = "\n".join(_clip(line) for entry in found for line in entry.split("\n"))
        yield from _block("Errors, by the lines of this candidate's file:", text)
    log = _without_traceback(trial.log) if source else trial.log
    text = "" if compiled else useful_log("\n".join([*details, log]))
    if text:
        yield from _block("From the log:", text)


def _block(title: str, text: str) -> tuple[str, ...]:
    return "", title, "", "~~~text", text, "~~~"


def _without_traceback(log: str) -> str:
    """Returns what stands before the traceback that ends in the guest's own loop."""
    return log.split("Traceback (most recent call last):")[0] if _GUEST in log else log


def useful_log(log: str) -> str:
    """Returns the lines from shortly before the first error on, or the last lines where no line speaks of one."""
    lines = [_clip(line) for line in log.splitlines() if line.strip()]
    first = next((i for i, line in enumerate(lines) if "error" in line.lower()), None)
    if first is None:
        return "\n".join(lines[-_LOG_LINES:])
    start = max(0, first - _LINES_BEFORE_ERROR)
    kept = lines[start : start + _LOG_LINES]
    # A traceback says what happened in its last line.
    if lines[-1] not in kept:
        kept += ["...", lines[-1]]
    return "\n".join(kept)


def _times(trial: Trial) -> Iterator[str]:
    if trial.timing is None:
        if trial.outcome is Outcome.PASSED:
            yield "- Correct, but not timed on this machine"
        return
    timing = trial.timing
    yield f"- Time: {us(timing.median_us)} us (quartiles {us(timing.low_us)} to {us(timing.high_us)})"
    for speedup in trial.speedups:
        yield (
            f"- Against {speedup.baseline} ({us(speedup.baseline_us)} us): {speedup.ratio:.3f}x "
            f"(95% interval {speedup.low:.3f} to {speedup.high:.3f})"
        )
    if trial.roofline_fraction is not None:
        yield f"- Share of the roofline bound reached: {trial.roofline_fraction:.1%}"


def _accuracy(trial: Trial) -> Iterator[str]:
    """Yields the families nearest to or beyond their gate, the worst first."""
    gated = sorted((row for row in trial.accuracy if row.gated), key=lambda row: row.share_of_limit, reverse=True)
    shown = gated[:1] if trial.outcome is Outcome.PASSED else [row for row in gated if row.share_of_limit > 1]
    for row in shown[:_ACCURACY_ROWS]:
        error = "not finite" if row.relative_l2 is None else f"{row.relative_l2:.3g}"
        own = f", PyTorch itself {row.torch_relative_l2:.3g}" if row.torch_relative_l2 is not None else ""
        element = f"; worst element at {row.worst_element:.3g} of its limit" if row.worst_element is not None else ""
        yield (
            f"- Error at workload `{row.workload}`, values `{row.family}`: relative L2 {error} "
            f"(gate {row.gate:.3g}{own}){element}"
        )
    if len(shown) > _ACCURACY_ROWS:
        yield f"- and {len(shown) - _ACCURACY_ROWS} further families beyond their gate"
    if shown and trial.outcome is not Outcome.PASSED:
        fine = [f"{row.workload}/{row.family}" for row in gated if row.share_of_limit <= 1]
        yield f"- Within the gate: {', '.join(fine) or 'none'}"


def _clip(text: str) -> str:
    return text if len(text) <= _LINE_CHARACTERS else text[: _LINE_CHARACTERS - 3] + "..."
