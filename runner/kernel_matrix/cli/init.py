"""``kernel-matrix init``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_matrix.cli.output import write_line

_Folder = Annotated[Path, typer.Argument(metavar="[DIR]", help="The folder to write to; made if it does not exist.")]
_Example = Annotated[str, typer.Option("--example", metavar="NAME", help="cpu, gpu, kernel or nightly.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(init)


def init(folder: _Folder = Path(), *, example: _Example = "kernel") -> None:
    """Write a commented matrix and a first candidate. No file is replaced."""
    from kernel_matrix.api.start_project import EXAMPLES, start_project

    for path in start_project(folder, example):
        write_line(str(path))
    entered = () if folder == Path() else (f"cd {folder}",)
    write_line("next:")
    for command in (*entered, *EXAMPLES[example].next_commands):
        write_line(f"  {command}")
