"""What a guest answers, taken apart with suspicion: these records are checked before anything reads them.

Whatever passes can be printed, stored and computed with: no number is beyond what can be meant, no text holds what a
terminal obeys or a file refuses. What is shown to people is escaped; what is compared with names is refused instead.
"""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from agentgen.records.trial import BuildReport, Outcome

MAX_TEXT = 20_000
MAX_ENTRIES = 10_000


def shown(text: str) -> str:
    """Returns `text` with control characters, halves of surrogate pairs and whatever else cannot be printed escaped."""
    return "".join(c if c.isprintable() or c in "\n\t" else c.encode("unicode_escape").decode() for c in text)


def _escaped(value: Any) -> Any:
    if not isinstance(value, str):
        return value  # refused for its type
    if len(value) > MAX_TEXT:
        raise ValueError(f"a text of {len(value)} characters")
    return shown(value)


def _printable(text: str) -> str:
    if not text.isprintable():
        raise ValueError("a name that cannot be printed")
    return text


def _plausible(build: BuildReport) -> BuildReport:
    """Refuses figures that no compiler reports."""
    figures = (build.registers, build.spill_bytes, build.shared_bytes)
    if any(figure is not None and not 0 <= figure < 1 << 31 for figure in figures):
        raise ValueError("a kernel with impossible figures")
    return build.model_copy(update={"kernel": _escaped(build.kernel)})


def _figure(value: Any) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None


Shown = Annotated[str, BeforeValidator(_escaped)]
Name = Annotated[str, Field(max_length=1000), AfterValidator(_printable)]
Count = Annotated[int, Field(ge=0, lt=1 << 53)]
"""Up to what a float and JSON's other readers hold exactly."""
Figure = Annotated[Count | None, BeforeValidator(_figure)]
"""For display only: nonsense is left out, and is no reason to refuse the answer."""
Amount = Annotated[float, Field(ge=0, le=1e12, allow_inf_nan=False)]
"""Seconds or microseconds. NaN, which JSON lets through, would agree with every clock."""


class _Claim(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", strict=True)


class FailureClaim(_Claim):
    """What the guest says the candidate raised."""

    kind: Shown
    message: Shown
    traceback: Shown = ""

    @property
    def outcome(self) -> Outcome:
        """The outcome that the kind stands for."""
        return _OUTCOMES.get(self.kind, Outcome.CRASHED)


class StateClaim(_Claim):
    """One parameter or buffer."""

    name: Name
    shape: Annotated[list[Count], Field(max_length=16)]
    dtype: Name
    digest: Name
    persistent: bool = True
    """Whether it is in the state dict."""


class KernelClaim(_Claim):
    """What CUPTI saw of one kernel."""

    name: Shown
    count: Count
    us: Amount
    registers: Figure = None
    blocks: Figure = None
    threads: Figure = None
    shared_bytes: Figure = None
    local_bytes: Figure = None


class Claim(_Claim):
    """Any answer; what a command does not answer stays at its default."""

    ok: bool
    failure: FailureClaim | None = None
    state: Annotated[list[StateClaim], Field(max_length=MAX_ENTRIES)] = []
    prepare: bool = False
    builds: Annotated[list[Annotated[BuildReport, AfterValidator(_plausible)]], Field(max_length=1000)] = []
    seconds: Amount | None = None
    queued: bool = False
    dispatched: Annotated[dict[Shown, Count], Field(max_length=MAX_ENTRIES)] = {}
    returned: Annotated[dict[Shown, Count], Field(max_length=MAX_ENTRIES)] = {}
    samples: Annotated[dict[Shown, Count], Field(max_length=MAX_ENTRIES)] | None = None
    kernels: Annotated[list[KernelClaim], Field(max_length=MAX_ENTRIES)] | None = None
    busy_us: Amount | None = None
    guarded: Count = 0

    @model_validator(mode="after")
    def _agrees_with_itself(self) -> Self:
        if self.ok is (self.failure is not None):
            raise ValueError("an answer is fine or says what failed")
        return self


_OUTCOMES = {
    "build": Outcome.BUILD_FAILED,
    "memory": Outcome.OUT_OF_MEMORY,
    "shape": Outcome.WRONG_SHAPE,
    "layout": Outcome.WRONG_SHAPE,
    "dtype": Outcome.WRONG_DTYPE,
    "type": Outcome.CHEATED,
    "state": Outcome.CHEATED,
    "crash": Outcome.CRASHED,
}
