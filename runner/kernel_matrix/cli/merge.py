"""``kernel-matrix merge``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kernel_matrix.api.wording import describe_discards, printable
from kernel_matrix.cli.options import Json
from kernel_matrix.cli.output import console, print_json, progress_bar
from kernel_matrix.errors import StoreError

if TYPE_CHECKING:
    from kernel_matrix.api.make_tables import MergeReport

_SHOWN = 20
"""Rejections that are shown one by one; all of them are in the file beside the tables."""


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def merge(
        folders: list[Path] = typer.Argument(
            None, metavar="[FOLDER]...", help="Result folders or packed sets; default: results."
        ),
        out: Path = typer.Option(Path("tables"), help="Folder the tables are written to."),
        traces: bool = typer.Option(
            False, "--traces", help="Also write the table telemetry: large, every sample of it."
        ),
        as_json: Json = False,
        strict: bool = typer.Option(False, "--strict", help="Exit 4 when a file was put aside."),
    ) -> None:
        """Check every record and write the tables cells, samples, kernels and hosts as Parquet."""
        from kernel_matrix.api.make_tables import merge as merge_folders
        from kernel_matrix.api.make_tables import rejected_list

        with progress_bar() as progress:
            report = merge_folders(folders or [Path("results")], out, traces=traces, progress=progress)
        aside = rejected_list(out)
        if as_json:
            print_json(_document(report, aside))
        else:
            _print(report, aside)
        if strict and report.rejected:
            raise StoreError(
                f"{len(report.rejected)} files were put aside",
                next_step=f"{aside} says why for each; move them away or run their cells again.",
            )


def _document(report: MergeReport, aside: Path) -> dict[str, Any]:
    return {
        "files": report.files,
        "records": report.records,
        "duplicates": report.duplicates,
        "samples": report.samples,
        "discarded": dict(report.discarded),
        "clocks": dict(report.clocks),
        "traces": report.traces,
        "telemetry_samples": report.telemetry_samples,
        "runs": report.runs,
        "tables": {name: str(file) for name, file in report.tables.items()},
        "rejected_list": str(aside),
        "rejected": [{"path": r.path, "reason": r.reason.value, "detail": r.detail} for r in report.rejected],
    }


def _print(report: MergeReport, aside: Path) -> None:
    say = console().print
    say(
        f"{report.records} records with {report.samples} samples from {report.files} files"
        f" ({report.duplicates} duplicates, {len(report.rejected)} put aside), {report.runs} runs"
    )
    if report.records:
        say(f"clocks: {', '.join(f'{number} {said}' for said, number in sorted(report.clocks.items()))}")
    if any(report.discarded.values()):
        say(f"samples discarded: {describe_discards(report.discarded)}")
    if "telemetry" in report.tables:
        say(f"{report.traces} traces with {report.telemetry_samples} samples of telemetry")
    for file in report.tables.values():
        say(f"  {file}", markup=False)
    for rejection in report.rejected[:_SHOWN]:
        say(printable(f"put aside ({rejection.reason.value}): {rejection.path}: {rejection.detail}"), markup=False)
    if len(report.rejected) > _SHOWN:
        say(f"… and {len(report.rejected) - _SHOWN} more, all in {aside}", markup=False)
