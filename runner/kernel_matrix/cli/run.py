"""``kernel-matrix run``."""

from __future__ import annotations

import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from kernel_matrix.cli.options import (
    Build,
    Filter,
    FleetFile,
    JsonEvents,
    Lock,
    MatrixFile,
    Sandbox,
    Unpinned,
    command_line,
)
from kernel_matrix.cli.output import print_json, write_line
from kernel_matrix.errors import UsageError

if TYPE_CHECKING:
    from kernel_matrix.api.plan import Matrix


def _only_candidate(value: str | None) -> str | None:
    """Return ``value``, the argument of ``--fail-on``.

    Raises:
        UsageError: It is not allowed.
    """
    if value not in (None, "candidate"):
        raise UsageError(f"--fail-on {value} is not known", next_step="allowed: candidate")
    return value


_Results = Annotated[Path, typer.Option("--results", metavar="DIR", help="Where records go: DIR/<matrix name>/.")]
_Rerun = Annotated[str, typer.Option("--rerun", help="none, failed, stale or all: which recorded cells run again.")]
_Shard = Annotated[str | None, typer.Option("--shard", metavar="I/N", help="Only the I-th of N parts of the cells.")]
_Deadline = Annotated[
    str | None, typer.Option("--deadline", metavar="HH:MM", help="Begin nothing that would end after this time.")
]
_FailFast = Annotated[bool, typer.Option("--fail-fast", help="Stop at the first cell that does not pass.")]
_FailOn = Annotated[
    str | None,
    typer.Option("--fail-on", metavar="candidate", callback=_only_candidate, help="Exit 1 when a candidate failed."),
]
_DryRun = Annotated[bool, typer.Option("--dry-run", help="Print the exact container settings and run nothing.")]
_CompileOnly = Annotated[
    bool, typer.Option("--compile-only", help="Build for every GPU of the matrix, here or not, and run nothing.")
]
_Detach = Annotated[bool, typer.Option("--detach", help="With --fleet: go on in the background.")]
_Executor = Annotated[str, typer.Option("--executor", help="Who runs the cells: local, or what a package adds.")]


def register(app: typer.Typer) -> None:
    """Add the verb to ``app``."""
    app.command()(run)


def run(
    matrix: MatrixFile = Path("matrix.toml"),
    *,
    results: _Results = Path("results"),
    sandbox: Sandbox = "auto",
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
    executor: _Executor = "local",
    fleet: FleetFile = None,
    detach: _Detach = False,
    json: JsonEvents = False,
) -> None:
    """Run every cell that can run, here or at the sites of a fleet, and has no record yet."""
    from kernel_matrix.api.fleet_plan import check_fleet_options
    from kernel_matrix.api.plan import load_matrix, make_plan
    from kernel_matrix.api.run_cells import next_time, parse_rerun
    from kernel_matrix.api.run_cells import run as run_plan
    from kernel_matrix.cli.progress import run_view

    which, until = parse_rerun(rerun), deadline and next_time("--deadline", deadline, datetime.now())  # noqa: DTZ005  # local
    loaded = load_matrix(matrix)
    view = run_view(as_json=json)
    if detach and (fleet is None or Path("-") in (matrix, fleet)):
        raise UsageError("--detach is for runs over a fleet whose files are not read from standard input")
    if fleet is not None:
        check_fleet_options(build=build, dry_run=dry_run, executor=executor != "local")
    if build:
        from kernel_matrix.api.images import build_missing_images

        build_missing_images(loaded, sandbox=sandbox, lock=lock, say=view.say)
    plan = make_plan(
        loaded,
        sandbox=sandbox,
        lock=lock,
        filters=filter_ or (),
        shard=shard,
        compile_only=compile_only,
        allow_unpinned=allow_unpinned,
        results=results,
        fleet=fleet,
    )
    plan.check_runnable()
    if dry_run:
        print_json(plan.process_settings())
        return
    if detach:
        _detach(loaded, results)
        return
    with view:
        result = run_plan(
            plan,
            results,
            rerun=which,
            deadline=until or None,
            fail_fast=fail_fast,
            executor=executor,
            listener=view.tell,
            command=command_line(),
        )
    if result.exit_code or (fail_on == "candidate" and result.candidate_failed):
        raise typer.Exit(result.exit_code or 1)


def _detach(matrix: Matrix, results: Path) -> None:
    """Start the same run in the background, and say how to follow it."""
    from kernel_matrix.api.fleet import detach_run

    words = [word for word in sys.argv[1:] if word != "--detach"]
    pid, log = detach_run((sys.executable, "-m", "kernel_matrix", *words), matrix, results)
    write_line(f"the run goes on as process {pid}; it prints to {log}")
    write_line("next: kernel-matrix fleet status; kernel-matrix fleet cancel ends it")
