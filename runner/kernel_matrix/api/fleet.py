"""Run a matrix over the machines of a fleet."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_matrix.api.run_cells import CellSelection, Listener, RunResult, parse_rerun
from kernel_matrix.errors import InfrastructureError, NothingSelectedError, UsageError, suggestion
from kernel_matrix.executors.engines import ENGINES, EngineError
from kernel_matrix.executors.fleet.fleet_run import FleetOrder, FleetSites
from kernel_matrix.executors.fleet.node_report import (
    NodeReport,
    ask_nodes,
    check_versions,
    write_node_report,
)
from kernel_matrix.executors.fleet.site_run import ChunkState
from kernel_matrix.executors.local import Rerun
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.fleet import Fleet
from kernel_matrix.fleet.chunks import SlotKind
from kernel_matrix.fleet.fleet_file import load_fleet as _load_fleet
from kernel_matrix.fleet.placement import PlacedCells, place
from kernel_matrix.hosts.survey import survey
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.matrix import Matrix
from kernel_matrix.plan.filters import parse_filter
from kernel_matrix.plan.planning import make_plan
from kernel_matrix.plan.selection import load_selection
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sandboxes import SANDBOXES
from kernel_matrix.version import __version__

__all__ = [
    "ChunkState",
    "FleetCheck",
    "cancel_jobs",
    "check_fleet",
    "collect_records",
    "list_chunks",
    "load_fleet",
    "read_log",
    "run_fleet",
    "write_node_report",
]

_CHECK_LIMIT_S = 300.0
"""How long a job that describes its node may wait and take."""
_STORE_FILE = "fleet.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCheck:
    """What the sites of a fleet have."""

    reports: Mapping[SlotKind, NodeReport]
    faults: Mapping[str, str]
    """Site, or site and GPU model → why nothing runs there."""


def load_fleet(path: str | Path) -> Fleet:
    """Read and check a fleet file.

    Raises:
        ConfigError: The file has faults; the error names all of them with line and column.
    """
    return _load_fleet(Path(path), {name: engine.check_options for name, engine in ENGINES.usable().items()}, SANDBOXES)


def check_fleet(
    fleet: Fleet,
    matrix: Matrix,
    results: str | Path = "results",
    *,
    lock: str | Path | None = None,
    refresh: bool = True,
) -> FleetCheck:
    """Let a job on each kind of GPU describe its node, with the images that ``matrix`` needs.

    Args:
        fleet: The fleet.
        matrix: The matrix that is to run.
        results: Where its records go; a later run takes the reports from there.
        lock: The images lock; the matrix's own by default.
        refresh: Ask again where a report is there already.
    """
    store_id = _store_id(Path(results) / matrix.name)
    reports: dict[SlotKind, NodeReport] = {}
    faults: dict[str, str] = {}
    for site in fleet.sites:
        prefix = f"km-{store_id}"
        order = _order(matrix, lock) | {"sandbox": site.sandbox, "engine": site.engine}
        try:
            session = ENGINES.load(site.engine).open_session(site, prefix)
            found = ask_nodes(site, session, prefix=prefix, order=order, limit_s=_CHECK_LIMIT_S, refresh=refresh)
        except (EngineError, OSError) as error:
            faults[site.name] = str(error)
            continue
        for slot, report in found.items():
            if isinstance(report, str):
                faults[f"{slot.site}/{slot.resource}"] = report
            else:
                reports[slot] = report
    return FleetCheck(reports=reports, faults=faults)


def run_fleet(
    matrix: Matrix,
    fleet: Fleet | str | Path,
    results: str | Path = "results",
    *,
    filters: Sequence[str] = (),
    lock: str | Path | None = None,
    rerun: str | Rerun = Rerun.NONE,
    listener: Listener | None = None,
    command: Sequence[str] = (),
) -> RunResult:
    """Run every cell that a site can run and that has no record yet.

    Raises:
        ConfigError: The fleet file has faults.
        InfrastructureError: No site answers, or one has another version of what measures.
        NothingSelectedError: No selected cell can run anywhere.
        KeyboardInterrupt: After every job was ended and what it measured came home.
    """
    loaded = fleet if isinstance(fleet, Fleet) else load_fleet(fleet)
    folder = Path(results) / matrix.name
    store_id = _store_id(folder)
    checked = check_fleet(loaded, matrix, results, lock=lock, refresh=False)
    if not checked.reports:
        what = "no site of the fleet can run anything:" + "".join(f"\n  {k}: {v}" for k, v in checked.faults.items())
        raise InfrastructureError(what, next_step="kernel-matrix fleet check says what to do about each")
    check_versions(checked.reports)
    placed = _placed(matrix, checked.reports, filters)
    if not placed.runnable:
        reasons = {cell.reason.text for cell in placed.skipped if cell.reason is not None}
        what = "no selected cell can run at any site" + "".join(f"\n  {reason}" for reason in sorted(reasons)[:3])
        raise NothingSelectedError(what, next_step="kernel-matrix fleet check says what the sites have")
    order = FleetOrder(
        fleet=loaded,
        matrix=matrix.path,
        lock=None if lock is None else Path(lock).resolve(),
        store_id=store_id,
        slots=placed.slots,
    )
    cells = CellSelection(
        matrix=matrix,
        host=survey(matrix, sandbox="process"),
        runnable=placed.runnable,
        skipped=placed.skipped,
        command=command,
        order=order,
        places=tuple(_place_lines(checked)),
    )
    policy = RunPolicy(run_id=secrets.token_hex(4))
    return cells.run(folder, policy=policy, rerun=parse_rerun(rerun), listener=listener)


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
    folder = Path(results) / matrix.name
    order = FleetOrder(fleet=fleet, matrix=matrix.path, lock=None, store_id=_store_id(folder), slots={})
    return FleetSites(order, RecordStore(folder))


def _placed(matrix: Matrix, reports: Mapping[SlotKind, NodeReport], filters: Sequence[str]) -> PlacedCells:
    wanted, selection = parse_filter(filters), load_selection(matrix)
    return place(
        {
            slot: filter(wanted, make_plan(matrix, selection, report.inventory).cells())
            for slot, report in reports.items()
        }
    )


def _place_lines(checked: FleetCheck) -> list[str]:
    lines = [
        f"{slot.site}/{slot.resource}: {report.inventory.gpus[0].name if report.inventory.gpus else 'no device'},"
        f" sandbox {report.inventory.sandbox}, seen on {report.hostname}"
        for slot, report in checked.reports.items()
    ]
    return [*lines, *(f"{place}: nothing runs there: {why}" for place, why in checked.faults.items())]


def _order(matrix: Matrix, lock: str | Path | None) -> dict[str, Any]:
    """Return what reports of nodes depend on, besides the site."""
    pinned = matrix.lock_path if lock is None else Path(lock).resolve()
    files = [path.read_bytes() for path in (matrix.path, pinned) if path.is_file()]
    digest = hashlib.sha256(b"\0".join((__version__.encode(), *files))).hexdigest()
    return {"matrix": str(matrix.path), "digest": digest, **({} if lock is None else {"lock": str(pinned)})}


def _store_id(folder: Path) -> str:
    """Return the name of a store of results in names of jobs; the same wherever the store is led from."""
    path = folder / _STORE_FILE
    try:
        return str(json.loads(path.read_bytes())["store_id"])
    except (OSError, ValueError, KeyError):
        name = secrets.token_hex(4)
        folder.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"store_id": name}))
        return name
