"""Admission: whether a problem can be judged at all, decided before any candidate is asked for."""

from __future__ import annotations

from agentgen.records.base import Record
from agentgen.records.machine import TensorShape
from agentgen.records.problem import Arithmetic


class Admission(Record):
    """What was found about one problem at its `main` workload on one device."""

    problem: str
    arithmetic: Arithmetic
    device: str
    reasons: tuple[str, ...]
    """Why it is refused; empty: it is admitted."""
    inputs: tuple[TensorShape, ...] = ()
    outputs: tuple[TensorShape, ...] = ()
    families: tuple[str, ...] = ()
    """Value families that were looked at, until each trivial answer had failed one."""
    seconds: float

    @property
    def admitted(self) -> bool:
        """Whether nothing speaks against it."""
        return not self.reasons
