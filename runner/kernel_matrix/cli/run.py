"""``kernel-matrix run``: the main job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from kernel_matrix.cli.options import Build, Engine, Filter, Lock, MatrixFile, Unpinned

_Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where records go: DIR/<matrix name>/.")]
_Rerun = Annotated[str, typer.Option("--rerun", help="none, failed, stale or all: which recorded cells run again.")]
_Shard = Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Only the I-th of N parts of the cells.")]
_Deadline = Annotated[
    str | None, typer.Option("--deadline", metavar="HH:MM", help="Begin nothing that would end after this time.")
]
_FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop at the first cell that does not pass.")]
_FailOn = Annotated[str | None, typer.Option("--fail-on", metavar="candidate", help="Exit 1 when a candidate failed.")]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the exact container settings and run nothing.")]
_CompileOnly = Annotated[
    bool, typer.Option("--compile-only", help="Build for every GPU of the matrix, here or not, and run nothing.")
]
_Json = Annotated[bool, typer.Option("--json", help="One JSON event per line on stdout.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""

    @app.command()
    def run(
        matrix: MatrixFile = Path("matrix.toml"),
        *,
        results: _Results = Path("results"),
        engine: Engine = "auto",
        lock: Lock = None,
        filter_: Filter = None,
        rerun: _Rerun = "none",
        shard: _Shard = None,
        deadline: _Deadline = None,
        fail_fast: _FailFast = False,
        fail_on: _FailOn = None,
        dry_run: _DryRun = False,
        allow_unpinned: Unpinned = False,
        build: Build = False,
        compile_only: _CompileOnly = False,
        json: _Json = False,
    ) -> None:
        """Run every cell that can run here and has no record yet."""
        from kernel_matrix.cli.run_request import PlanScope, RunOptions, run_matrix  # noqa: PLC0415  # --help must not wait for it

        scope = PlanScope(
            engine=engine,
            lock=lock,
            filters=tuple(filter_ or ()),
            shard=shard,
            allow_unpinned=allow_unpinned,
            build=build,
            compile_only=compile_only,
            json=json,
        )
        request = RunOptions(
            matrix=matrix,
            results=results,
            scope=scope,
            rerun=rerun,
            deadline=deadline,
            fail_fast=fail_fast,
            fail_on=fail_on,
            dry_run=dry_run,
        )
        code = run_matrix(request)
        if code:
            raise typer.Exit(code)
