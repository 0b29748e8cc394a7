"""``kernel-matrix audit``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from kernel_matrix.cli.opened_tables import opened
from kernel_matrix.cli.options import Filter, Folders
from kernel_matrix.cli.output import console, print_json, write_cut_line
from kernel_matrix.cli.table_options import TableOptions, table_verb
from kernel_matrix.cli.table_writer import TableColumn, write_table
from kernel_matrix.errors import StoreError

if TYPE_CHECKING:
    from kernel_matrix.api.audit import AuditResult

_SHOWN: Final = 5
"""Findings of a check that are shown without ``--all``."""
_PLACE: Final = ("gpu", "toolchain", "dtype", "problem", "workload", "candidate")
_COLUMNS: Final = tuple(
    TableColumn(name=name) for name in ("check", "severity", *_PLACE, "gpu_uuid", "count", "evidence")
)
_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "dim"}


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    @table_verb
    def audit(
        folders: Folders = None,
        only: list[str] = typer.Option([], "--only", metavar="CHECK", help="Only this check. Repeat for more."),
        everything: bool = typer.Option(False, "--all", help="Tell every finding, not the first of each check."),
        strict: bool = typer.Option(False, "--strict", help="Exit 4 when there is a finding of severity error."),
        *,
        filter_: Filter = None,
        table: TableOptions,
    ) -> None:
        """Tell which results cannot be believed, and why: impossible times, copies, wrong names, holes and more."""
        from kernel_matrix.api.audit import Severity, check_names
        from kernel_matrix.api.audit import audit as audit_results

        check_names(only)
        with opened(folders or [Path("results")], filter_) as results:
            found = audit_results(results, only=only)
            rows = results.cells_count()
        most = None if everything else _SHOWN
        if table.as_json:
            print_json(_document(found, rows, most))
        elif table == TableOptions():
            _print(found, rows, most)
        else:
            write_table(_rows(found), _COLUMNS, table)
        errors = [one for one in found if one.findings.height and one.check.severity is Severity.ERROR]
        if strict and errors:
            raise StoreError(
                f"{sum(one.findings.height for one in errors)} findings of severity error"
                f" ({', '.join(one.check.name for one in errors)})",
                next_step="Look at the rows named above; leave them out or measure them again.",
            )


def _document(found: Sequence[AuditResult], rows: int, most: int | None) -> dict[str, Any]:
    return {
        "rows": rows,
        "checks": [
            {
                "name": one.check.name,
                "severity": one.check.severity.value,
                "about": one.check.about,
                "findings": one.findings.height,
                "count": int(one.findings["count"].sum()),
                "rows": one.findings[:most].to_dicts(),
            }
            for one in found
        ],
    }


def _rows(found: Sequence[AuditResult]) -> list[dict[str, Any]]:
    return [
        {"check": one.check.name, "severity": one.check.severity.value, **row}
        for one in found
        for row in one.findings.iter_rows(named=True)
    ]


def _print(found: Sequence[AuditResult], rows: int, most: int | None) -> None:
    from rich.text import Text

    out = console()
    for one in found:
        height = one.findings.height
        if not height:
            continue
        severity = one.check.severity.value
        head = Text.assemble((severity, _STYLES[severity]), f" {one.check.name}: {one.check.about}")
        out.print(Text.assemble(head, f" {height} finding{'' if height == 1 else 's'}."))
        for row in one.findings[:most].iter_rows(named=True):
            write_cut_line(f"    {_line(row)}")
        if most is not None and height > most:
            out.print(f"    … and {height - most} more: --all --only {one.check.name}")
    clean = [one.check.name for one in found if not one.findings.height]
    if clean:
        out.print(f"nothing found by {len(clean)} of {len(found)} checks: {', '.join(clean)}")
    counts = Counter[str]()
    for one in found:
        counts[one.check.severity.value] += one.findings.height
    total = ", ".join(f"{number} {severity}{'' if number == 1 else 's'}" for severity, number in counts.items())
    out.print(f"{rows} rows, {len(found)} checks: {total}")


def _line(row: dict[str, Any]) -> str:
    where = " ".join(str(row[name]) for name in _PLACE if row[name] is not None)
    return f"{where}: {row['evidence']}" if where else str(row["evidence"])
