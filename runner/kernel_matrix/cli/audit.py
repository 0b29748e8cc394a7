"""``kernel-matrix audit``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import typer

from kernel_matrix.cli.opened_tables import merged
from kernel_matrix.cli.options import Folders, Json
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.errors import StoreError
from kernel_matrix.results.descriptions import printable

if TYPE_CHECKING:
    from kernel_matrix.analysis.audit import AuditCheck

_SHOWN: Final = 5
"""Findings of a check that are told one by one, unless all are asked for."""
_STYLES: Final = {"error": "bold red", "warning": "yellow", "note": "dim"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Heard:
    """What one check found: how much there is, and the rows that are told."""

    check: AuditCheck
    findings: int
    """Rows."""
    count: int
    """What they are about, summed."""
    rows: Sequence[dict[str, Any]]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def audit(
        folders: Folders = None,
        only: list[str] = typer.Option([], "--only", metavar="CHECK", help="Only this check. Repeat for more."),
        everything: bool = typer.Option(False, "--all", help="Tell every finding, not the first of each check."),
        strict: bool = typer.Option(False, "--strict", help="Exit 4 when there is a finding of severity error."),
        as_json: Json = False,
    ) -> None:
        """Tell which results cannot be believed, and why: impossible times, copies, wrong names, holes and more."""
        from kernel_matrix.analysis import audit as checks  # noqa: PLC0415  # loads polars
        from kernel_matrix.analysis.tables import open_tables  # noqa: PLC0415  # loads polars

        wanted = checks.chosen(only)
        heard = []
        with merged(folders or [Path("results")]) as found:
            tables = open_tables(found)
            rows = tables.cells.select("record").collect().height
            for check, findings in checks.audit(tables, wanted):
                shown = findings if everything else findings.head(_SHOWN)
                heard.append(
                    _Heard(
                        check=check, findings=findings.height, count=int(findings["count"].sum()), rows=shown.to_dicts()
                    )
                )
        if as_json:
            print_json(_document(heard, rows))
        else:
            _print(heard, rows)
        errors = [one for one in heard if one.findings and one.check.severity is checks.Severity.ERROR]
        if strict and errors:
            raise StoreError(
                f"{sum(one.findings for one in errors)} findings of severity error"
                f" ({', '.join(one.check.name for one in errors)})",
                next_step="Look at the rows named above; leave them out or measure them again.",
            )


def _document(heard: Sequence[_Heard], rows: int) -> dict[str, Any]:
    return {
        "rows": rows,
        "checks": [
            {
                "name": one.check.name,
                "severity": one.check.severity.value,
                "about": one.check.about,
                "findings": one.findings,
                "count": one.count,
                "rows": list(one.rows),
            }
            for one in heard
        ],
    }


def _print(heard: Sequence[_Heard], rows: int) -> None:
    from rich.text import Text  # noqa: PLC0415  # rich is loaded only when something is printed

    out = console()
    for one in heard:
        if not one.findings:
            continue
        severity = one.check.severity.value
        head = Text.assemble((severity, _STYLES[severity]), f" {one.check.name}: {one.check.about}")
        out.print(Text.assemble(head, f" {_number(one.findings)}."))
        for row in one.rows:
            out.print(f"    {printable(_line(row))}", markup=False, overflow="ellipsis", no_wrap=True)
        if one.findings > len(one.rows):
            out.print(f"    … and {one.findings - len(one.rows)} more: --all --only {one.check.name}")
    clean = [one.check.name for one in heard if not one.findings]
    if clean:
        out.print(f"nothing found by {len(clean)} of {len(heard)} checks: {', '.join(clean)}")
    said = Counter[str]()
    for one in heard:
        said[one.check.severity.value] += one.findings
    total = ", ".join(f"{number} {severity}{'' if number == 1 else 's'}" for severity, number in said.items())
    out.print(f"{rows} rows, {len(heard)} checks: {total}")


def _line(row: dict[str, Any]) -> str:
    names = ("gpu", "toolchain", "dtype", "problem", "workload", "candidate")
    where = " ".join(str(row[name]) for name in names if row[name] is not None)
    return f"{where}: {row['evidence']}" if where else str(row["evidence"])


def _number(findings: int) -> str:
    return "1 finding" if findings == 1 else f"{findings} findings"
