"""What a trial found, in few words for a model: it pays for every line, and reads the first ones best."""

from __future__ import annotations

from collections.abc import Iterator

from agentgen.records.trial import Outcome, Trial

_LOG_LINES = 30
_LINES_BEFORE_ERROR = 4
_LINE_CHARACTERS = 240
_ACCURACY_ROWS = 6


def trial_report(trial: Trial | None) -> str:
    """Returns what a model needs to go on from a trial: times and compiler figures, or what failed and how."""
    if trial is None:
        return "It has not been evaluated."
    lines = [f"- Outcome: {trial.outcome.value}", *(f"- Reason: {_clip(reason)}" for reason in trial.reasons)]
    lines += [f"- Failed check `{c.name}`: {_clip(c.evidence)}" for c in trial.checks if c.passed is False]
    lines += [*_times(trial), *_accuracy(trial), *_build(trial)]
    log = useful_log(trial.log) if trial.outcome is not Outcome.PASSED else ""
    if log:
        lines += ["", "From the log:", "", "~~~text", log, "~~~"]
    return "\n".join(lines)


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
    yield f"- Time: {timing.median_us:.4g} us (quartiles {timing.low_us:.4g} to {timing.high_us:.4g})"
    for speedup in trial.speedups:
        yield (
            f"- Against {speedup.baseline} ({speedup.baseline_us:.4g} us): {speedup.ratio:.3f}x "
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


def _build(trial: Trial) -> Iterator[str]:
    for build in trial.build:
        figures = (
            ("registers", build.registers),
            ("bytes of spills", build.spill_bytes),
            ("bytes of shared memory", build.shared_bytes),
        )
        known = ", ".join(f"{value} {name}" for name, value in figures if value is not None)
        if known:
            yield f"- Kernel `{build.kernel}`: {known}"


def _clip(text: str) -> str:
    return text if len(text) <= _LINE_CHARACTERS else text[: _LINE_CHARACTERS - 3] + "..."
