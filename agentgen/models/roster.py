"""Who is asked for what: models side by side, each for everything or for one kind of request."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from agentgen.errors import BadInput
from agentgen.models.chat import ChatModel
from agentgen.records.chat import Role


class Part(StrEnum):
    """What a model may be chosen for."""

    IDEAS = "ideas"
    CODE = "code"
    REPAIR = "repair"


PART_OF: Final = {
    Role.IDEAS: Part.IDEAS,
    Role.WRITE: Part.CODE,
    Role.REFINE: Part.CODE,
    Role.REPAIR: Part.REPAIR,
}


def split_part(given: str) -> tuple[Part | None, str]:
    """Returns the part and the name in `ideas=gpt-5`, as a command line has it; None and the whole without a part."""
    part, equals, name = given.partition("=")
    return (Part(part), name) if equals and part in set(Part) else (None, given)


@dataclass(frozen=True)
class Roster:
    """The models of a run."""

    members: tuple[tuple[Part | None, ChatModel], ...]
    """None: for all that nobody was chosen for."""

    def __post_init__(self) -> None:
        """Raises BadInput where there is a kind of request that nobody answers."""
        parts = {part for part, _ in self.members}
        missing = [part.value for part in Part if part not in parts and None not in parts]
        if missing:
            raise BadInput(f"no model for {' and '.join(missing)}: give one for all with --model NAME")

    @classmethod
    def of(cls, *models: ChatModel) -> Roster:
        """Returns models that share all requests."""
        return cls(tuple((None, model) for model in models))

    @property
    def models(self) -> tuple[ChatModel, ...]:
        """All of them, each once."""
        return tuple({id(model): model for _, model in self.members}.values())

    def chosen(self, role: Role, first_id: str) -> ChatModel:
        """Returns who is asked. Several share the requests by the id of their first attempt, so that a resumed run asks
        the same one, and whose answer could not be used is asked again."""
        able = list(self._able(PART_OF[role])) or list(self._able(None))
        return able[int(first_id, 16) % len(able)]

    def _able(self, part: Part | None) -> Iterable[ChatModel]:
        return (model for chosen, model in self.members if chosen is part)
