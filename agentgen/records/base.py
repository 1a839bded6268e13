"""The base of all records and their content hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, Self

from pydantic import AfterValidator, AwareDatetime, BaseModel, ConfigDict


def _in_utc(when: datetime) -> datetime:
    """Raises ValueError for a moment that has no year from 1 to 9999 in UTC, in which all dates are written."""
    try:
        when.astimezone(UTC)
    except OverflowError as error:
        raise ValueError("no date that UTC has") from error
    return when


Moment = Annotated[AwareDatetime, AfterValidator(_in_utc)]
"""A date with a time and a zone, as it was written down."""


class Record(BaseModel):
    """A frozen value. Unknown fields are refused, so a file of a newer version is noticed instead of half read."""

    model_config = ConfigDict(frozen=True, extra="forbid", ser_json_inf_nan="constants")

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Returns a copy that computes its content hash anew: pydantic would copy the cached one of the original."""
        copy = super().model_copy(update=update, deep=deep)
        for cached in copy.__dict__.keys() - type(self).model_fields.keys():
            vars(copy).pop(cached)
        return copy


def content_hash(*parts: object) -> str:
    """Returns 16 hex digits that identify `parts` (anything json can write; strings, numbers, lists, dicts).

    64 bits: among a million records of one store a collision has a chance of 3e-8.
    """
    text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
