"""What `verify` and `bench` show of a kernel: verdict, checks with evidence, accuracy, times, seconds per stage."""

from __future__ import annotations

from collections.abc import Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from agentgen.records.trial import Accuracy, Timing, Trial
from agentgen.report import figures
from agentgen.report.layout import table
from agentgen.report.table import outcome_style

Explanations = Mapping[str, str]
"""What each check catches and what not, by its name."""


def findings(trial: Trial, *, all_accuracy: bool = False, explanations: Explanations | None = None) -> RenderableType:
    """Returns everything there is to say about a trial.

    Args:
        trial: what the judge found.
        all_accuracy: show each workload and family; otherwise only the worst of each workload.
        explanations: shown below the evidence of each check.
    """
    parts: list[RenderableType] = [
        Text.assemble(
            (trial.outcome.value, outcome_style(trial.outcome)), f"  {trial.problem}, {trial.arithmetic.value}"
        )
    ]
    parts += [Text(f"  {reason}") for reason in trial.reasons]
    if trial.checks:
        parts.append(_checks(trial, explanations or {}))
    if trial.accuracy:
        parts.append(_accuracy(trial, all_accuracy=all_accuracy))
        parts.append(Text(f"accuracy class reached everywhere: {_class(trial)}"))
    if trial.build:
        parts.append(_build(trial))
    if trial.profile:
        parts.append(_profile(trial))
    if trial.timing:
        parts.append(Text(_timing(trial.timing, trial.roofline_fraction)))
    elif trial.accepted:
        parts.append(Text("not timed", style="yellow"))
    if trial.speedups:
        parts.append(_speedups(trial))
    if trial.neighbours:
        parts.append(_neighbours(trial))
    if trial.log and not trial.accepted:
        parts += [
            Text("what the candidate printed and raised last (shown, not trusted):", style="dim"),
            Text(trial.log, style="dim"),
        ]
    stages = ", ".join(f"{stage} {seconds:.2f}" for stage, seconds in trial.seconds.items())
    parts.append(Text(f"seconds: {stages or figures.NOT_MEASURED}", style="dim"))
    parts.append(Text(f"on {figures.machine(trial.machine)}", style="dim"))
    return Group(*parts)


def trial_json(trial: Trial) -> dict[str, object]:
    """Returns the whole trial for `--json`, with what it says of itself: `accepted`, and the deciding `speedup`."""
    speedup = trial.speedup.model_dump(mode="json") if trial.speedup else None
    return {"accepted": trial.accepted, **trial.model_dump(mode="json"), "speedup": speedup}


def catalogue(explanations: Explanations) -> RenderableType:
    """Returns all checks there are, with what they catch and what not."""
    shown = table("what the judge looks at", "check", "what it catches, and what not")
    for name, text in explanations.items():
        shown.add_row(name, Text(text))
    return shown


_MARKS = {True: ("ok", "green"), False: ("FAILED", "red"), None: (figures.NOT_MEASURED, "yellow")}


def _checks(trial: Trial, explanations: Explanations) -> Table:
    shown = table("checks", "check", "", "evidence")
    for check in trial.checks:
        word, style = _MARKS[check.passed]
        evidence = Text(check.evidence)
        explanation = explanations.get(check.name.split(": ")[0]) or explanations.get(check.name)
        if explanation:
            evidence.append(f"\n{explanation}", style="dim")
        shown.add_row(check.name, Text(word, style=style), evidence)
    return shown


def _class(trial: Trial) -> str:
    reached = trial.accuracy_class
    if reached is None:
        return "none; not even bf16"
    better = reached is not trial.arithmetic
    return f"{reached.value} (the problem asks for {trial.arithmetic.value})" if better else reached.value


def _neighbours(trial: Trial) -> Table:
    shown = table("neighbouring shapes", "shape", "its median", "speedup over eager torch [95%]", "")
    for near in trial.neighbours:
        word = Text("worst", style="yellow") if near is trial.worst_neighbour else Text("")
        shown.add_row(near.workload, figures.time(near.median_us), figures.speedup(near.speedup), word)
    return shown


def _accuracy(trial: Trial, *, all_accuracy: bool) -> Table:
    """The worst of a workload is the row nearest to, or furthest beyond, either of its two gates."""
    rows = list(trial.accuracy)
    if not all_accuracy:
        worst = {row.workload: row for row in sorted(rows, key=_share_of_gate)}
        rows = [row for row in rows if row is worst[row.workload]]
    title = "accuracy against the float64 oracle" + (
        "" if all_accuracy else f" (worst family of {len(trial.accuracy)} rows)"
    )
    shown = table(title, "workload", "family", "draws", "relative L2", "gate", "torch's own", "worst element")
    for row in rows:
        shown.add_row(
            row.workload,
            row.family,
            str(row.draws),
            figures.error(row.relative_l2),
            figures.error(row.gate) if row.gated else "reported only",
            figures.error(row.torch_relative_l2),
            figures.error(row.worst_element),
        )
    return shown


def _share_of_gate(row: Accuracy) -> float:
    return row.share_of_limit if row.gated else -1.0


def _build(trial: Trial) -> Table:
    shown = table("build", "kernel", "registers", "spilled bytes", "shared bytes")
    for kernel in trial.build:
        numbers = (kernel.registers, kernel.spill_bytes, kernel.shared_bytes)
        shown.add_row(kernel.kernel, *(figures.NOT_MEASURED if number is None else str(number) for number in numbers))
    return shown


def _profile(trial: Trial) -> Table:
    title = "device time by kernel, as the instrumented guest told (shown, not trusted)"
    shown = table(title, "kernel", "launches a call", "us a call", "share", "threads", "blocks", "registers")
    for kernel in trial.profile:
        numbers = (kernel.threads, kernel.blocks, kernel.registers)
        told = (figures.NOT_MEASURED if number is None else str(number) for number in numbers)
        share = figures.percent(kernel.share)
        shown.add_row(kernel.kernel, f"{kernel.launches:.3g}", f"{kernel.us:.4g}", share, *told)
    return shown


def _timing(timing: Timing, roofline_fraction: float | None) -> str:
    text = (
        f"median {figures.time(timing.median_us)} (quartiles {figures.time(timing.low_us)} to "
        f"{figures.time(timing.high_us)}) over {timing.windows} windows of {timing.calls_per_window} cold calls in "
        f"{timing.guests} fresh guest{'s' if timing.guests > 1 else ''}; {timing.clock.value} clock"
    )
    if timing.guest_clock_us is not None:
        text += f", the guest claims {figures.time(timing.guest_clock_us)}"
    return f"{text}; {figures.percent(roofline_fraction)} of the roofline"


def _speedups(trial: Trial) -> Table:
    shown = table("speedup, best baseline first", "baseline", "its median", "speedup [95%]", "")
    for found in trial.speedups:
        word = Text("faster", style="green") if found.faster else Text("not beyond doubt", style="yellow")
        shown.add_row(found.baseline, figures.time(found.baseline_us), figures.speedup(found), word)
    return shown
