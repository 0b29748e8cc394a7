"""``kernel-matrix sweep``."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def sweep() -> None:
        """Remove what dead runners left, and give back the GPU settings they had made. Every run does this first."""
        from kernel_matrix.api.host import sweep as sweep_host

        swept = sweep_host()
        for line in swept.cleared:
            typer.echo(line)
        for line in swept.failed:
            typer.echo(f"error: {line}", err=True)
        typer.echo(_sentence(len(swept.cleared), len(swept.failed)))
        if swept.failed:
            raise typer.Exit(4)


def _sentence(swept: int, failed: int) -> str:
    if failed:
        return f"{swept} leftovers cleared up, {failed} NOT"
    return f"{swept} leftovers cleared up" if swept else "nothing to sweep"
