"""Problems by machines: how close the best kernel of each board comes to what the machine could do at best.

A column is a kind of machine, as of a board: the same device with another torch has another one, for nothing is
ranked across them. A share of the roofline is of one machine and problem; what can be compared along a row or a column
is how much is left, and never a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from agentgen.records.machine import Machine
from agentgen.report import figures
from agentgen.report.board import kind
from agentgen.report.standings import Board
from agentgen.scoring.gate import OF_A_KIND

SHADES = 10
"""From a tenth of the roofline to all of it, and beyond."""


@dataclass(frozen=True, slots=True)
class Cell:
    """The best kernel of a board."""

    page: str
    share: str
    speedup: str
    """Over the best baseline."""
    entries: int
    """On the board."""
    shade: int | None
    """None: the share is not known."""


@dataclass(frozen=True, slots=True)
class Row:
    """One problem in one arithmetic, and what there is of it on each machine."""

    problem: str
    arithmetic: str
    span: int
    """Rows of the problem, in the first of them; 0 in the others."""
    cells: tuple[Cell | None, ...]


@dataclass(frozen=True, slots=True)
class Matrix:
    """All boards at a glance."""

    machines: tuple[tuple[str, str], ...]
    """Device, and what else parts it from others."""
    rows: tuple[Row, ...]


def matrix(boards: Sequence[Board], pages: Mapping[Path, str]) -> Matrix:
    """Returns the matrix.

    Args:
        boards: all of them.
        pages: by the folder of an entry.
    """
    machines = {_kind(board.machine): board.machine for board in sorted(boards, key=lambda one: _kind(one.machine))}
    found = {(board.problem, board.arithmetic, _kind(board.machine)): board for board in boards}
    names = list(dict.fromkeys((board.problem, board.arithmetic) for board in boards))
    of_problem = [problem for problem, _ in names]
    rows: list[Row] = []
    for n, (problem, arithmetic) in enumerate(names):
        cells = tuple(
            _cell(board, pages) if (board := found.get((problem, arithmetic, machine))) else None
            for machine in machines
        )
        first = n == 0 or of_problem[n - 1] != problem
        rows.append(Row(problem, arithmetic, of_problem.count(problem) if first else 0, cells))
    return Matrix(tuple((machine.device, kind(machine)) for machine in machines.values()), tuple(rows))


def _kind(machine: Machine) -> tuple[str, ...]:
    return (machine.device, *(str(getattr(machine, field)) for field in OF_A_KIND))


def _cell(board: Board, pages: Mapping[Path, str]) -> Cell:
    best = board.places[0]
    trial = best.entry.trial
    share, speedup = trial.roofline_fraction, trial.speedup
    return Cell(
        pages[best.kept.folder],
        figures.percent(share),
        f"{speedup.ratio:.2f}×" if speedup else figures.NOT_MEASURED,
        len(board.places),
        None if share is None else min(max(int(SHADES * share), 0), SHADES),
    )
