"""``kernel-matrix doctor``: what a cell needs on this host, and what to do about what is missing."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_matrix.cli.options import Engine, Lock

if TYPE_CHECKING:
    from kernel_matrix.hosts.doctor.check_result import CheckResult
    from kernel_matrix.hosts.doctor.host import Host

_Matrix = Annotated[
    Path | None, typer.Option("--matrix", metavar="FILE", help="The matrix to examine for; ./matrix.toml.")
]
_Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where records would go.")]
_Json = Annotated[bool, typer.Option("--json", help="One JSON list of findings.")]

_MATRIX = Path("matrix.toml")
_STYLES = {"ok": "green", "warn": "yellow", "fail": "bold red"}


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def doctor(
        *,
        matrix: _Matrix = None,
        results: _Results = Path("results"),
        engine: Engine = "auto",
        lock: Lock = None,
        json: _Json = False,
    ) -> None:
        """Look at everything a cell needs on this host, and say what to do about it. Exit code 4 when a line fails."""
        from kernel_matrix.hosts.doctor import examine  # noqa: PLC0415  # --help must not wait for it
        from kernel_matrix.hosts.doctor.check_result import CheckVerdict  # noqa: PLC0415  # same

        findings = examine(_host(matrix, results, engine, lock))
        told = _tell_json(findings) if json else _tell(findings)
        if any(finding.verdict is CheckVerdict.FAIL for finding in told):
            raise typer.Exit(4)


def _host(matrix: Path | None, results: Path, engine: str, lock: Path | None) -> Host:
    """The host, for a matrix file that was named, or lies here, or is not there.

    :raises kernel_matrix.errors.UsageError: when what was named cannot be used.
    """
    from kernel_matrix.hosts.doctor.host import Host  # noqa: PLC0415  # --help must not wait for it
    from kernel_matrix.hosts.survey import check_engine  # noqa: PLC0415  # same
    from kernel_matrix.matrix.load import load_matrix  # noqa: PLC0415  # same

    check_engine(engine)
    if matrix is None and not _MATRIX.is_file():
        reason = f"there is no {_MATRIX} in this folder"
        return Host(engine=engine, matrix_reason=reason, lock_path=lock, results=results)
    return Host(engine=engine, matrix=load_matrix(matrix or _MATRIX), lock_path=lock, results=results)


def _tell_json(findings: Iterable[CheckResult]) -> list[CheckResult]:
    from dataclasses import asdict  # noqa: PLC0415  # --help must not wait for it

    from kernel_matrix.cli.output import print_json  # noqa: PLC0415  # same

    told = list(findings)
    print_json([asdict(finding) for finding in told])
    return told


def _tell(findings: Iterable[CheckResult]) -> list[CheckResult]:
    """Each finding as it comes, since some take their time, and one sentence at the end."""
    from rich.text import Text  # noqa: PLC0415  # rich is loaded only when something is printed

    from kernel_matrix.cli.output import console  # noqa: PLC0415  # same

    screen, told = console(), []
    for finding in findings:
        told.append(finding)
        verdict = finding.verdict.value
        line = Text.assemble((f"{verdict:<4}", _STYLES[verdict]), f"  {finding.subject}: {finding.found}")
        screen.print(line if not finding.advice else line.append(f"\n      → {finding.advice}"))
    screen.print(_sentence(told))
    return told


def _sentence(told: list[CheckResult]) -> str:
    from collections import Counter  # noqa: PLC0415  # --help must not wait for it

    counts = Counter(finding.verdict.value for finding in told)
    return ", ".join(f"{counts[verdict]} {verdict}" for verdict in _STYLES)
