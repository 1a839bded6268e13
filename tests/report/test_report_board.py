"""What people and programs see of the leaderboard."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from entry_records import MACHINE, REFERENCE, again, entry, problem
from rich.console import Console, RenderableType

from agentgen.records.entry import Finding
from agentgen.report.board import (
    board_json,
    board_tables,
    boards_markdown,
    model_table,
    models_json,
    models_markdown,
)
from agentgen.report.standings import Board, boards, by_model
from agentgen.store.entries import Kept

HOSTILE = "[red]<b>\x1b[2J\u202e| @all `x` http://e.org\nnew line"
BASE = Path("/home/results/kernels")


def shown(renderable: RenderableType, width: int = 160) -> str:
    console = Console(width=width, markup=False, highlight=False)
    with console.capture() as capture:
        console.print(renderable)
    return capture.get()


@pytest.fixture
def found() -> tuple[Board, ...]:
    """Two kernels on one board, one on another."""
    first, second = entry("a", 4.0), entry("b", 2.0, model="other", title="Split the operands")
    third = entry("c", 1.5, of=problem("softmax"))
    return boards(
        [
            Kept(BASE / first.place, first, (again(Finding.SAME), again(Finding.SLOWER))),
            Kept(BASE / second.place, second),
            Kept(BASE / third.place, third),
        ]
    )


def test_people_see_all_that_is_known_of_an_entry(found: tuple[Board, ...]) -> None:
    lines = shown(board_tables(found, 160)).splitlines()
    assert lines[0].split("  ")[0] == "relu in fp32 on NVIDIA H200 (132 multiprocessors, torch 2.11.0, triton 3.6.0)"
    first = found[0].places[0].entry.id[:8]
    figures, words = (line.split() for line in lines if first in line)
    said = f"1 {first} triton 50.00 µs 4.00× [3.96, 4.04] 6.00× [5.94, 6.06] 0.50× odd sizes 50% fp32"
    assert figures == said.split()
    said = f"{first} Keep the filter in shared memory gpt-oss-120b 2026-11-22 2026-11-22: slower"
    assert words == said.split()
    assert any(line.startswith("softmax in fp32") for line in lines)


@pytest.mark.parametrize("width", [40, 80, 119, 120, 200])
def test_no_line_is_wider_than_the_screen_and_no_figure_lost(found: tuple[Board, ...], width: int) -> None:
    text = shown(board_tables(found, width), width)
    assert all(len(line) <= width for line in text.splitlines())
    if width >= 80:
        assert all(
            figure in text for figure in ("50.00 µs", "4.00× [3.96, 4.04]", "6.00× [5.94, 6.06]", "0.50× odd sizes")
        )


def test_no_entries_say_how_to_get_one() -> None:
    assert "agentgen leaderboard add RUN" in shown(board_tables((), 80))
    assert boards_markdown((), BASE) == "No entries.\n"
    assert board_json(()) == models_json(()) == []


def test_ties_and_what_boards_do_not_tell_apart_are_said() -> None:
    newer = MACHINE.model_copy(update={"driver": "590.1"})
    other = MACHINE.model_copy(update={"torch": "2.12.0"})
    entries = [entry("a"), entry("b", machine=newer), entry("c", machine=other)]
    text = shown(board_tables(boards(Kept(BASE / one.place, one) for one in entries), 160))
    assert text.count(" 1=  ") == 2
    assert text.count("certified under 580.159.04 and 590.1 (driver): not told apart here") == 1
    assert text.count("have a board of their own") == 2


def test_a_problem_that_was_changed_is_said_below_its_boards() -> None:
    changed = problem(reference=REFERENCE + "# easier\n")
    newer = MACHINE.model_copy(update={"driver": "590.1"})
    entries = [entry("a"), entry("b", of=changed, machine=newer), entry("c", of=problem("softmax"))]
    found = boards(Kept(BASE / one.place, one) for one in entries)
    text = shown(board_tables(found, 160))
    assert text.count("the problem was changed: kernels for what it was before, or after, have a board") == 2
    assert text.count("other machines") == 0
    assert len({one["statement"] for one in board_json(found) if one["problem"] == "relu"}) == 2


def test_programs_get_one_object_for_each_entry(found: tuple[Board, ...]) -> None:
    listed = json.loads(json.dumps(board_json(found)))
    assert [(one["problem"], one["rank"], one["tied"]) for one in listed] == [
        ("relu", 1, False),
        ("relu", 2, False),
        ("softmax", 1, False),
    ]
    first = listed[0]
    assert (first["arithmetic"], first["device"], first["language"]) == ("fp32", "NVIDIA H200", "triton")
    assert (first["median_us"], first["roofline_fraction"], first["model"]) == (50.0, 0.5, "gpt-oss-120b")
    assert (first["speedup"]["ratio"], first["over_eager"]["ratio"]) == (4.0, 6.0)
    assert first["worst_neighbour"]["workload"] == "odd sizes"
    assert first["reverified"]["finding"] == "slower"
    assert listed[1]["reverified"] is None
    assert first["entry"] == str(BASE / "relu" / "fp32" / "nvidia-h200" / first["kernel"])


def test_markdown_links_the_entries_that_lie_below_its_file(found: tuple[Board, ...]) -> None:
    text = boards_markdown(found, BASE.parents[1])
    one = found[0].places[0].entry.id
    assert f"| 1 | [{one[:8]}](results/kernels/relu/fp32/nvidia-h200/{one}) | triton | Keep the filter" in text
    assert text.count("\n### ") + text.startswith("### ") == 2
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert {line.replace(r"\|", "").count("|") for line in rows} == {14}
    assert "](" not in boards_markdown(found, Path("/elsewhere"))


def test_models_are_shown_with_their_ranks(found: tuple[Board, ...]) -> None:
    standings = by_model(found)
    line = next(line for line in shown(model_table(standings)).splitlines() if "gpt-oss" in line)
    ranks = "relu: 1 in fp32 on NVIDIA H200; softmax: 1 in fp32 on NVIDIA H200"
    assert line.split() == f"gpt-oss-120b 2 2 2 {ranks}".split()
    assert "| other | 1 | 1 | 0 | relu: 2 in fp32 on NVIDIA H200 |" in models_markdown(standings)
    assert models_json(standings)[1]["best"] == [
        {
            "problem": "relu",
            "arithmetic": "fp32",
            "device": "NVIDIA H200",
            "torch": "2.11.0",
            "triton": "3.6.0",
            "rank": 2,
        }
    ]


def test_words_of_others_do_nothing() -> None:
    hostile = entry("a", model=HOSTILE, title=HOSTILE, machine=MACHINE.model_copy(update={"device": HOSTILE}))
    found = boards([Kept(BASE / hostile.place, hostile)])
    standings = by_model(found)
    seen = shown(board_tables(found, 160)), shown(model_table(standings))
    written = boards_markdown(found, BASE), models_markdown(standings)
    for text in (*seen, *written):
        assert "\\x1b[2J\\u202e" in text.replace("\\\\", "\\").replace("\\[", "[")
        assert not {"\x1b", "\u202e"} & set(text)
    assert all("[red]<b>" in text for text in seen)
    for text in written:
        assert "<b>" not in text.replace("\\<", "")
        assert "http://" not in text
        assert "@all" not in text
        assert not [line for line in text.splitlines() if line.startswith("new line")]
