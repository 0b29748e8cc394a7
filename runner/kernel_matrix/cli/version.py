"""``kernel-matrix version``."""

from __future__ import annotations

import typer

from kernel_matrix.version import __version__


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def version() -> None:
        """Print the version."""
        typer.echo(__version__)
