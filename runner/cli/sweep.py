"""``kernel-matrix sweep``: remove what dead runners left."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def sweep() -> None:
        """Remove containers and processes whose runner is dead. Every run does this first."""
        from runner.engines import ENGINES, open_engine  # noqa: PLC0415  # --help must not wait for it

        swept = 0
        for name in ENGINES:
            engine = open_engine(name)
            if engine.status().available:
                for line in engine.sweep():
                    swept += 1
                    typer.echo(line)
        typer.echo(f"{swept} leftovers removed" if swept else "nothing to sweep")
