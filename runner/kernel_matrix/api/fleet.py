"""Look at what runs at the sites of a fleet, take records home, and end jobs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from kernel_matrix.errors import UsageError, suggestion
from kernel_matrix.executors.fleet.fleet_run import FleetOrder, FleetSites
from kernel_matrix.executors.fleet.head import LOG_FILE, detach, end_head, leading
from kernel_matrix.executors.fleet.node_report import write_node_report
from kernel_matrix.executors.fleet.site_run import ChunkState
from kernel_matrix.fleet import Fleet
from kernel_matrix.matrix import Matrix
from kernel_matrix.results.store import RecordStore

__all__ = ["ChunkState", "cancel_jobs", "collect_records", "detach_run", "list_chunks", "read_log", "write_node_report"]


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
        GpuBusyError: A run goes on, and takes them home itself.
        EngineError: A site does not answer; the others' records are home.
    """
    records, going_on = 0, 0
    with leading(Path(results) / matrix.name):
        for site in _sites(fleet, matrix, results).runs.values():
            found, left = site.recover()
            records, going_on = records + len(found), going_on + len(left)
    return records, going_on


def cancel_jobs(fleet: Fleet, matrix: Matrix, results: str | Path = "results") -> None:
    """End the run that goes on, and every job that belongs to the results of a matrix.

    Raises:
        EngineError: A site does not answer.
        InfrastructureError: The run is led from another machine.
    """
    end_head(Path(results) / matrix.name)
    for site in _sites(fleet, matrix, results).runs.values():
        site.cancel()


def detach_run(command: Sequence[str], matrix: Matrix, results: str | Path = "results") -> tuple[int, Path]:
    """Start a run over a fleet that goes on when this process ends.

    Args:
        command: Words that start the run.
        matrix: The matrix that it runs.
        results: Where its records go.

    Returns:
        The process id, and the file that has what it prints.

    Raises:
        InfrastructureError: It ended at once; the error has what it printed.
    """
    store = Path(results) / matrix.name
    return detach(command, store), store / LOG_FILE


def _sites(fleet: Fleet, matrix: Matrix, results: str | Path) -> FleetSites:
    order = FleetOrder(fleet=fleet, matrix=matrix.path, lock=None)
    return FleetSites(order, RecordStore(Path(results) / matrix.name))
