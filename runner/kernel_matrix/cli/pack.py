"""``kernel-matrix pack`` and ``unpack``."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import typer

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.options import Json
from kernel_matrix.cli.output import console, print_json

if TYPE_CHECKING:
    from kernel_matrix.api.pack_results import SetDescription


def register(app: typer.Typer) -> None:
    """Add the verbs to ``app``."""

    @app.command()
    def pack(
        results: Path = typer.Argument(metavar="RESULTS", help="A result folder."),
        out: Path | None = typer.Option(
            None, "--out", "-o", metavar="FILE", help="The file; default: RESULTS.kmz here."
        ),
        *,
        traces: bool = typer.Option(False, "--traces", help="Also pack the telemetry of records."),
        with_fingerprints: bool = typer.Option(
            False, "--with-fingerprints", help="Keep what identifies machines; default: salted hashes of it."
        ),
        salt_file: Path | None = typer.Option(
            None, metavar="FILE", help="Take the salt from here, to join several sets; default: random, not kept."
        ),
        matrix: Path | None = typer.Option(
            None, metavar="FILE", help="The matrix that was run; default: that which the runs name, if unchanged."
        ),
        lock: Path | None = typer.Option(None, metavar="FILE", help="Images lock; default: that of the matrix."),
        force: bool = typer.Option(False, "--force", help="Replace FILE where it exists."),
        as_json: Json = False,
    ) -> None:
        """Pack a result folder into one file, which every verb reads in place of the folder."""
        from kernel_matrix.api.pack_results import pack_results

        packed = pack_results(
            results,
            out,
            traces=traces,
            with_fingerprints=with_fingerprints,
            salt_file=salt_file,
            matrix=matrix,
            lock=lock,
            force=force,
        )
        if as_json:
            print_json({"file": str(packed.file), "bytes": packed.size_bytes, **asdict(packed.description)})
        else:
            _print(packed.description, f"{packed.file} ({packed.size_bytes / 1e6:.1f} MB)")

    @app.command()
    def unpack(
        file: Path = typer.Argument(metavar="FILE", help="A file that `pack` wrote."),
        folder: Path = typer.Argument(metavar="FOLDER", help="A new or empty folder."),
        *,
        as_json: Json = False,
    ) -> None:
        """Check a packed file, and unpack it into a result folder."""
        from kernel_matrix.api.pack_results import unpack_results

        description = unpack_results(file, folder)
        if as_json:
            print_json({"folder": str(folder), **asdict(description)})
        else:
            _print(description, str(folder))


def _print(description: SetDescription, place: str) -> None:
    say = console().print
    say(printable(place), markup=False)
    others = [name for name in description.files if name in ("matrix.toml", "images.lock")]
    counts = [
        f"{number:,} {what}"
        for what, number in (
            ("records", description.records),
            ("runs", description.runs),
            ("traces", description.traces),
        )
    ]
    say(f"  {', '.join((*counts, *others))}")
    say("  machines are salted hashes" if description.salted else "  machines are named as in the records")
    for why, number in description.left_out.items():
        say(f"  left out: {number:,} {printable(why)}", markup=False)
