"""``kernel-matrix doctor``."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_matrix.cli.options import Json, Lock, Sandbox

if TYPE_CHECKING:
    from kernel_matrix.api.host import CheckResult

_Matrix = Annotated[
    Path | None, typer.Option("--matrix", metavar="FILE", help="The matrix to examine for; ./matrix.toml.")
]
_Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where records would go.")]
_Trial = Annotated[
    bool, typer.Option("--trial/--no-trial", help="Also run a reference in the sandbox, which takes seconds.")
]

_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def doctor(
        *,
        matrix: _Matrix = None,
        results: _Results = Path("results"),
        sandbox: Sandbox = "auto",
        lock: Lock = None,
        trial: _Trial = True,
        json: Json = False,
    ) -> None:
        """Look at everything a cell needs on this host, and say what to do about it. Exit code 4 when a line fails."""
        from kernel_matrix.api.host import CheckVerdict, diagnose_host

        results_of_checks = diagnose_host(matrix, results=results, sandbox=sandbox, lock=lock, trial=trial)
        shown = _print_json(results_of_checks) if json else _print(results_of_checks)
        if any(result.verdict is CheckVerdict.FAIL for result in shown):
            raise typer.Exit(4)


def _print_json(findings: Iterable[CheckResult]) -> list[CheckResult]:
    from dataclasses import asdict

    from kernel_matrix.cli.output import print_json

    shown = list(findings)
    print_json([asdict(finding) for finding in shown])
    return shown


def _print(findings: Iterable[CheckResult]) -> list[CheckResult]:
    """Print each result as it comes, since some take their time, and the counts at the end."""
    from collections import Counter

    from rich.text import Text

    from kernel_matrix.cli.output import console

    screen, shown = console(), []
    for finding in findings:
        shown.append(finding)
        verdict = finding.verdict.value
        line = Text.assemble((f"{verdict:<4}", _STYLES[verdict]), f"  {finding.subject}: {finding.found}")
        screen.print(line if not finding.advice else line.append(f"\n      → {finding.advice}"))
    counts = Counter(finding.verdict.value for finding in shown)
    screen.print(", ".join(f"{counts[verdict]} {verdict}" for verdict in _STYLES))
    return shown
