"""Has candidates evaluated, each once, and keeps what was found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from agentgen.errors import AgentgenError, DeviceNotFound
from agentgen.records import events
from agentgen.records.candidate import Candidate
from agentgen.records.machine import Target
from agentgen.records.trial import Trial
from agentgen.search.halt import Halt
from agentgen.search.tree import Node, Tree


class Judge(Protocol):
    """Evaluates candidates of one problem on one device, or on several of one kind."""

    async def target(self) -> Target:
        """Returns what is known of the problem on this device; starts the device if needed.

        Raises:
            MachineFailure: among them DeviceNotFound when the run's device is not on this machine.
        """
        ...

    async def evaluate(self, candidate: Candidate, on_stage: Callable[[str], None]) -> Trial:
        """Returns what was found. A failing candidate is a trial, never an exception. Waits for a free device.

        Args:
            candidate: what to evaluate.
            on_stage: told each stage as it begins, in the thread of the event loop.

        Raises:
            MachineFailure, ReferenceInvalid: as for `target`.
        """
        ...


class Judging:
    """The evaluations of one walk through a run. Where the machine or a model fails nothing more is begun."""

    def __init__(self, tree: Tree, judge: Judge, halt: Halt, watch: Callable[[events.Event], None]) -> None:
        self._tree = tree
        self._judge = judge
        self._halt = halt
        self._watch = watch
        self.waiting = 0
        """Candidates that found their device away."""
        self.away: DeviceNotFound | None = None
        """Models are asked on: nothing failed."""

    async def found(self, round: int, candidate: Candidate) -> Node:
        """Returns a candidate of the tree with what was found of it, now or before; without where it could not be."""
        self._watch(events.CandidateWritten(round, candidate))
        node = self._tree.node(candidate.id)
        assert node is not None, "what is evaluated is in the tree"
        if node.score is None:
            trial = await self._trial(candidate)
            if trial is None:
                return node
            node = self._tree.add_trial(trial)
        if node.score is not None:
            self._watch(events.TrialDone(round, node.score))
        return node

    async def _trial(self, candidate: Candidate) -> Trial | None:
        try:
            if self.away is None and self._halt.failure is None:
                return await self._judge.evaluate(
                    candidate, lambda stage: self._watch(events.StageStarted(candidate.id, stage))
                )
        except DeviceNotFound as error:
            self.away = error
        except AgentgenError as error:  # also ReferenceInvalid, where a resumed run opens its judge only now
            self._halt.at(error)
        self.waiting += 1
        return None
