"""Run a matrix over the machines of a fleet, and look at what runs there."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

from kernel_matrix.api.fleet_plan import FleetCheck, FleetPlan, check_fleet, load_fleet, plan_fleet
from kernel_matrix.api.run_cells import Listener, RunResult, run
from kernel_matrix.errors import UsageError, suggestion
from kernel_matrix.executors.fleet.fleet_run import FleetOrder, FleetSites
from kernel_matrix.executors.fleet.node_report import write_node_report
from kernel_matrix.executors.fleet.site_run import ChunkState
from kernel_matrix.executors.local import Rerun
from kernel_matrix.fleet import Fleet
from kernel_matrix.matrix import Matrix
from kernel_matrix.results.store import RecordStore

__all__ = [
    "ChunkState",
    "FleetCheck",
    "FleetPlan",
    "cancel_jobs",
    "check_fleet",
    "collect_records",
    "list_chunks",
    "load_fleet",
    "plan_fleet",
    "read_log",
    "run_fleet",
    "write_node_report",
]


def run_fleet(
    matrix: Matrix,
    fleet: Fleet | str | Path,
    results: str | Path = "results",
    *,
    filters: Sequence[str] = (),
    lock: str | Path | None = None,
    rerun: str | Rerun = Rerun.NONE,
    deadline: datetime | None = None,
    fail_fast: bool = False,
    listener: Listener | None = None,
    command: Sequence[str] = (),
) -> RunResult:
    """Run every cell that a site can run and that has no record yet.

    The same as :func:`kernel_matrix.run` of what :func:`kernel_matrix.plan_fleet` returns.

    Raises:
        ConfigError: The fleet file has faults.
        InfrastructureError: No site answers, one has another version of what measures, or cells were given up.
        NothingSelectedError: No selected cell can run anywhere.
        KeyboardInterrupt: After every job was ended and what it measured came home.
    """
    plan = plan_fleet(matrix, fleet, results, lock=lock, filters=filters)
    return run(plan, results, rerun=rerun, deadline=deadline, fail_fast=fail_fast, listener=listener, command=command)


def list_chunks(fleet: Fleet, matrix: Matrix, results: str | Path = "results") -> list[ChunkState]:
    """List the chunks in the workspaces of a fleet that belong to the results of a matrix.

    Raises:
        EngineError: A site does not answer.
    """
    return [chunk for site in _sites(fleet, matrix, results).runs.values() for chunk in site.chunks()]


def read_log(fleet: Fleet, matrix: Matrix, results: str | Path, name: str) -> str:
    """Return the output of a chunk's job.

    Raises:
        EngineError: A site does not answer.
        UsageError: There is no such chunk.
    """
    chunks = {chunk.name: chunk for chunk in list_chunks(fleet, matrix, results)}
    if name not in chunks:
        what = f"there is no chunk {name!r}{suggestion(name, list(chunks))}"
        raise UsageError(what, next_step="kernel-matrix fleet status lists them; one that has ended is removed")
    log = chunks[name].log
    return log.read_text(encoding="utf-8", errors="replace") if log.is_file() else ""


def collect_records(fleet: Fleet, matrix: Matrix, results: str | Path = "results") -> tuple[int, int]:
    """Take home the records that chunks have, and remove chunks that have ended.

    Returns:
        The number of records that came home, and of chunks that go on.

    Raises:
        EngineError: A site does not answer; the others' records are home.
    """
    records, going_on = 0, 0
    for site in _sites(fleet, matrix, results).runs.values():
        found, left = site.recover()
        records, going_on = records + len(found), going_on + len(left)
    return records, going_on


def cancel_jobs(fleet: Fleet, matrix: Matrix, results: str | Path = "results") -> None:
    """End every job that belongs to the results of a matrix.

    Raises:
        EngineError: A site does not answer.
    """
    for site in _sites(fleet, matrix, results).runs.values():
        site.cancel()


def _sites(fleet: Fleet, matrix: Matrix, results: str | Path) -> FleetSites:
    order = FleetOrder(fleet=fleet, matrix=matrix.path, lock=None)
    return FleetSites(order, RecordStore(Path(results) / matrix.name))
