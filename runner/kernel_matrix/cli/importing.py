"""``kernel-matrix import``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.options import Json
from kernel_matrix.cli.output import console, print_json

if TYPE_CHECKING:
    from kernel_matrix.api.make_tables import ImportedFile, ImportReport

_SHOWN = 20
"""Refusals that are shown one by one; all of them are in the file beside the tables."""


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command("import")
    def import_(  # noqa: PLR0917  # typer passes options by name
        paths: list[Path] = typer.Argument(..., metavar="PATH...", help="Files, or folders of .json and .jsonl files."),
        form: str = typer.Option("auto", "--format", help="What the files are; auto recognises each by its content."),
        out: Path = typer.Option(..., help="Folder the tables are written to."),
        name: str | None = typer.Option(None, help="Name of the matrix in the tables; default: the format."),
        gpu: str | None = typer.Option(None, help="GPU, where a file does not say it; a folder's name counts less."),
        toolchain: str | None = typer.Option(None, help="Toolchain, where a file does not say it."),
        dtype: str | None = typer.Option(None, help="Dtype, where a file does not say it."),
        mapping: Path | None = typer.Option(None, help="TOML file that says what the columns of the files mean."),
        as_json: Json = False,
    ) -> None:
        """Write results that others measured as tables, which every analysis reads."""
        from kernel_matrix.api.make_tables import import_results, rejected_list

        report = import_results(
            paths, out, form=form, name=name or None, gpu=gpu, toolchain=toolchain, dtype=dtype, mapping=mapping
        )
        aside = rejected_list(out)
        if as_json:
            print_json(_document(report, aside))
        else:
            _print(report, aside)


def _document(report: ImportReport, aside: Path) -> dict[str, Any]:
    return {
        "files": [
            {
                "path": str(one.path),
                "format": one.format,
                "version": one.version,
                "rows": len(one.measured),
                "refused": len(one.refused),
                "notes": list(one.notes),
            }
            for one in report.files
        ],
        "rows": report.rows,
        "samples": report.samples,
        "hosts": report.hosts,
        "gpus": report.gpus,
        "duplicates": report.duplicates,
        "contested": report.contested,
        "tables": {name: str(file) for name, file in report.tables.items()},
        "rejected_list": str(aside),
        "rejected": [{"path": str(one.path), "line": one.line, "detail": one.reason} for one in report.refused],
    }


def _print(report: ImportReport, aside: Path) -> None:
    out_console = console()

    def say(text: str) -> None:
        out_console.print(printable(text), markup=False)

    for one in report.files:
        say(_describe(one))
    formats = Counter(one.format for one in report.files)
    say(
        f"{report.rows} results and {report.samples} samples from {len(report.files)} files"
        f" ({', '.join(f'{number} {form}' for form, number in sorted(formats.items()))}),"
        f" {report.gpus} GPUs by name, {report.hosts} hosts and devices"
    )
    if report.duplicates:
        say(f"{report.duplicates} files are copies of others in the same place, and count once")
    if report.contested:
        say(
            f"{report.contested} cells are in several files, with different content: they are attempts at one cell,"
            f" of which analyses take the last; name the sets apart with --name"
        )
    for file in report.tables.values():
        out_console.print(f"  {file}", markup=False)
    for refusal in report.refused[:_SHOWN]:
        say(f"not read: {refusal}")
    if len(report.refused) > _SHOWN:
        say(f"… and {len(report.refused) - _SHOWN} more, all in {aside}")


def _describe(one: ImportedFile) -> str:
    version = f" {one.version}" if one.version else ""
    refused = f", {len(one.refused)} not read" if one.refused else ""
    notes = "".join(f"; {note}" for note in one.notes)
    return f"{one.path}: {one.format}{version}, {len(one.measured)} results{refused}{notes}"
