"""``kernel-matrix sweep``."""

from __future__ import annotations

import typer

from kernel_matrix.cli.output import write_line


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def sweep() -> None:
        """Remove what dead runners left, and give back the GPU settings they had made. Every run does this first."""
        from kernel_matrix.api.host import sweep as sweep_host

        swept = sweep_host()
        for line in swept.cleared:
            write_line(line)
        for line in swept.failed:
            write_line(f"error: {line}", stderr=True)
        if swept.failed:
            typer.echo(f"{len(swept.cleared)} leftovers cleared up, {len(swept.failed)} NOT")
            raise typer.Exit(4)
        typer.echo(f"{len(swept.cleared)} leftovers cleared up" if swept.cleared else "nothing to sweep")
