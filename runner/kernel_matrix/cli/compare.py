"""``kernel-matrix compare``."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, nullcontext, redirect_stdout
from dataclasses import asdict, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.opened_tables import opened
from kernel_matrix.cli.options import Filter, command_line
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.cli.table_options import TableOptions, table_verb
from kernel_matrix.cli.table_writer import TableColumn, on_request, write_table
from kernel_matrix.errors import NothingComparedError, RegressionError, StoreError, UsageError

if TYPE_CHECKING:
    from kernel_matrix.api.compare_results import ComparedQuantity, Comparison
    from kernel_matrix.api.results import Results

_SHOWN = 20
"""Rows that are shown unless all are asked for."""

_Base = Annotated[
    Path, typer.Argument(metavar="BASE", help="Merged tables, a result folder or a packed set: what was.")
]
_New = Annotated[Path | None, typer.Argument(metavar="[NEW]", help="The same: what is. Left out with --between.")]
_Between = Annotated[
    str | None,
    typer.Option("--between", metavar="AXIS=A,B", help="Compare A with B of one folder: gpu, toolchain, dtype, …"),
]
_What = Annotated[str, typer.Option("--of", help="time, speedup or cycles.")]
_Margin = Annotated[float, typer.Option("--margin", help="A difference counts from this share on.")]
_Equivalence = Annotated[float, typer.Option("--equivalence", help="Equivalent: shown to be within this share.")]
_Q = Annotated[float, typer.Option("--q", help="Expected share of false alarms among differences.")]
_Accepted = Annotated[Path | None, typer.Option("--accepted", metavar="FILE", help="Accepted regressions, as TOML.")]
_Confirm = Annotated[bool, typer.Option("--confirm", help="Run what is flagged again, in turns, and compare again.")]
_Matrix = Annotated[Path | None, typer.Option("--matrix", metavar="FILE", help="The matrix, for --confirm.")]
_Results = Annotated[
    Path | None, typer.Option("--results", metavar="DIR", help="Where --confirm keeps its records; else nowhere.")
]
_Sandbox = Annotated[str, typer.Option("--sandbox", help="auto, docker, unpacked or process; for --confirm.")]
_Lock = Annotated[Path | None, typer.Option("--lock", metavar="FILE", help="Images lock, for --confirm.")]
_All = Annotated[bool, typer.Option("--all", help="Show every row.")]
_Markdown = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Also write Markdown.")]
_JUnit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(table_verb(compare))


def compare(
    base: _Base,
    new: _New = None,
    *,
    between: _Between = None,
    filter_: Filter = None,
    of: _What = "time",
    margin: _Margin = 0.01,
    equivalence: _Equivalence = 0.02,
    q: _Q = 0.01,
    accepted: _Accepted = None,
    confirm: _Confirm = False,
    matrix: _Matrix = None,
    results: _Results = None,
    sandbox: _Sandbox = "auto",
    lock: _Lock = None,
    all_: _All = False,
    markdown: _Markdown = None,
    junit: _JUnit = None,
    table: TableOptions,
) -> None:
    """Compare two sets of results, or two values of one column of a set: what broke, what is slower."""
    from kernel_matrix.api.compare_results import ComparisonRules, comparison_junit, comparison_markdown
    from kernel_matrix.api.compare_results import compare as compare_results

    if (new is None) == (between is None):
        raise UsageError("give either NEW or --between", next_step="compare OLD NEW, or compare DIR --between gpu=a,b")
    if confirm and matrix is None:
        raise UsageError("--confirm needs the matrix to run", next_step="add --matrix matrix.toml")
    rules = ComparisonRules(of=_of(of), margin=margin, equivalence=equivalence, q=q)
    rules.check()
    with ExitStack() as stack:
        first = stack.enter_context(_opened(base, filter_))
        second = stack.enter_context(_opened(new, filter_)) if new is not None else None
        today = datetime.now(timezone.utc).date()
        found = compare_results(first, second, between=between, rules=rules, accepted=accepted, today=today)
        if matrix is not None and confirm and not found.flagged().is_empty():
            found = _confirm(found, first, matrix, results, sandbox=sandbox, lock=lock)
    _write(markdown, comparison_markdown, found)
    _write(junit, comparison_junit, found)
    if table.as_json:
        print_json(_document(found))
    elif table.for_people:
        _print(found, table, everything=all_)
    else:
        write_table(list(_shown(found, everything=all_)), _columns(found), table)
    _fail(found)


def _fail(found: Comparison) -> None:
    """Raise what the answer of a comparison is as an exit code."""
    from kernel_matrix.api.compare_results import Answered

    if found.answer is Answered.WORSE:
        raise RegressionError(
            f"{found.base} → {found.new}: {found.headline}",
            next_step="Add --confirm to run them again, or accept them with a reason: --accepted FILE.",
        )
    if found.answer is Answered.NOT_COMPARED:
        raise NothingComparedError(
            f"{found.base} → {found.new}: {found.headline}",
            next_step="Compare results of the same matrix; `kernel-matrix results FOLDER` lists what each side has.",
        )


def _confirm(
    found: Comparison, first: Results, matrix: Path, results: Path | None, *, sandbox: str, lock: Path | None
) -> Comparison:
    """Run flagged cells again, with progress on stderr; without ``results``, their records are not kept."""
    from kernel_matrix.api.compare_results import confirm
    from kernel_matrix.cli.progress import run_view

    with (
        nullcontext(results) if results else tempfile.TemporaryDirectory(prefix="kernel-matrix-") as folder,
        redirect_stdout(sys.stderr),  # standard output is the comparison's
        run_view(as_json=False) as view,
    ):
        return confirm(
            found,
            first,
            matrix,
            folder,
            sandbox=sandbox,
            lock=lock,
            listener=view.tell,
            command=command_line(),
        )


def _opened(folder: Path, filters: list[str] | None) -> AbstractContextManager[Results]:
    if not folder.exists():
        raise UsageError(f"there is no {folder}", next_step="Name merged tables, a result folder or a packed set.")
    return opened([folder], filters)


def _of(text: str) -> ComparedQuantity:
    from kernel_matrix.api.compare_results import ComparedQuantity

    try:
        return ComparedQuantity(text)
    except ValueError:
        raise UsageError(f"--of {text}: allowed are {', '.join(of.value for of in ComparedQuantity)}") from None


def _write(path: Path | None, make: Callable[[Comparison], str], found: Comparison) -> None:
    if path is None:
        return
    try:
        path.write_text(make(found), encoding="utf-8")
    except OSError as error:
        raise StoreError(f"{path} cannot be written: {error.strerror}") from None


def _document(found: Comparison) -> dict[str, Any]:
    event = found.event
    return {
        "base": found.base,
        "new": found.new,
        "axis": found.axis.value,
        "rules": {
            "of": found.rules.of.value,
            "margin": found.rules.margin,
            "equivalence": found.rules.equivalence,
            "q": found.rules.q,
        },
        "answer": found.answer.value,
        "headline": found.headline,
        "overall": [asdict(one) for one in found.overall],
        "counts": {change.value: number for change, number in found.counts().items()},
        "event": None
        if event is None
        else {
            "direction": event.direction.value,
            "moved": event.moved,
            "timed": event.timed,
            "changed": {fact.name: {"base": fact.base, "new": fact.new} for fact in event.changed},
        },
        "notes": list(found.notes),
        "rows": list(found.rows.iter_rows(named=True)),
    }


def _print(found: Comparison, table: TableOptions, *, everything: bool) -> None:
    out = console()
    counts = ", ".join(f"{number} {change.value.replace('_', ' ')}" for change, number in found.counts().items())
    out.print(printable(f"{found.base} → {found.new}: {found.headline}"), markup=False)
    out.print(printable(f"{found.rows.height} rows: {counts or 'none'}"), markup=False)
    for one in found.overall:
        where = "overall" if one.by == "all" else f"{one.by} {one.name}"
        out.print(printable(f"{where}: {one}"), markup=False)
    if found.event is not None:
        out.print(printable(str(found.event)), markup=False)
    rows = list(_shown(found, everything=everything))
    most = table.limit or (None if everything else _SHOWN)
    if rows:
        write_table(rows, _columns(found), replace(table, limit=most))
    for note in found.notes:
        out.print(printable(note), markup=False)
    out.print(printable(str(found.rules)), markup=False)


def _shown(found: Comparison, *, everything: bool) -> Iterator[Mapping[str, Any]]:
    """Yield the rows to print, the worst first: without ``--all``, only what changed."""
    from kernel_matrix.api.compare_results import Change

    quiet = () if everything else (Change.EQUIVALENT.value, Change.BOTH_FAILED.value)
    return (row for row in found.rows.iter_rows(named=True) if row["change"] not in quiet)


def _columns(found: Comparison) -> list[TableColumn]:
    from kernel_matrix.api.compare_results import evidence, named, percent

    def change(row: Mapping[str, Any]) -> str:
        return f"{row['change'].replace('_', ' ')}{' *' if row['environment'] else ''}"

    shown = [
        TableColumn(name="change", text=change),
        TableColumn(name="what", value=named, text=named, shortest=16),
        TableColumn(name="gpu", text=lambda row: row["gpu"] or "", rank=1),
        TableColumn(name="toolchain", text=lambda row: row["toolchain"] or "", rank=2),
        TableColumn(name="ratio", heading="new/base", text=lambda row: percent(row["ratio"]) or "", is_number=True),
        TableColumn(
            name="evidence",
            value=lambda row: evidence(row, found.rules.of),
            text=lambda row: evidence(row, found.rules.of) or "",
            wraps=True,
            shortest=24,
        ),
    ]
    return [*shown, *on_request(found.rows.columns, shown)]
