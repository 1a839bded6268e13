"""What a guest answers, taken apart with suspicion: these records are checked before anything reads them."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

from agentgen.records.trial import BuildReport, Outcome

Text = Annotated[str, Field(max_length=20_000)]


class _Claim(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=False)


class FailureClaim(_Claim):
    """What the guest says the candidate raised."""

    kind: Text
    message: Text
    traceback: Text = ""

    @property
    def outcome(self) -> Outcome:
        """The outcome that the kind stands for."""
        return _OUTCOMES.get(self.kind, Outcome.CRASHED)


class StateClaim(_Claim):
    """One parameter or buffer."""

    name: Text
    shape: Annotated[list[int], Field(max_length=16)]
    dtype: Text
    digest: Text


class Claim(_Claim):
    """Any answer; what a command does not answer stays at its default."""

    ok: bool
    failure: FailureClaim | None = None
    state: Annotated[list[StateClaim], Field(max_length=10_000)] = []
    prepare: bool = False
    builds: Annotated[list[BuildReport], Field(max_length=1000)] = []
    seconds: Annotated[float | None, Field(ge=0, allow_inf_nan=False)] = None
    """NaN, which JSON lets through, would agree with every clock."""
    queued: bool = False
    dispatched: dict[str, int] = {}


_OUTCOMES = {
    "build": Outcome.BUILD_FAILED,
    "memory": Outcome.OUT_OF_MEMORY,
    "shape": Outcome.WRONG_SHAPE,
    "layout": Outcome.WRONG_SHAPE,
    "dtype": Outcome.WRONG_DTYPE,
    "type": Outcome.CHEATED,
    "crash": Outcome.CRASHED,
}
