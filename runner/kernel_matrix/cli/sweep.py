"""``kernel-matrix sweep``: remove what dead runners left."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def sweep() -> None:
        """Remove what dead runners left, and give back the GPU settings they had made. Every run does this first."""
        swept, failed = _swept()
        for line in swept:
            typer.echo(line)
        for line in failed:
            typer.echo(f"error: {line}", err=True)
        typer.echo(_sentence(len(swept), len(failed)))
        if failed:
            raise typer.Exit(4)


def _swept() -> tuple[list[str], list[str]]:
    """What was cleared up, and what could not be."""
    from kernel_matrix.attempt.scratch import sweep_scratch  # noqa: PLC0415  # --help must not wait for it
    from kernel_matrix.lease.repair import NOT_REPAIRED, sweep_gpus  # noqa: PLC0415  # same
    from kernel_matrix.sandboxes import ENGINES, open_engine  # noqa: PLC0415  # same

    engines = [engine for engine in map(open_engine, ENGINES) if engine.status().available]
    # Containers first: what still runs on a GPU is not to see its clocks change.
    sweeps = (*(engine.sweep for engine in engines), sweep_scratch, sweep_gpus)
    lines = [line for sweep in sweeps for line in _lines(sweep, NOT_REPAIRED)]
    failed = [line for line in lines if line.startswith(NOT_REPAIRED)]
    return [line for line in lines if line not in failed], failed


def _lines(sweep: Callable[[], Sequence[str]], not_repaired: str) -> Sequence[str]:
    """What ``sweep`` did; one that fails says so in its place, and keeps none of the others."""
    from kernel_matrix.errors import InfrastructureError  # noqa: PLC0415  # --help must not wait for it

    try:
        return sweep()
    except InfrastructureError as error:
        return [f"{not_repaired}{error}"]


def _sentence(swept: int, failed: int) -> str:
    if failed:
        return f"{swept} leftovers cleared up, {failed} NOT"
    return f"{swept} leftovers cleared up" if swept else "nothing to sweep"
