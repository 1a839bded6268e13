"""The base of all records and their content hash."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


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
