"""``kernel-matrix results``."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from runner.cli.merge import merge_with_progress, printable
from runner.cli.output import console, print_json
from runner.core.vocab import Fault
from runner.errors import NothingSelectedError

if TYPE_CHECKING:
    from rich.table import Table

_NS_PER_US = 1000.0


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def results(
        folder: Path = typer.Argument(Path("results"), help="Merged tables, or a result folder."),
        filters: list[str] = typer.Option(
            [], "--filter", metavar="KEY=GLOB[,GLOB]", help="Keep matching cells; != drops them. Repeat to narrow."
        ),
        as_json: bool = typer.Option(False, "--json", help="Print one JSON document."),
    ) -> None:
        """Print the latest result of every cell, and why cells failed."""
        from runner.results.overview import filtered, overview, read_cells  # noqa: PLC0415  # loads polars

        with _tables(folder) as tables:
            rows = filtered(overview(read_cells(tables)), filters).to_dicts()
        if not rows:
            raise NothingSelectedError(f"no result in {folder} matches", next_step="Loosen --filter or name a folder.")
        if as_json:
            print_json(rows)
        else:
            _print(rows)


@contextmanager
def _tables(folder: Path) -> Iterator[Path]:
    """The folder of the tables: ``folder`` itself, or a temporary one that its records are merged into."""
    if (folder / "cells.parquet").is_file():
        yield folder
        return
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-") as aside:
        report = merge_with_progress([folder], Path(aside))
        if report.rejected:
            console(stderr=True).print(
                f"{len(report.rejected)} files are no valid records; `kernel-matrix merge {folder}` says why",
                markup=False,
            )
        yield Path(aside)


def _print(rows: list[dict[str, Any]]) -> None:
    out = console()
    out.print(_table(rows))
    failures = [row for row in rows if row["fault"] != Fault.NONE.value]
    for row in failures:
        where = f"{row['candidate']} {row['dtype']} {row['gpu']} {row['toolchain']}"
        why = f"{row['status']} at {row['stage']}, fault {row['fault']}: {row['message'] or 'no evidence'}"
        out.print(printable(f"{where}: {why}"), markup=False, overflow="ellipsis", no_wrap=True)
    passed = len(rows) - len(failures)
    out.print(f"{len(rows)} results: {passed} passed, {len(failures)} did not")


def _table(rows: list[Mapping[str, Any]] | list[dict[str, Any]]) -> Table:
    from rich.table import Table  # noqa: PLC0415  # rich is loaded only when something is printed
    from rich.text import Text  # noqa: PLC0415  # see above

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("problem", "candidate", "dtype", "gpu", "toolchain", "status"):
        table.add_column(name, no_wrap=True)
    for name in ("median µs", "baseline µs", "speed-up", "n"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("clocks", no_wrap=True)
    for row in rows:
        table.add_row(*(Text(printable(text)) for text in _texts(row)))
    return table


def _texts(row: Mapping[str, Any]) -> tuple[str, ...]:
    workload = f" [{row['workload']}]" if row["workload"] else ""
    return (
        f"{row['problem']}{workload}",
        str(row["candidate"]).removeprefix(f"{row['problem']}/"),
        *(str(row[name]) for name in ("dtype", "gpu", "toolchain", "status")),
        _microseconds(row["candidate_median_ns"]),
        _microseconds(row["baseline_median_ns"]),
        "" if row["speedup"] is None else f"{row['speedup']:.2f}×",
        str(row["samples"] or ""),
        row["clock_state"],
    )


def _microseconds(nanoseconds: float | None) -> str:
    return "" if nanoseconds is None else f"{nanoseconds / _NS_PER_US:.1f}"
