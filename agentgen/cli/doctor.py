"""`agentgen doctor`: what this machine can do, asked of the programs that would do it. Keys only as yes or no."""

from __future__ import annotations

import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated
from urllib.parse import urlsplit

from cyclopts import Parameter

from agentgen import __version__, config, wiring
from agentgen.cli.answer import answer
from agentgen.cli.options import Json
from agentgen.cli.screen import screen
from agentgen.config import Layer, Settings
from agentgen.errors import AgentgenError, MachineFailure
from agentgen.records.machine import Ceilings, Machine
from agentgen.report import figures
from agentgen.report.layout import table
from agentgen.workers.devices import devices
from agentgen.workers.local import calibrate as measure
from agentgen.workers.local import describe

NOT_USABLE = 2


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report."""

    name: str
    value: str
    fault: str | None = None
    """What is wrong and what to do; None: nothing."""


def doctor(
    *,
    calibrate: Annotated[bool, Parameter(negative="", show_default=False)] = False,
    json: Json = False,
) -> int:
    """Tell what this machine can do. Ends with 2 where it cannot judge kernels at all.

    Args:
        calibrate: Measure copy bandwidth and matrix rates of each device (about a minute).
    """
    settings = config.here(Layer())
    findings = _merged([*_programs(), *_judge(), *_settings(settings)])
    ceilings = {device: measure(device) for device in devices()} if calibrate else {}
    shown = table(None, "what", "found")
    for finding in findings:
        shown.add_row(finding.name, finding.value)
    console = screen()
    console.print(shown)
    for device, (machine, found) in ceilings.items():
        console.print(f"{device}: {figures.machine(machine)}\n  {_rates(found)}")
    faults = [f"{finding.name}: {finding.fault}" for finding in findings if finding.fault]
    for fault in faults:
        console.print(f"to be mended: {fault}")
    if json:
        answer(
            {
                "ok": not faults,
                "faults": faults,
                **{finding.name: finding.value for finding in findings},
                "devices": list(devices()),
                "ceilings": {device: _as_json(*found) for device, found in ceilings.items()},
            }
        )
    return NOT_USABLE if faults else 0


def _programs() -> list[Finding]:
    compiler = shutil.which("g++")
    return [
        Finding("agentgen", __version__),
        Finding("python", platform.python_version()),
        Finding("g++", _yes(compiler), None if compiler else "C++ candidates need it: install gcc's C++ compiler"),
        Finding("nvcc", _yes(shutil.which("nvcc"))),
    ]


def _judge() -> list[Finding]:
    """What a judge program sees: torch is imported there, never here."""
    try:
        return [Finding(name, value) for name, value in describe().items()]
    except MachineFailure as error:
        return [Finding("judge", "no", str(error))]


def _merged(findings: Sequence[Finding]) -> list[Finding]:
    """Returns one finding a name: what the judge program sees counts, and a fault stays a fault."""
    merged: dict[str, Finding] = {}
    for finding in findings:
        before = merged.get(finding.name)
        merged[finding.name] = replace(finding, fault=finding.fault or before.fault) if before else finding
    return list(merged.values())


def _settings(settings: Settings) -> list[Finding]:
    try:
        names = wiring.problem_names(settings)
        problems = Finding("problems", ", ".join(names) or "none")
    except AgentgenError as error:
        problems = Finding("problems", "none", str(error))
    try:
        with wiring.ledger(settings):
            store = Finding("store", wiring.store_shown(settings))
    except AgentgenError as error:
        store = Finding("store", "no", str(error))
    return [
        Finding("OPENAI_API_KEY", _yes(settings.api_key)),
        # The host only: an address may hold a name and a password.
        Finding("AGENTGEN_BASE_URL", urlsplit(settings.base_url).hostname or "yes" if settings.base_url else "no"),
        Finding("model", ", ".join(settings.model) or "not chosen"),
        problems,
        store,
    ]


def _yes(found: str | None) -> str:
    return "yes" if found else "no"


def _rates(ceilings: Ceilings) -> str:
    rates = [f"{name.value} {rate / 1e12:.3g} TFLOP/s" for name, rate in ceilings.matmul_flops_per_s.items()]
    return ", ".join([f"copy {ceilings.copy_bytes_per_s / 1e9:.4g} GB/s (read plus written)", *rates])


def _as_json(machine: Machine, ceilings: Ceilings) -> Mapping[str, object]:
    return {"machine": machine.model_dump(mode="json"), **ceilings.model_dump(mode="json")}
