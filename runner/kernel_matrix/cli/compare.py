"""``kernel-matrix compare``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from kernel_matrix.cli.opened_tables import merged
from kernel_matrix.cli.options import Json
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.errors import RegressionError, StoreError, UsageError
from kernel_matrix.results.descriptions import printable

if TYPE_CHECKING:
    import polars as pl
    from rich.table import Table

    from kernel_matrix.analysis.comparison import ComparedQuantity, Comparison, ComparisonAxis, ComparisonRules

_SHOWN = 20
"""Rows that are shown unless all are asked for."""

_Base = Annotated[Path, typer.Argument(metavar="BASE", help="Merged tables or a result folder: what was.")]
_New = Annotated[Path | None, typer.Argument(metavar="[NEW]", help="The same: what is. Left out with --between.")]
_Between = Annotated[
    str | None,
    typer.Option("--between", metavar="AXIS=A,B", help="Compare A with B of one folder: gpu, toolchain, dtype, …"),
]
_What = Annotated[str, typer.Option("--of", help="time, speedup or cycles.")]
_Margin = Annotated[float, typer.Option("--margin", help="A difference counts from this share on.")]
_Equivalence = Annotated[float, typer.Option("--equivalence", help="Equivalent: shown to be within this share.")]
_Q = Annotated[float, typer.Option("--q", help="Expected share of false alarms among differences.")]
_Floor = Annotated[
    float | None,
    typer.Option(
        "--floor", help="What identical code differs by, at least any margin; default: as these results show."
    ),
]
_Accepted = Annotated[Path | None, typer.Option("--accepted", metavar="FILE", help="Accepted regressions, as TOML.")]
_Confirm = Annotated[bool, typer.Option("--confirm", help="Run what is flagged again, in turns, and compare again.")]
_Matrix = Annotated[Path | None, typer.Option("--matrix", metavar="FILE", help="The matrix, for --confirm.")]
_Results = Annotated[
    Path | None, typer.Option("--results", metavar="DIR", help="Where --confirm keeps its records; else nowhere.")
]
_Engine = Annotated[str, typer.Option("--engine", help="auto, docker or process; for --confirm.")]
_Lock = Annotated[Path | None, typer.Option("--lock", metavar="FILE", help="Images lock, for --confirm.")]
_All = Annotated[bool, typer.Option("--all", help="Show every row.")]
_Markdown = Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Also write Markdown.")]
_JUnit = Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Also write JUnit.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def compare(
        base: _Base,
        new: _New = None,
        *,
        between: _Between = None,
        of: _What = "time",
        margin: _Margin = 0.01,
        equivalence: _Equivalence = 0.02,
        q: _Q = 0.01,
        floor: _Floor = None,
        accepted: _Accepted = None,
        confirm: _Confirm = False,
        matrix: _Matrix = None,
        results: _Results = None,
        engine: _Engine = "auto",
        lock: _Lock = None,
        all_: _All = False,
        json: Json = False,
        markdown: _Markdown = None,
        junit: _JUnit = None,
    ) -> None:
        """Compare two sets of results, or two values of one column of a set: what broke, what is slower."""
        from kernel_matrix.analysis.comparison import ComparisonRules  # noqa: PLC0415  # loads polars

        if (new is None) == (between is None):
            raise UsageError(
                "give either NEW or --between", next_step="compare OLD NEW, or compare DIR --between gpu=a,b"
            )
        if confirm and matrix is None:
            raise UsageError("--confirm needs the matrix to run", next_step="add --matrix matrix.toml")
        rules = ComparisonRules(of=_of(of), margin=margin, equivalence=equivalence, q=q, floor=floor)
        _check(rules)
        with ExitStack() as stack:
            sides = _sides(stack, base, new, between)
            found = _compared(sides, rules, accepted)
            if matrix is not None and confirm and not found.flagged().is_empty():
                from kernel_matrix.cli.confirm_runs import ConfirmOptions  # noqa: PLC0415  # loads the session
                from kernel_matrix.cli.confirm_runs import confirm as run_again  # noqa: PLC0415  # same

                folder = results or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="kernel-matrix-")))
                again = ConfirmOptions(matrix=matrix, folder=folder, engine=engine, lock=lock)
                found = run_again(found, sides.base, again)
        _write(found, markdown, junit)
        if json:
            print_json(_document(found))
        else:
            _print(found, everything=all_)
        _exit(found)


@dataclass(frozen=True, slots=True)
class _Sides:
    base: pl.LazyFrame
    new: pl.LazyFrame
    axis: ComparisonAxis
    names: tuple[str, str]


def _sides(stack: ExitStack, base: Path, new: Path | None, between: str | None) -> _Sides:
    """The two frames of cells; whatever is merged aside for them lives as long as ``stack``."""
    from kernel_matrix.analysis.compare import between as split  # noqa: PLC0415  # loads polars
    from kernel_matrix.analysis.comparison import ComparisonAxis  # noqa: PLC0415  # same

    first = _cells(stack, base)
    if new is not None:
        return _Sides(first, _cells(stack, new), ComparisonAxis.RESULTS, (str(base), str(new)))
    axis, was, now = _axis(between or "")
    return _Sides(*split(first, axis, was, now), axis, (was, now))


def _cells(stack: ExitStack, folder: Path) -> pl.LazyFrame:
    from kernel_matrix.analysis.tables import open_tables  # noqa: PLC0415  # loads polars

    if not folder.is_dir():
        raise UsageError(f"{folder} is no folder", next_step="Name merged tables or a result folder.")
    return open_tables(stack.enter_context(merged([folder]))).cells


def _axis(text: str) -> tuple[ComparisonAxis, str, str]:
    """Read ``AXIS=A,B``.

    :raises UsageError: for anything else.
    """
    from kernel_matrix.analysis.comparison import ComparisonAxis  # noqa: PLC0415  # loads polars

    name, _, values = text.partition("=")
    sides = [value.strip() for value in values.split(",")]
    axes = {axis.value: axis for axis in ComparisonAxis if axis is not ComparisonAxis.RESULTS}
    if name.strip() not in axes or len(sides) != 2 or not all(sides):
        raise UsageError(
            f"--between {text!r} is not AXIS=A,B",
            next_step=f"AXIS is one of {', '.join(axes)}; e.g. toolchain=cu124,cu130",
        )
    return axes[name.strip()], sides[0], sides[1]


def _of(text: str) -> ComparedQuantity:
    from kernel_matrix.analysis.comparison import ComparedQuantity  # noqa: PLC0415  # loads polars

    try:
        return ComparedQuantity(text)
    except ValueError:
        raise UsageError(f"--of {text}: allowed are {', '.join(of.value for of in ComparedQuantity)}") from None


def _check(rules: ComparisonRules) -> None:
    for name, value in (("margin", rules.margin), ("equivalence", rules.equivalence), ("floor", rules.floor or 0.0)):
        if not 0 <= value < 1:
            raise UsageError(f"--{name} {value:g} is no share from 0 to below 1", next_step="0.01 means 1 %")
    if not 0 < rules.q < 1:
        raise UsageError(f"--q {rules.q:g} is no share between 0 and 1", next_step="0.01 means 1 %")


def _compared(sides: _Sides, rules: ComparisonRules, accepted: Path | None) -> Comparison:
    from kernel_matrix.analysis.accepted import read_accepted  # noqa: PLC0415  # loads polars
    from kernel_matrix.analysis.compare import compare  # noqa: PLC0415  # same

    return compare(
        sides.base,
        sides.new,
        sides.axis,
        names=sides.names,
        rules=rules,
        accepted=read_accepted(accepted) if accepted else (),
        today=datetime.now(timezone.utc).date(),
    )


def _write(found: Comparison, markdown: Path | None, junit: Path | None) -> None:
    from kernel_matrix.report.junit import comparison_junit  # noqa: PLC0415  # loads polars
    from kernel_matrix.report.markdown import comparison_markdown  # noqa: PLC0415  # same

    for path, made in ((markdown, comparison_markdown), (junit, comparison_junit)):
        if path is None:
            continue
        try:
            path.write_text(made(found), encoding="utf-8")
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
            "margin": found.rules.least,
            "equivalence": found.rules.most,
            "q": found.rules.q,
            "floor": found.rules.floor,
            "floor_pairs": found.rules.floor_pairs,
        },
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


def _print(found: Comparison, *, everything: bool) -> None:
    out = console()
    counts = ", ".join(f"{number} {change.value.replace('_', ' ')}" for change, number in found.counts().items())
    out.print(printable(f"{found.base} → {found.new}: {found.rows.height} rows: {counts or 'none'}"), markup=False)
    if found.event is not None:
        out.print(printable(str(found.event)), markup=False)
    rows = list(_shown(found, everything=everything))
    if rows:
        out.print(_table(rows if everything else rows[:_SHOWN], found))
    if len(rows) > _SHOWN and not everything:
        out.print(f"… and {len(rows) - _SHOWN} more; --all shows every row")
    for note in found.notes:
        out.print(printable(note), markup=False)
    out.print(printable(str(found.rules)), markup=False)


def _shown(found: Comparison, *, everything: bool) -> Iterator[Mapping[str, Any]]:
    """The rows worth a line, the worst first: all but what is as it was."""
    from kernel_matrix.analysis.comparison import Change  # noqa: PLC0415  # loads polars

    quiet = () if everything else (Change.EQUIVALENT.value, Change.BOTH_FAILED.value)
    return (row for row in found.rows.iter_rows(named=True) if row["change"] not in quiet)


def _table(rows: list[Mapping[str, Any]], found: Comparison) -> Table:
    from rich.table import Table  # noqa: PLC0415  # rich is loaded only when something is printed
    from rich.text import Text  # noqa: PLC0415  # see above

    from kernel_matrix.report.evidence import evidence, named, percent  # noqa: PLC0415  # loads polars

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("change", "what", "gpu", "toolchain"):
        table.add_column(name, no_wrap=True)
    table.add_column("new/base", justify="right", no_wrap=True)
    table.add_column("evidence")
    for row in rows:
        mark = " *" if row["environment"] else ""
        texts = (
            f"{row['change'].replace('_', ' ')}{mark}",
            named(row),
            row["gpu"],
            row["toolchain"],
            percent(row["ratio"]),
            evidence(row, found.rules.of),
        )
        table.add_row(*(Text(printable(text or "")) for text in texts))
    return table


def _exit(found: Comparison) -> None:
    """Exit 5 where anything flagged remains."""
    flagged = found.flagged_said()
    if flagged:
        raise RegressionError(
            f"{found.base} → {found.new}: {flagged}",
            next_step="Add --confirm to run them again, or accept them with a reason: --accepted FILE.",
        )
