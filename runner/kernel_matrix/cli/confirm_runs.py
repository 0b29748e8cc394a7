"""``kernel-matrix compare --confirm``: what is flagged runs again, in turns, and is compared again."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import polars as pl

from kernel_matrix.analysis.compare import between, compare
from kernel_matrix.analysis.comparison import Comparison, ComparisonAxis
from kernel_matrix.analysis.confirmation import confirmed, rounds
from kernel_matrix.analysis.outcomes import CELL_KEY
from kernel_matrix.analysis.tables import open_tables
from kernel_matrix.cli.merge import merge_with_progress
from kernel_matrix.cli.run_request import PlannedRun, new_run_id, run_work
from kernel_matrix.errors import NothingSelectedError
from kernel_matrix.executors.local import Rerun, RunPolicy
from kernel_matrix.hosts.survey import survey
from kernel_matrix.matrix import Match, Matrix, Override
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.matrix.tiers import PUBLISH_SESSIONS, TIERS
from kernel_matrix.model.enums import Tier
from kernel_matrix.plan import Cell, load_selection, make_plan
from kernel_matrix.results.store import RecordStore

ROUNDS: Final = PUBLISH_SESSIONS
"""How often every cell runs again; a round has one session of each."""
_BOTH_RUN: Final = tuple(axis for axis in ComparisonAxis if axis.value in CELL_KEY)
"""Axes of which a matrix has both sides; of all others only the new side can be run today."""
_KEY: Final = ("gpu", "toolchain", "dtype", "problem", "candidate")


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfirmOptions:
    """How to run again."""

    matrix: Path
    folder: Path
    """Where records and tables go: ``results/<matrix name>/`` and ``tables/``."""
    engine: str
    lock: Path | None


@dataclass(frozen=True, slots=True)
class _Wanted:
    """One cell of one side."""

    key: tuple[str, ...]
    content: str
    """Hash of the candidate as it was measured."""
    row: str
    """Id of the flagged row's cell on the new side."""


def confirm(found: Comparison, base: pl.LazyFrame, how: ConfirmOptions) -> Comparison:
    """Run what ``found`` flagged again, in turns, as tier ``publish`` measures; and say what showed again.

    :param base: cells of the base side, which stand where that side cannot be run today.
    :raises UsageError: when the matrix cannot be used.
    """
    wanted = list(_wanted(found))
    matrix = _one_session_at_a_time(load_matrix(how.matrix))
    at = survey(matrix, engine=how.engine, lock_path=how.lock)
    planned = {_key_of(cell): cell for cell in make_plan(matrix, load_selection(matrix), at.facts).cells()}
    impossible = {one.row: why for one in wanted if (why := _why_not(one, planned.get(one.key)))}
    cells = tuple(planned[key] for key in dict.fromkeys(one.key for one in wanted if one.row not in impossible))
    if not cells:
        return confirmed(found, replace(found, rows=found.rows.clear()), impossible)
    store = RecordStore(how.folder / "results" / matrix.name)
    with redirect_stdout(sys.stderr):  # standard output is the comparison's
        for number in range(ROUNDS):
            # There and back again, so that a steady drift of the machine falls on all cells alike.
            turn = cells if number % 2 == 0 else cells[::-1]
            orders = RunPolicy(run_id=new_run_id(), build_workers=matrix.policy.build_workers)
            run_work(
                PlannedRun(matrix=matrix, survey=at, runnable=turn, skipped=()), store, orders, Rerun.ALL, as_json=False
            )
        merge_with_progress([how.folder / "results"], how.folder / "tables")
    ran = rounds(open_tables([how.folder / "tables"]).cells)
    done = confirmed(found, _compared_again(found, base, ran), impossible)
    if found.axis in _BOTH_RUN:
        return done
    said = f"{found.base} was not run again, what it measured is not here any more: its old sessions stand."
    return replace(done, notes=(*done.notes, said))


def _compared_again(found: Comparison, base: pl.LazyFrame, ran: pl.LazyFrame) -> Comparison:
    names = (found.base, found.new)
    if found.axis in _BOTH_RUN:
        try:
            return compare(*between(ran, found.axis, *names), found.axis, names=names, rules=found.rules)
        except NothingSelectedError:  # one side came to no record
            return replace(found, rows=found.rows.clear())
    keys = ran.select("problem", "candidate").unique()
    kept = base.join(keys, on=["problem", "candidate"], how="semi")
    return compare(kept, ran, found.axis, names=names, rules=found.rules)


def _one_session_at_a_time(matrix: Matrix) -> Matrix:
    """The matrix with every cell measured as tier ``publish`` does, except that an attempt is a single session."""
    protocol = {**TIERS[Tier.PUBLISH], "sessions": 1, "max_sessions": 1}
    return replace(matrix, overrides=(*matrix.overrides, Override(match=Match(), protocol=protocol)))


def _wanted(found: Comparison) -> Iterable[_Wanted]:
    """The cells behind the flagged rows, new and, where it can be run, base."""
    sides: Sequence[tuple[str, str]] = (("base", found.base), ("new", found.new))
    for row in found.flagged().iter_rows(named=True):
        for side, name in sides if found.axis in _BOTH_RUN else sides[1:]:
            here = {**row, found.axis.value: name}
            yield _Wanted(tuple(here[part] for part in _KEY), row[f"{side}_candidate_sha256"], row["new_cell_id"])


def _key_of(cell: Cell) -> tuple[str, ...]:
    return (cell.gpu.name, cell.toolchain.name, cell.dtype.value, cell.problem.id, cell.candidate.id)


def _why_not(wanted: _Wanted, cell: Cell | None) -> str:
    """Why the cell cannot be run again here; empty when it can."""
    if cell is None:
        return f"{' '.join(wanted.key)} is not in the matrix"
    if cell.reason is not None:
        return cell.reason.text
    return "" if cell.candidate.digest == wanted.content else "the candidate's content is not what was measured"
