"""``kernel-matrix docs``."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from kernel_matrix.cli.output import console, write_line

_Page = Annotated[str, typer.Argument(metavar="[PAGE]", help="A page; without one, all are listed.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(docs)


def docs(page: _Page = "") -> None:
    """Read the documentation: list its pages, or print one, as Markdown into a pipe."""
    from kernel_matrix.api.read_docs import documentation_pages, read_documentation

    if not page:
        pages = documentation_pages()
        width = max(map(len, pages))
        for name, title in pages.items():
            write_line(f"{name:{width}}  {title}")
    elif sys.stdout.isatty():
        from rich.markdown import Markdown

        from kernel_matrix.cli.pager import paged

        with paged(wanted=True):
            console().print(Markdown(read_documentation(page)))
    else:
        write_line(read_documentation(page).rstrip())
