"""``kernel-matrix sweep``: remove what dead runners left."""

from __future__ import annotations

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def sweep() -> None:
        """Remove containers, processes and temporary folders whose runner is dead. Every run does this first."""
        from runner.cell.scratch import sweep_scratch  # noqa: PLC0415  # --help must not wait for it
        from runner.engines import ENGINES, open_engine  # noqa: PLC0415  # same

        engines = [open_engine(name) for name in ENGINES]
        swept = [line for engine in engines if engine.status().available for line in engine.sweep()]
        swept += sweep_scratch()
        for line in swept:
            typer.echo(line)
        typer.echo(f"{len(swept)} leftovers removed" if swept else "nothing to sweep")
