"""The guest's side of the socket: does what the judge commands, one candidate per process, and answers with claims.

    open       the gate's page                -> ok (a GPU's context is there; done by load, where nobody asked before)
    load       source                         -> ok | failure
    share      region + descriptor            -> ok
    construct  workload, init args, seed      -> state (names, shapes, digests), whether prepare() is defined
    weights    workload, name -> slot, how    -> ok (copied into the model or loaded, prepare() called)
    poison     byte, sizes                    -> ok
    guard      side, fill                     -> ok (what is allocated from now on lies between walls)
    guarded    -                              -> how many blocks did; ends the guest if a filling was written to
    window     workload, calls, shot, arm     -> queued (GPU, gate closed; CPU, armed) | done, the guest's own seconds
    go         -                              -> ok (an armed window's calls are made: all that a CPU's clock measures)
    finish     -                              -> done, the guest's own seconds
    collect    -                              -> ok (outputs held by a window copied into their buffers)
    ping       -                              -> ok

Whatever the candidate raises becomes a `failure` message. A protocol error ends the guest.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any

import torch

from agentgen import jit
from agentgen.errors import PeerClosed
from agentgen.sandbox.guest import candidate, failure, gate, guard, instruments, memory, sampler, window
from agentgen.sandbox.guest.poison import poison
from agentgen.sandbox.guest.unchanged import unchanged
from agentgen.sandbox.wire import Channel, Message

Answer = dict[str, Any]


class Guest:
    """State of the one candidate that this process serves."""

    def __init__(self, device: str, arch: str | None) -> None:
        self._device = device
        self._arch = arch
        self._arithmetic = ""
        self._module: Any = None
        self._models: dict[str, torch.nn.Module] = {}
        self._regions: dict[str, tuple[torch.Tensor, list[memory.Slot]]] = {}
        self._gate: gate.Gate | None = None
        self._finish: Callable[[], float] | None = None
        self._armed: Callable[[], Callable[[], float]] | None = None
        self._after = ExitStack()
        self._samples: dict[str, int] | None = None
        self._held: list[tuple[window.Tensors, window.Tensors]] = []

    def open(self, _: Message, fds: list[int]) -> Answer:
        """Makes the context on a GPU and opens the gate's page."""
        torch.cuda.set_device(self._device)
        torch.zeros(1, device=self._device)
        memory.reset_persisting_cache()  # 11.25 MiB of an H200's are set aside in a new context, and torch's too
        self._gate = gate.Gate(fds[0], str(self._arch))
        os.close(fds[0])
        return {}

    def load(self, message: Message, fds: list[int]) -> Answer:
        """Runs the candidate's module text, on a device that is open by then."""
        self._arithmetic = message["arithmetic"]
        if fds:
            self.open({}, fds)
        path = os.path.join(os.getcwd(), "candidate.py")
        self._module = candidate.load_module(message["source"], path)
        if not hasattr(self._module, "ModelNew"):
            raise AttributeError("the candidate defines no ModelNew")
        return {"builds": self._builds()}

    def share(self, message: Message, fds: list[int]) -> Answer:
        """Maps a region and notes where its tensors lie."""
        region = memory.attach(fds[0], message["nbytes"], message["gaps"], self._device)
        self._regions[message["region"]] = (
            region,
            [
                memory.Slot(s["offset"], tuple(s["shape"]), s["dtype"], tuple(s["strides"]) if s["strides"] else None)
                for s in message["slots"]
            ],
        )
        return {}

    def construct(self, message: Message, _: list[int]) -> Answer:
        """Builds the model for one workload under the public seed."""
        model = candidate.construct(self._module, message["init_args"], message["seed"], self._device)
        # Whatever module and constructor switched: torch computes in the problem's arithmetic from here on.
        candidate.set_arithmetic(self._arithmetic)
        self._models[message["workload"]] = model
        lasting = model.state_dict()
        described = [
            {
                "name": name,
                "persistent": name in lasting,
                "shape": list(tensor.shape),
                "dtype": str(tensor.dtype).removeprefix("torch."),
                "digest": candidate.digest(tensor),
            }
            for name, tensor in candidate.state(model)
        ]
        return {"state": described, "prepare": hasattr(model, "prepare"), "builds": self._builds()}

    def weights(self, message: Message, _: list[int]) -> Answer:
        """Gives the model the judge's values, then calls `prepare()` where it is defined."""
        model = self._models[message["workload"]]
        base, slots = self._regions[message["region"]]
        values = {name: slots[place].view(base) for name, place in message["assign"].items()}
        with torch.no_grad():
            candidate.set_state(model, values, load=message["load"])
            prepare = getattr(model, "prepare", None)
            if prepare is not None:
                prepare()
        self._synchronise()
        return {"builds": self._builds()}

    def poison(self, message: Message, _: list[int]) -> Answer:
        """Poisons the memory that the candidate will allocate."""
        poison(message["byte"], self._device, message["sizes"])
        return {}

    def guard(self, message: Message, _: list[int]) -> Answer:
        """Turns the guarding allocator on."""
        guard.switch(message["side"], message["fill"])
        return {}

    def guarded(self, _: Message, __: list[int]) -> Answer:
        """Looks at the fillings and counts."""
        guard.check()
        return {"guarded": guard.counts().guarded}

    def window(self, message: Message, _: list[int]) -> Answer:
        """Runs or queues n calls; the deciding clock is not here."""
        model = self._models[message["workload"]]
        # Views made anew: whatever an earlier call did to the shape of its inputs is gone.
        base, slots = self._regions[message["region"]]
        # A place in the region, or the value of an argument that is no tensor.
        inputs = [[slots[i].view(base) if isinstance(i, int) else i["value"] for i in row] for row in message["inputs"]]
        outputs = [[slots[i].view(base) for i in row] for row in message["outputs"]]
        shot = window.Shot(self._gate, message["shot"]) if self._gate and message["shot"] else None
        keep = self._hold if message["hold"] else None
        if message["arm"]:
            self._armed = functools.partial(
                window.run_window, model, inputs, outputs, message["calls"], keep=keep, layouts=message["layouts"]
            )
            self._after = ExitStack()
            self._after.enter_context(unchanged(inputs, self._device))
            self._samples = self._after.enter_context(sampler.sampling(message["sample"]))
            return {"queued": True}
        with (
            unchanged(inputs, self._device),
            instruments.recording(message["record"], self._device, message["sample"]) as seen,
        ):
            self._finish = window.run_window(model, inputs, outputs, message["calls"], shot, keep, message["layouts"])
            if seen is not None:
                self._synchronise()
        if shot:
            return {"queued": True}
        return {**self.finish({}, []), **(seen.claims() if seen else {}), "builds": self._builds()}

    def go(self, _: Message, __: list[int]) -> Answer:
        """Makes the calls of the armed window, and nothing else: 0.7 ms of looking round them would count."""
        if self._armed:
            self._finish = self._armed()
        return {}

    def finish(self, _: Message, __: list[int]) -> Answer:
        """Waits for the device; answers with this process's own clock; of a CPU's window also where its time went."""
        self._after.close()
        samples, self._samples = self._samples, None
        return {"seconds": self._finish() if self._finish else None, "samples": samples}

    def collect(self, _: Message, __: list[int]) -> Answer:
        """Copies the outputs that a window held to where they belong, and lets go of them."""
        for pair in self._held:
            window.copy_out(*pair)
        self._synchronise()
        self._held.clear()
        return {}

    def ping(self, _: Message, __: list[int]) -> Answer:
        """Answers."""
        return {}

    def _hold(self, sources: window.Tensors, targets: window.Tensors) -> None:
        self._held.append((sources, targets))

    def _synchronise(self) -> None:
        if self._device != "cpu":
            torch.cuda.synchronize()

    def _builds(self) -> list[Mapping[str, Any]]:
        return [build for build in jit.builds() if build["kernel"] not in {"gate", "mark", *sampler.FUNCTIONS}]


def serve(channel: Channel, device: str, arch: str | None) -> None:
    """Answers commands until the judge closes the socket."""
    guest = Guest(device, arch)
    commands = {
        "open": guest.open, "load": guest.load, "share": guest.share, "construct": guest.construct,
        "weights": guest.weights,
        "poison": guest.poison, "guard": guest.guard, "guarded": guest.guarded, "window": guest.window,
        "go": guest.go, "finish": guest.finish, "collect": guest.collect, "ping": guest.ping,
    }  # fmt: skip
    while True:
        try:
            message, fds = channel.receive()
        except PeerClosed:
            return
        command = str(message["do"])
        try:
            answer = commands[command](message, fds)
        except BaseException as error:  # noqa: BLE001  a candidate may raise anything, SystemExit included
            stage = "build" if command in {"load", "construct"} else "run"
            answer = failure.describe(error, stage)
        channel.send({"ok": "failure" not in answer, **answer})
