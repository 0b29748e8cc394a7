"""Compare results, and run again what a comparison flagged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import date
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.accepted import Acceptance, read_accepted
from kernel_matrix.analysis.compare import between as _between
from kernel_matrix.analysis.compare import compare as _compare
from kernel_matrix.analysis.comparison import (
    Answered,
    Change,
    ComparedQuantity,
    Comparison,
    ComparisonAxis,
    ComparisonRules,
)
from kernel_matrix.analysis.confirmation import confirmed, rounds
from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.api.make_tables import merge
from kernel_matrix.api.plan import load_matrix, make_plan
from kernel_matrix.api.results import Results, as_results
from kernel_matrix.api.run_cells import CellSelection, Listener
from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.executors.local import Rerun
from kernel_matrix.hosts.survey import AUTO
from kernel_matrix.matrix import Match, Matrix, Override
from kernel_matrix.matrix.tiers import PUBLISH_SESSIONS, TIERS
from kernel_matrix.model.enums import Tier
from kernel_matrix.plan import Cell
from kernel_matrix.report.evidence import evidence, named, percent
from kernel_matrix.report.junit import comparison_junit
from kernel_matrix.report.markdown import comparison_markdown
from kernel_matrix.results.descriptions import describe_ranks

__all__ = [
    "Acceptance",
    "Answered",
    "Change",
    "ComparedQuantity",
    "Comparison",
    "ComparisonRules",
    "compare",
    "comparison_junit",
    "comparison_markdown",
    "confirm",
    "evidence",
    "named",
    "percent",
]

ROUNDS: Final = PUBLISH_SESSIONS
"""Rounds of a confirmation: as many as tier ``publish`` has sessions; a round has one session of each cell."""
_BOTH_RUN: Final = tuple(axis for axis in ComparisonAxis if axis.value in CELL_KEY)
"""Axes of which a matrix has both sides; of all others only the new side can be run today."""
_KEY: Final = ("gpu", "toolchain", "dtype", "problem", "ranks", "candidate")


def compare(
    base: Results | str | Path,
    new: Results | str | Path | None = None,
    *,
    between: str | None = None,
    rules: ComparisonRules | None = None,
    accepted: str | Path | None = None,
    today: date | None = None,
) -> Comparison:
    """Compare two sets of results, or two values of one column of a set.

    Args:
        base: Opened results, or a folder.
        new: The same; left out with ``between``.
        between: ``AXIS=A,B``: compare A with B of ``base``; AXIS is gpu, toolchain, dtype, driver or night.
        rules: The margins and the quantity that is compared.
        accepted: A TOML file of accepted regressions.
        today: The day on which an acceptance must still hold; by default all hold.

    Raises:
        UsageError: Not exactly one of ``new`` and ``between`` is given, or one of them is not usable.
        NothingSelectedError: A side has no cell.

    Examples:
        >>> import kernel_matrix
        >>> found = kernel_matrix.compare("results/example-h200.kmz", between="dtype=fp32,fp16")
        >>> found.base, found.new
        ('fp32', 'fp16')
    """
    if (new is None) == (between is None):
        raise UsageError("give either NEW or --between", next_step="compare OLD NEW, or compare DIR --between gpu=a,b")
    rules = rules or ComparisonRules()
    rules.check()
    first = as_results(base)
    if between is not None:
        axis, *names = _axis(between)
        sides = _between(first.tables.cells, axis, *names)
    else:
        second = as_results(new or base)
        axis, names = ComparisonAxis.RESULTS, [_name(first), _name(second)]
        sides = first.tables.cells, second.tables.cells
    return _compare(
        *sides,
        axis,
        names=(names[0], names[1]),
        rules=rules,
        accepted=read_accepted(Path(accepted)) if accepted else (),
        today=today,
    )


def confirm(
    found: Comparison,
    base: Results,
    matrix: Matrix | str | Path,
    folder: str | Path,
    *,
    sandbox: str = AUTO,
    lock: str | Path | None = None,
    listener: Listener | None = None,
    command: Sequence[str] = (),
) -> Comparison:
    """Run what a comparison flagged again, in turns, as tier ``publish`` measures; return what showed again.

    Args:
        found: The comparison.
        base: The base that was compared; it stands where that side cannot be run today.
        matrix: The matrix that has the flagged cells, or its file.
        folder: Records go to ``<folder>/results/<matrix name>/``, tables to ``<folder>/tables/``.
        sandbox: ``auto``, ``docker``, ``unpacked`` or ``process``.
        lock: The images lock; the matrix's own by default.
        listener: As for :func:`kernel_matrix.run`; every round is a run.
        command: As for :func:`kernel_matrix.run`.

    Raises:
        UsageError: The matrix cannot be used.
    """
    folder = Path(folder)
    loaded = _one_session_at_a_time(matrix if isinstance(matrix, Matrix) else load_matrix(matrix))
    plan = make_plan(loaded, sandbox=sandbox, lock=lock)
    planned = {_key_of(cell): cell for cell in plan.cells()}
    wanted = list(_wanted(found))
    impossible = {one.row: why for one in wanted if (why := _why_not(one, planned.get(one.key)))}
    cells = tuple(planned[key] for key in dict.fromkeys(one.key for one in wanted if one.row not in impossible))
    if not cells:
        return confirmed(found, replace(found, rows=found.rows.clear()), impossible)
    for number in range(ROUNDS):
        # There and back again, so that a steady drift of the machine falls on all cells alike.
        turn = cells if number % 2 == 0 else cells[::-1]
        again = CellSelection(matrix=loaded, host=plan.host, runnable=turn, command=command)
        again.run(folder / "results" / loaded.name, rerun=Rerun.ALL, listener=listener)
    merge(folder / "results", folder / "tables")
    with Results(folder / "tables") as results:
        done = confirmed(found, _compare_again(found, base, rounds(results.tables.cells)), impossible)
    if found.axis in _BOTH_RUN:
        return done
    note = f"{found.base} was not run again, what it measured is not here any more: its old sessions stand."
    return replace(done, notes=(*done.notes, note))


def _name(results: Results) -> str:
    return ", ".join(map(str, results.folders))


def _axis(text: str) -> tuple[ComparisonAxis, str, str]:
    """Read ``AXIS=A,B``."""
    name, _, values = text.partition("=")
    sides = [value.strip() for value in values.split(",")]
    axes = {axis.value: axis for axis in ComparisonAxis if axis is not ComparisonAxis.RESULTS}
    if name.strip() not in axes or len(sides) != 2 or not all(sides):
        raise UsageError(
            f"--between {text!r} is not AXIS=A,B",
            next_step=f"AXIS is one of {', '.join(axes)}; e.g. toolchain=cu124,cu130",
        )
    return axes[name.strip()], sides[0], sides[1]


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One cell of one side."""

    key: tuple[str | int, ...]
    content: str
    """Hash of the candidate as it was measured."""
    row: str
    """Id of the flagged row's cell on the new side."""


