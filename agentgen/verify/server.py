"""What the judge's program (`program`) answers.

    describe                              -> facts about torch, triton, CUDA and the compilers
    explain                               -> every check with what it catches and what not
    calibrate                             -> machine, ceilings
    prepare    isolation                  -> ok, once torch is here and the guests' zygote is warm; `open` is quick then
    open       problem, arithmetic, effort, isolation -> target
    evaluate   candidate, timing, depth, then -> stage messages, then trial (`then`: the candidate that comes after it)
    admit      problem, arithmetic        -> admission

A failing machine or reference becomes an `error` message with the name of its class in `agentgen.errors`. When the
orchestrator's socket closes, the judge ends its guests and itself.
"""

from __future__ import annotations

import traceback

import torch

from agentgen.errors import AgentgenError, DeviceLost, DeviceNotFound, PeerClosed
from agentgen.records.candidate import Candidate
from agentgen.records.problem import Arithmetic, Problem
from agentgen.records.run import Effort, Isolation
from agentgen.records.trial import Depth
from agentgen.sandbox.protocol import Sandbox
from agentgen.sandbox.wire import Channel, Message
from agentgen.verify import ceilings, machine
from agentgen.verify.admission import admit
from agentgen.verify.evaluation import evaluate
from agentgen.verify.findings import CATALOGUE
from agentgen.verify.judge import Judge
from agentgen.verify.surroundings import surroundings


class Server:
    """Serves one orchestrator."""

    def __init__(self, channel: Channel, device: str, ahead: Sandbox | None = None) -> None:
        """Takes the orchestrator's channel, and the sandbox of the judge to be opened if it was started already."""
        self._channel = channel
        self._device = device
        self._ahead = ahead
        self._judge: Judge | None = None

    def run(self, message: Message) -> None:
        """Answers a first message, and then others until the orchestrator hangs up."""
        try:
            while True:
                self._channel.send(self._answer(message))
                message, _ = self._channel.receive()
        except PeerClosed:
            pass
        finally:
            for one in (self._judge, self._ahead):
                if one:
                    one.close()

    def _answer(self, message: Message) -> Message:
        try:
            return self._do(message)
        except AgentgenError as error:
            return {"error": type(error).__name__, "message": str(error)}
        except torch.AcceleratorError as error:
            # The judge's own context is broken: this process can do nothing more on the device.
            return {"error": DeviceLost.__name__, "message": f"{self._device} failed in the judge: {error}"}
        except Exception:  # noqa: BLE001  the border: a fault of ours must reach the user whole
            return {"error": "JudgeDied", "message": f"the judge has a bug:\n{traceback.format_exc()}"}

    def _do(self, message: Message) -> Message:
        what = message["do"]
        if what == "describe":
            return {"facts": surroundings()}
        if what == "explain":
            return {"checks": CATALOGUE}
        if what == "prepare":  # without a context: somebody else may be timed on the device
            if self._ahead:
                self._ahead.wait_until_warm()
            return {}
        _require_device(self._device)
        if what == "calibrate":
            found = machine.describe(self._device)
            measured = ceilings.measure(self._device, _measurable(self._device))
            return {"machine": found.model_dump(mode="json"), "ceilings": measured.model_dump(mode="json")}
        if what == "open":
            return self._open(message)
        if what == "admit":
            problem, arithmetic = Problem.model_validate(message["problem"]), Arithmetic(message["arithmetic"])
            return {"admission": admit(problem, self._device, arithmetic).model_dump(mode="json")}
        if what == "evaluate" and self._judge:
            candidate = Candidate.model_validate(message["candidate"])
            then = Candidate.model_validate(message["then"]) if message["then"] else None
            timing, depth = message["timing"], Depth(message["depth"])
            trial = evaluate(self._judge, candidate, self._tell_stage, timing=timing, depth=depth, then=then)
            return {"trial": trial.model_dump(mode="json")}
        raise ValueError(f"unknown command {what}")

    def _open(self, message: Message) -> Message:
        if self._judge:
            raise ValueError("a judge program serves one problem; start another for the next")
        problem, isolation = Problem.model_validate(message["problem"]), Isolation(message["isolation"])
        arithmetic, effort = Arithmetic(message["arithmetic"]), Effort(message["effort"])
        ahead, self._ahead = self._ahead, None
        self._judge = Judge(problem, self._device, arithmetic, effort, isolation, ahead)
        return {"target": self._judge.target().model_dump(mode="json")}

    def _tell_stage(self, stage: str) -> None:
        self._channel.send({"stage": stage})


def _measurable(device: str) -> tuple[Arithmetic, ...]:
    return (Arithmetic.FP32,) if device == "cpu" else tuple(Arithmetic)


def _require_device(device: str) -> None:
    if device == "cpu":
        return
    index = torch.device(device).index or 0
    if not torch.cuda.is_available() or index >= torch.cuda.device_count():
        count = torch.cuda.device_count()
        raise DeviceNotFound(f"torch sees {count} GPUs here, so there is no {device}; try --device cpu")
    torch.cuda.set_device(device)
