"""Who is asked for what."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentgen.errors import BadInput
from agentgen.models.mailbox import MailboxModel
from agentgen.models.roster import Part, Roster, split_part
from agentgen.records.base import content_hash
from agentgen.records.chat import Role

HOT, COLD, MENDER = (MailboxModel(Path(name)) for name in ("hot", "cold", "mender"))
IDS = [content_hash(number) for number in range(40)]


@pytest.mark.parametrize(
    ("given", "part", "name"),
    [
        ("gpt-5", None, "gpt-5"),
        ("ideas=gpt-5", Part.IDEAS, "gpt-5"),
        ("repair=mailbox:a=b", Part.REPAIR, "mailbox:a=b"),
        ("mailbox:a=b", None, "mailbox:a=b"),
        ("speed=gpt-5", None, "speed=gpt-5"),
    ],
)
def test_a_part_stands_before_the_name(given: str, part: Part | None, name: str) -> None:
    assert split_part(given) == (part, name)


def test_several_models_share_the_requests_by_their_ids() -> None:
    roster = Roster.of(HOT, COLD)
    chosen = [roster.chosen(role, one) for role in Role for one in IDS]
    assert chosen == [(HOT, COLD)[int(one, 16) % 2] for _ in Role for one in IDS]
    assert chosen.count(HOT) > 40 < chosen.count(COLD)


def test_a_model_for_a_part_answers_that_part_alone() -> None:
    roster = Roster(((Part.IDEAS, HOT), (None, COLD)))
    assert {roster.chosen(Role.IDEAS, one) for one in IDS} == {HOT}
    assert {roster.chosen(role, one) for role in (Role.WRITE, Role.REPAIR, Role.REFINE) for one in IDS} == {COLD}


def test_each_part_may_have_its_own_and_several() -> None:
    roster = Roster(((Part.IDEAS, HOT), (Part.CODE, COLD), (Part.CODE, HOT), (Part.REPAIR, MENDER)))
    assert {roster.chosen(Role.WRITE, one) for one in IDS} == {HOT, COLD}
    assert {roster.chosen(Role.REFINE, one) for one in IDS} == {HOT, COLD}
    assert {roster.chosen(Role.REPAIR, one) for one in IDS} == {MENDER}
    assert roster.models == (HOT, COLD, MENDER)


def test_a_part_without_a_model_is_refused() -> None:
    with pytest.raises(BadInput, match="no model for code and repair: give one for all with --model NAME"):
        Roster(((Part.IDEAS, HOT),))