def _compare_again(found: Comparison, base: Results, ran: pl.LazyFrame) -> Comparison:
    names = (found.base, found.new)
    if found.axis in _BOTH_RUN:
        try:
            return _compare(*_between(ran, found.axis, *names), found.axis, names=names, rules=found.rules)
        except NothingSelectedError:  # one side came to no record
            return replace(found, rows=found.rows.clear())
    cells = base.tables.cells
    if found.axis is not ComparisonAxis.RESULTS:
        cells, _ = _between(cells, found.axis, *names)
    keys = ran.select("problem", "candidate").unique()
    kept = cells.join(keys, on=["problem", "candidate"], how="semi")
    return _compare(kept, ran, found.axis, names=names, rules=found.rules)


def _one_session_at_a_time(matrix: Matrix) -> Matrix:
    """Return the matrix with every cell measured as tier ``publish`` does, but one session per attempt."""
    protocol = {**TIERS[Tier.PUBLISH], "sessions": 1, "max_sessions": 1}
    return replace(matrix, overrides=(*matrix.overrides, Override(match=Match(), protocol=protocol)))


def _wanted(found: Comparison) -> Iterator[_Wanted]:
    """Yield the cells behind the flagged rows: new and, where it can be run, base."""
    sides: Iterable[tuple[str, str]] = (("base", found.base), ("new", found.new))
    for row in found.flagged().iter_rows(named=True):
        for side, name in sides:
            if side == "new" or found.axis in _BOTH_RUN:
                here = {**row, found.axis.value: name}
                yield _Wanted(tuple(here[part] for part in _KEY), row[f"{side}_candidate_sha256"], row["new_cell_id"])


def _key_of(cell: Cell) -> tuple[str | int, ...]:
    work = (cell.problem.id, cell.problem.ranks, cell.candidate.id)
    return (cell.gpu.name, cell.toolchain.name, cell.dtype.value, *work)


def _why_not(wanted: _Wanted, cell: Cell | None) -> str:
    """Return why the cell cannot be run again here; empty when it can."""
    if cell is None:
        names = (part if isinstance(part, str) else describe_ranks(part) for part in wanted.key)
        return f"{' '.join(filter(None, names))} is not in the matrix"
    if cell.reason is not None:
        return cell.reason.text
    return "" if cell.candidate.digest == wanted.content else "the candidate's content is not what was measured"
