"""Options that several verbs have, each with the same name and the same words."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from kernel_matrix.cli import completion

MatrixFile = Annotated[Path, typer.Argument(metavar="[MATRIX]", help="The matrix file; -: standard input.")]
Folders = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FOLDER]...", help="Merged tables, result folders, packed sets; default: results."),
]
Sandbox = Annotated[
    str, typer.Option("--sandbox", help="auto, docker, unpacked or process.", autocompletion=completion.sandbox)
]
Lock = Annotated[Path | None, typer.Option("--lock", metavar="FILE", help="Images lock; images/images.lock.")]
Filter = Annotated[
    list[str] | None,
    typer.Option(
        "--filter",
        metavar="KEY=GLOB[,GLOB]",
        help="Keep matching cells; != drops them. Repeat to narrow.",
        autocompletion=completion.filter_term,
    ),
]
Unpinned = Annotated[bool, typer.Option("--allow-unpinned", help="Run images the lock does not pin; records say so.")]
FleetFile = Annotated[
    Path | None, typer.Option("--fleet", metavar="FILE", help="Use the sites of this fleet file, not this machine.")
]
Build = Annotated[bool, typer.Option("--build", help="Build local images that are missing first.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
JsonEvents = Annotated[bool, typer.Option("--json", help="Print one JSON event per line.")]
JsonAfterProgress = Annotated[bool, typer.Option("--json", help="Print one JSON document; progress goes to stderr.")]


def command_line() -> tuple[str, ...]:
    """Return the command line as the file of a run keeps it: without the folder of the program."""
    return (Path(sys.argv[0]).name, *sys.argv[1:])
