"""Who may be compared with whom, who stands where, and who ties."""

from __future__ import annotations

from pathlib import Path

from entry_records import MACHINE, REFERENCE, entry, problem

from agentgen.records.entry import Entry
from agentgen.report.standings import Board, boards, by_model
from agentgen.store.entries import Kept


def kept(*entries: Entry) -> list[Kept]:
    return [Kept(Path("/results") / one.place, one) for one in entries]


def ranked(board: Board) -> list[tuple[int, bool, str]]:
    return [(place.rank, place.tied, place.entry.candidate.source) for place in board.places]


def test_entries_stand_in_the_order_of_the_lower_ends() -> None:
    found = boards(kept(entry("slow", 2.0), entry("lucky", 5.0, wide=0.6), entry("sure", 4.0, wide=0.01)))
    assert len(found) == 1
    # The lucky one's interval is [2.0, 8.0]: it ties with the first, and stands behind it.
    assert ranked(found[0]) == [(1, True, "sure"), (1, True, "lucky"), (3, False, "slow")]


def test_a_tie_is_with_the_first_of_its_rank() -> None:
    # Each overlaps the next by 1%; the third does not reach the first.
    found = boards(kept(entry("a", 2.00), entry("b", 1.965), entry("c", 1.93), entry("d", 1.0)))
    assert ranked(found[0]) == [(1, True, "a"), (1, True, "b"), (3, False, "c"), (4, False, "d")]


def test_the_margin_of_identical_kernels_makes_ties_too() -> None:
    apart = boards(kept(entry("a", 2.0, wide=0.001), entry("b", 1.97, wide=0.001)))
    near = boards(kept(entry("a", 2.0, wide=0.001), entry("b", 1.985, wide=0.001)))
    assert [rank for rank, *_ in ranked(apart[0])] == [1, 2]
    assert [rank for rank, *_ in ranked(near[0])] == [1, 1]


def test_machines_problems_and_versions_have_boards_of_their_own() -> None:
    others = [
        entry("a", machine=MACHINE.model_copy(update=change))
        for change in ({"device": "NVIDIA L40S"}, {"cores": 16}, {"torch": "2.12.0"}, {"triton": None})
    ]
    found = boards(kept(entry("a"), *others, entry("a", of=problem("softmax"))))
    assert [board.problem for board in found] == ["relu"] * 5 + ["softmax"]
    assert all([rank for rank, *_ in ranked(board)] == [1] for board in found)
    assert not any(board.unlike for board in found)


def test_kernels_for_what_a_problem_was_before_stand_on_a_board_of_their_own() -> None:
    easier, renamed = problem(reference=REFERENCE + "# easier\n"), problem().model_copy(update={"title": "Words"})
    found = boards(kept(entry("a", 2.0), entry("b", 9.0, of=easier), entry("c", 1.0, of=renamed)))
    ranks = [[(rank, source) for rank, _, source in ranked(board)] for board in found]
    assert sorted(ranks) == [[(1, "a"), (2, "c")], [(1, "b")]]
    assert len({board.statement for board in found}) == 2


def test_drivers_share_a_board_that_says_so() -> None:
    newer = MACHINE.model_copy(update={"driver": "590.1", "python": "3.13.0", "memory_bytes": 1})
    found = boards(kept(entry("a"), entry("b", machine=newer)))
    assert len(found) == 1
    assert found[0].unlike == {"driver": ("580.159.04", "590.1"), "python": ("3.12.3", "3.13.0")}


def test_models_are_counted_by_the_kernels_they_wrote() -> None:
    found = boards(
        kept(
            entry("a", 4.0, model="good"),
            entry("b", 2.0, model="good"),
            entry("c", 3.0, model="fair"),
            entry("d", 1.5, model="fair", of=problem("softmax")),
            entry("e", 4.0, model="poor", machine=MACHINE.model_copy(update={"device": "NVIDIA L40S"})),
        )
    )
    counted = [(one.model, one.entries, one.boards, one.firsts) for one in by_model(found)]
    assert counted == [("fair", 2, 2, 1), ("good", 2, 1, 1), ("poor", 1, 1, 1)]
    assert [rank for _, rank in by_model(found)[0].best] == [2, 1]
    assert by_model(()) == ()
