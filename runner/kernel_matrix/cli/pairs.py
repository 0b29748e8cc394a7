"""``kernel-matrix pairs``."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from kernel_matrix.api.wording import printable
from kernel_matrix.cli.opened_tables import opened
from kernel_matrix.cli.options import Json
from kernel_matrix.cli.output import console, print_json

if TYPE_CHECKING:
    from kernel_matrix.api.make_pairs import WrittenPairs


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def pairs(
        results: Path = typer.Argument(metavar="RESULTS", help="Merged tables, a result folder or a packed set."),
        out: Path = typer.Argument(metavar="OUT", help="The folder that the files are written to."),
        matrix: Path | None = typer.Option(
            None, metavar="FILE", help="Take the sources from this matrix; default: those that the runs name."
        ),
        nearest: int = typer.Option(1, metavar="N", help="Pairs per candidate whose parent is not known."),
        grade: str = typer.Option("B", metavar="A|B|C", help="The weakest grade of a time that is compared."),
        *,
        as_json: Json = False,
    ) -> None:
        """Write pairs of candidates, failing and passing, slower and faster, as a data set with its card."""
        from kernel_matrix.api.make_pairs import make_pairs

        with opened([results]) as found:
            written = make_pairs(found, out, matrix=matrix, nearest=nearest, grade=grade)
        if as_json:
            print_json(_document(written))
        else:
            _print(written)


def _document(written: WrittenPairs) -> dict[str, Any]:
    return {
        "files": [str(file) for file in written.files],
        "kinds": Counter(written.table["kind"]),
        "splits": Counter(written.table["split"]),
        "records_left_out": dict(written.records_left_out),
        "pairs_left_out": dict(written.pairs_left_out),
        "notes": list(written.notes),
    }


def _print(written: WrittenPairs) -> None:
    say = console().print
    for name in ("kind", "split"):
        say(f"{name}: {', '.join(f'{number:,} {value}' for value, number in Counter(written.table[name]).items())}")
    for what, counts in (("records", written.records_left_out), ("possible pairs", written.pairs_left_out)):
        for reason, number in counts.items():
            if number:
                say(f"left out: {number:,} {what}: {reason}", markup=False)
    for note in written.notes:
        say(printable(note), markup=False)
    for file in written.files:
        say(printable(f"  {file}"), markup=False)
