"""``kernel-matrix plan``."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.options import Filter, FleetFile, Lock, MatrixFile, Sandbox
from kernel_matrix.cli.output import console, duration, write_line
from kernel_matrix.cli.table_options import TableFormat, TableOptions, table_verb
from kernel_matrix.cli.table_writer import TableColumn, write_table

if TYPE_CHECKING:
    from rich.console import Console

    from kernel_matrix.api.plan import Cell, CellCounts, PlanTotals, RunPlan

_All = Annotated[bool, typer.Option("--all", help="List every cell with its reason, not only what runs here.")]
_CompileOnly = Annotated[bool, typer.Option("--compile-only", help="What `run --compile-only` would build.")]
_Results = Annotated[
    Path, typer.Option("--results", metavar="DIR", help="Records that say how much memory workloads need.")
]

_MOST_LINES = 40
"""Lines of a listing without ``--all``."""
_MOST_REASONS = 20
_MOST_VALUES = 30
"""Values per axis in the table of totals."""


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    @table_verb
    def plan(
        matrix: MatrixFile = Path("matrix.toml"),
        *,
        filter_: Filter = None,
        all_: _All = False,
        compile_only: _CompileOnly = False,
        sandbox: Sandbox = "auto",
        lock: Lock = None,
        results: _Results = Path("results"),
        fleet: FleetFile = None,
        table: TableOptions,
    ) -> None:
        """Show which cells run here or at the sites of a fleet, which do not and why, and how long it takes."""
        from kernel_matrix.api.plan import make_plan

        made = make_plan(
            matrix,
            filters=filter_ or (),
            sandbox=sandbox,
            lock=lock,
            compile_only=compile_only,
            results=results,
            fleet=fleet,
        )
        cells = _some_cells(made, matrix, filter_ or ())
        if table == TableOptions():
            show = _print_all if all_ else _print_overview
            show(made, cells)
        elif table == TableOptions(format=TableFormat.JSON):
            _write_json(made, cells)
        else:
            write_table([_cell_document(cell) for cell in cells], _CELL_COLUMNS, table)


def _some_cells(made: RunPlan, path: Path, terms: Sequence[str]) -> Iterator[Cell]:
    """Yield the cells that pass the filter.

    Raises:
        NothingSelectedError: There are none.
    """
    from kernel_matrix.errors import NothingSelectedError

    cells = made.cells()
    first = next(cells, None)
    if first is None:
        what = f"no cell of {path} passes --filter {' '.join(terms)}" if terms else f"{path} makes no cell"
        why = made.explain_no_match()
        what += f": {why}" if why else ""
        raise NothingSelectedError(what, next_step="kernel-matrix plan --all without --filter lists every cell")
    return chain((first,), cells)


# ---- JSON


def _write_json(made: RunPlan, cells: Iterable[Cell]) -> None:
    """Write one document cell by cell, because a plan may have millions."""
    from kernel_matrix.api.plan import tally
    from kernel_matrix.model.messages import SCHEMA_VERSION

    out = sys.stdout
    out.write('{"cells": [')
    totals = tally(_written(cells))
    out.write("\n],\n")
    rest = {
        "schema_version": SCHEMA_VERSION,
        "matrix": made.matrix.name,
        "engine": made.engine,
        "devices": made.devices,
        "totals": _totals_document(totals),
        "unreadable": [{"path": str(item.path), "reason": item.reason} for item in made.plan.selection.unreadable],
        "warnings": list(made.plan.warnings),
    }
    out.write(json.dumps(rest, allow_nan=False, indent=2, sort_keys=True)[len("{\n") :] + "\n")


def _written(cells: Iterable[Cell]) -> Iterator[Cell]:
    separator = "\n"
    for cell in cells:
        line = json.dumps(_cell_document(cell), allow_nan=False, separators=(",", ":"), sort_keys=True)
        sys.stdout.write(separator + line)
        separator = ",\n"
        yield cell


def _cell_document(cell: Cell) -> dict[str, Any]:
    return {
        "id": cell.id,
        "gpu": cell.gpu.name,
        "link": cell.link,
        "toolchain": cell.toolchain.name,
        "dtype": cell.dtype.value,
        "problem": cell.problem.id,
        "category": cell.problem.category,
        "level": cell.problem.level,
        "ranks": cell.problem.ranks,
        "candidate": cell.candidate.id,
        "language": cell.candidate.language.value,
        "workloads": [workload.name for workload in cell.workloads],
        "tier": cell.protocol.tier.value,
        "sessions": cell.protocol.sessions,
        "compile_only": cell.compile_only,
        "reason": None if cell.reason is None else _reason_document(cell.reason.kind.value, cell.reason.text),
        "expected_s": cell.expected_s,
    }


_CELL_COLUMNS = (
    TableColumn(name="gpu"),
    TableColumn(name="toolchain"),
    TableColumn(name="dtype"),
    TableColumn(name="candidate", shortest=16),
    TableColumn(
        name="expected_s",
        heading="expected",
        value=lambda cell: None if cell["reason"] else cell["expected_s"],
        text=lambda cell: "" if cell["reason"] else duration(cell["expected_s"]),
        is_number=True,
    ),
    TableColumn(
        name="reason",
        heading="why not here",
        value=lambda cell: cell["reason"] and f"{cell['reason']['kind']}: {cell['reason']['text']}",
        text=lambda cell: f"{cell['reason']['kind']}: {cell['reason']['text']}" if cell["reason"] else "",
        shortest=16,
    ),
    *(
        TableColumn(name=name, on_request=True)
        for name in ("id", "link", "problem", "category", "level", "ranks", "language", "workloads")
    ),
    *(TableColumn(name=name, on_request=True) for name in ("tier", "sessions", "compile_only")),
)


def _reason_document(kind: str, text: str) -> dict[str, str]:
    return {"kind": kind, "text": text}


def _totals_document(totals: PlanTotals) -> dict[str, Any]:
    return {
        "all": _tally_document(totals.all),
        "axes": {
            axis: {value: _tally_document(tally) for value, tally in tallies.items()}
            for axis, tallies in totals.axes.items()
        },
        "reasons": [
            {**_reason_document(reason.kind.value, reason.text), "cells": count}
            for reason, count in totals.reasons.items()
        ],
    }


def _tally_document(tally: CellCounts) -> dict[str, Any]:
    return {
        "cells": tally.cells,
        "runnable": tally.runnable,
        "expected_s": tally.expected_s,
        "reasons": {reason.value: count for reason, count in tally.skipped.items()},
    }


# ---- for people


def _gpu_words(cell: Cell) -> str:
    return cell.gpu.name if cell.link is None else f"{cell.gpu.name} ({cell.link})"


@dataclass(slots=True)
class _Group:
    """The runnable cells of one candidate."""

    cells: int = 0
    expected_s: float = 0.0
    gpus: dict[str, None] = field(default_factory=dict)
    toolchains: dict[str, None] = field(default_factory=dict)
    dtypes: dict[str, None] = field(default_factory=dict)

    def add(self, cell: Cell) -> None:
        self.cells += 1
        self.expected_s += cell.expected_s
        self.gpus[_gpu_words(cell)] = None
        self.toolchains[cell.toolchain.name] = None
        self.dtypes[cell.dtype.value] = None


def _print_overview(made: RunPlan, cells: Iterable[Cell]) -> None:
    from kernel_matrix.api.plan import tally

    groups: dict[str, _Group] = {}
    totals = tally(_grouped(cells, groups))
    screen = console()
    _print_groups(screen, groups, made.where)
    _print_summary(screen, made, totals)


def _grouped(cells: Iterable[Cell], groups: dict[str, _Group]) -> Iterator[Cell]:
    """Yield ``cells``, with the runnable ones noted in ``groups`` on the way."""
    for cell in cells:
        if cell.reason is None:
            groups.setdefault(cell.candidate.id, _Group()).add(cell)
        yield cell


def _print_groups(screen: Console, groups: dict[str, _Group], where: str) -> None:
    if not groups:
        return
    rows = [
        (
            name,
            f"{group.cells:,}",
            duration(group.expected_s),
            *map(", ".join, (group.gpus, group.toolchains, group.dtypes)),
        )
        for name, group in [*groups.items()][:_MOST_LINES]
    ]
    _print_rows(f"Runs {where}", ("candidate", "cells>", "expected>", "gpu", "toolchain", "dtype"), rows)
    _print_more(screen, len(groups) - _MOST_LINES)


def _print_all(made: RunPlan, cells: Iterable[Cell]) -> None:
    from kernel_matrix.api.plan import tally

    totals = tally(_listed(cells, made.where))
    _print_summary(console(), made, totals)


def _listed(cells: Iterable[Cell], where: str) -> Iterator[Cell]:
    """Yield ``cells``, each written as a plain line on the way: a table would need all of them first."""
    from kernel_matrix.api.wording import describe_ranks, visible

    for cell in cells:
        reason = cell.reason
        verb = "compiled" if cell.compile_only else "runs"
        here = f"{verb} {where}, {duration(cell.expected_s)}"
        outcome = here if reason is None else f"{reason.kind.value}: {reason.text}"
        ranks = describe_ranks(cell.problem.ranks)
        place = f"{_gpu_words(cell)} {cell.toolchain.name} {cell.dtype.value} {cell.candidate.id} {ranks}".rstrip()
        sys.stdout.write(visible(f"{cell.id}  {place}  {outcome}\n"))
        yield cell
    sys.stdout.flush()


def _print_summary(screen: Console, made: RunPlan, totals: PlanTotals) -> None:
    """Totals per axis, distinct reasons, what was found odd, and one sentence that says it all."""
    _print_totals(totals, made.where)
    _print_reasons(screen, totals)
    for item in made.plan.selection.unreadable:
        screen.print(f"cannot be read: {item}", markup=False)
    for warning in made.plan.warnings:
        screen.print(f"note: {warning}", markup=False)
    whole = totals.all
    for line in made.place_lines():
        screen.print(line, markup=False)
    counts = f"{whole.cells:,} cells, {whole.runnable:,} run {made.where}, {whole.cells - whole.runnable:,} do not"
    time = f"about {duration(whole.expected_s)} one after the other"
    screen.print(f"{made.matrix.name}: {counts}; {time}", markup=False)


def _print_totals(totals: PlanTotals, where: str) -> None:
    rows = []
    for axis, tallies in totals.axes.items():
        for value, tally in [*tallies.items()][:_MOST_VALUES]:
            reasons = ", ".join(f"{reason.value} {count:,}" for reason, count in tally.skipped.most_common())
            rows.append((axis, value, f"{tally.cells:,}", f"{tally.runnable:,}", duration(tally.expected_s), reasons))
        if len(tallies) > _MOST_VALUES:
            rows.append((axis, f"… and {len(tallies) - _MOST_VALUES} more (--json)", "", "", "", ""))
    _print_rows("Totals", ("axis", "value", "cells>", f"run {where}>", "expected>", f"not {where}, by reason"), rows)


def _print_reasons(screen: Console, totals: PlanTotals) -> None:
    if not totals.reasons:
        return
    rows = [
        (f"{count:,}", reason.kind.value, reason.text) for reason, count in [*totals.reasons.items()][:_MOST_REASONS]
    ]
    _print_rows("Reasons", ("cells>", "reason", "explanation"), rows)
    _print_more(screen, len(totals.reasons) - _MOST_REASONS)


def _print_more(screen: Console, more: int) -> None:
    if more > 0:
        screen.print(f"… and {more} more (--all)")


def _print_rows(title: str, headings: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    """Print texts as a table; a column whose heading ends in ``>`` is right-aligned."""
    names = [heading.rstrip(">") for heading in headings]
    columns = [
        TableColumn(
            name=name,
            is_number=heading.endswith(">"),
            shortest=None if heading.endswith(">") else 16,
            wraps=name == names[-1],
        )
        for name, heading in zip(names, headings, strict=True)
    ]
    write_table([dict(zip(names, row, strict=True)) for row in rows], columns, TableOptions(), title=title)
    write_line("")
