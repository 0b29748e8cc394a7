"""Plan a matrix over the sites of a fleet: which cells a site can run, and why no site can run the others."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Final

from kernel_matrix.api.run_plan import RunPlan
from kernel_matrix.config_files.faults import ConfigFault
from kernel_matrix.errors import InfrastructureError, PluginError, UsageError
from kernel_matrix.executors.engines import ENGINES, EngineError
from kernel_matrix.executors.fleet.fleet_run import FleetOrder, job_prefix
from kernel_matrix.executors.fleet.node_report import NodeReport, ask_nodes, check_versions
from kernel_matrix.executors.fleet.site_run import chunk_order
from kernel_matrix.executors.fleet.trial import run_trials
from kernel_matrix.fleet import Fleet
from kernel_matrix.fleet.chunks import SlotKind
from kernel_matrix.fleet.fleet_file import load_fleet as _load_fleet
from kernel_matrix.fleet.placement import PlacedCells, place, placed_cell
from kernel_matrix.hosts.survey import AUTO, survey
from kernel_matrix.matrix import Matrix
from kernel_matrix.model.enums import Status
from kernel_matrix.plan import Cell, CellFilter, Plan, load_selection, make_plan, shard
from kernel_matrix.results.record import Record
from kernel_matrix.sandboxes import SANDBOXES
from kernel_matrix.version import __version__

__all__ = ["FleetCheck", "FleetPlan", "check_fleet", "load_fleet", "plan_fleet"]

_CHECK_LIMIT_S: Final = 300.0
"""How long a job that describes its node may wait and take."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetCheck:
    """Reports of the nodes of a fleet, and why nothing runs at other places."""

    reports: Mapping[SlotKind, NodeReport]
    faults: Mapping[str, str]
    """Site, or site and GPU model → why nothing runs there."""
    trials: Mapping[SlotKind, Record] = field(default_factory=dict)
    """Records of the cells that a check has run."""

    def lines(self) -> tuple[str, ...]:
        """Return one line for each place."""
        reported = (
            f"{slot}: {report.devices}, sandbox {report.inventory.sandbox}, on {report.hostname}"
            for slot, report in self.reports.items()
        )
        return (*reported, *(f"{place}: nothing runs there: {why}" for place, why in self.faults.items()))


@dataclass(frozen=True, kw_only=True)
class FleetPlan(RunPlan):
    """A matrix planned over a fleet; a cell has a reason only if no site can run it."""

    fleet: Fleet
    lock: Path | None
    checked: FleetCheck
    plans: Mapping[SlotKind, Plan]
    """Kind of GPU → the plan for what its nodes have."""

    where = "at any site"

    @property
    def engine(self) -> str:
        """The sandboxes of the sites."""
        return ", ".join(sorted({site.sandbox for site in self.fleet.sites}))

    @property
    def devices(self) -> list[str]:
        """The names of the devices that the nodes have."""
        return sorted({gpu.name for report in self.checked.reports.values() for gpu in report.inventory.gpus})

    def place_lines(self) -> tuple[str, ...]:
        """Return one line for each place."""
        return self.checked.lines()

    def cells(self) -> Iterator[Cell]:
        """Yield the selected cells, first those that a site can run."""
        cells = (*self._placed.runnable, *self._placed.skipped)
        return iter(cells) if self.part is None else shard(cells, *self.part)

    @cached_property
    def _placed(self) -> PlacedCells:
        return place({slot: filter(self.wanted, plan.cells()) for slot, plan in self.plans.items()})

    @property
    def order(self) -> FleetOrder:
        """The fleet, and which of its sites can run which cells."""
        return FleetOrder(
            fleet=self.fleet,
            matrix=self.matrix.path,
            lock=self.lock,
            slots=self._placed.slots,
            reports=self.checked.reports,
        )


def load_fleet(path: str | Path) -> Fleet:
    """Read and check a fleet file.

    Raises:
        ConfigError: The file has faults; the error names all of them with line and column.
    """
    return _load_fleet(Path(path), {name: partial(_check_options, name) for name in ENGINES}, SANDBOXES)


def _check_options(engine: str, options: Mapping[str, Any]) -> Iterator[ConfigFault]:
    """Yield what an engine finds wrong with its options; one that cannot be used is a fault itself."""
    try:
        yield from ENGINES.load(engine).check_options(options)
    except PluginError as error:
        yield ConfigFault((), error.what)
    except Exception as error:  # noqa: BLE001  # of another package
        yield ConfigFault((), f"engine {engine!r} cannot check them: {type(error).__name__}: {error}")


def check_fleet_options(*, sandbox: str = AUTO, **switches: bool) -> None:
    """Refuse options that say something about this host where a fleet runs the cells.

    Args:
        sandbox: A sandbox asked for; the sites name their own.
        switches: Name of an option → whether it was given.

    Raises:
        UsageError: One was given.
    """
    given = ["--sandbox"] if sandbox != AUTO else []
    given += [f"--{name.replace('_', '-')}" for name, is_given in switches.items() if is_given]
    if given:
        what = f"{given[0]} is about this host, and --fleet runs nothing here"
        raise UsageError(what, next_step="leave one of them out; the fleet file names each site's sandbox")


def plan_fleet(
    matrix: Matrix,
    fleet: Fleet | str | Path,
    results: str | Path,
    *,
    lock: str | Path | None = None,
    wanted: CellFilter,
    part: tuple[int, int] | None = None,
) -> FleetPlan:
    """Plan a matrix for what the nodes of a fleet have; see :func:`kernel_matrix.make_plan`.

    Raises:
        ConfigError: The fleet file has faults.
        InfrastructureError: No site has a node that can run anything, or one has another version of what measures.
    """
    loaded = fleet if isinstance(fleet, Fleet) else load_fleet(fleet)
    pinned = resolved_lock(lock)
    selection = load_selection(matrix)
    checked = usable_nodes(loaded, matrix, results, pinned)
    plans = {slot: make_plan(matrix, selection, report.inventory) for slot, report in checked.reports.items()}
    return FleetPlan(
        plan=next(iter(plans.values())),
        host=survey(matrix, sandbox="process"),
        wanted=wanted,
        part=part,
        fleet=loaded,
        lock=pinned,
        checked=checked,
        plans=plans,
    )


def usable_nodes(fleet: Fleet, matrix: Matrix, results: str | Path, lock: Path | None) -> FleetCheck:
    """Return what the nodes of a fleet have, as the last check found it.

    Raises:
        InfrastructureError: No site has a node that can run anything, or one has another version of what measures.
    """
    checked = _ask_sites(fleet, matrix, results, lock, refresh=False)
    if not checked.reports:
        what = "no site of the fleet can run anything:" + "".join(f"\n  {k}: {v}" for k, v in checked.faults.items())
        raise InfrastructureError(what, next_step="kernel-matrix fleet check says what to do about each")
    check_versions(checked.reports)
    return checked


def check_fleet(
    fleet: Fleet, matrix: Matrix, results: str | Path = "results", *, lock: str | Path | None = None
) -> FleetCheck:
    """Let a job on each kind of GPU describe its node, then run one cell of ``matrix`` there, as a run would.

    Args:
        fleet: The fleet.
        matrix: The matrix that is to run.
        results: Where its records go; a later run takes the reports from there. The records of this check go nowhere.
        lock: The images lock; the matrix's own by default.
    """
    pinned, prefix = resolved_lock(lock), job_prefix(Path(results) / matrix.name)
    checked = _ask_sites(fleet, matrix, results, pinned, refresh=True)
    faults, trials = dict(checked.faults), {}
    selection = load_selection(matrix)
    for site in fleet.sites:
        reports = {slot: report for slot, report in checked.reports.items() if slot.site == site.name}
        cells = {slot: _trial_cell(make_plan(matrix, selection, report.inventory)) for slot, report in reports.items()}
        found = run_trials(
            site,
            ENGINES.load(site.engine).open_session(site, prefix),
            {slot: placed_cell(cell, frozenset((slot,))) for slot, cell in cells.items() if cell is not None},
            prefix=prefix,
            order=chunk_order(site, matrix.path, pinned),
            limit_s=_CHECK_LIMIT_S,
        )
        for slot, record in found.items():
            if isinstance(record, str):
                faults[str(slot)] = record
            else:
                trials[slot] = record
    return FleetCheck(reports=checked.reports, faults=faults, trials=trials)


def _trial_cell(plan: Plan) -> Cell | None:
    """Return the cell that proves most and takes least: one that should pass, if there is one."""
    return min(
        plan.runnable(),
        key=lambda cell: (cell.candidate.expect not in (None, Status.PASSED), cell.expected_s),
        default=None,
    )


def _ask_sites(fleet: Fleet, matrix: Matrix, results: str | Path, lock: Path | None, *, refresh: bool) -> FleetCheck:
    """Return what nodes have; ask again where a report is there already if ``refresh``."""
    prefix, digest = job_prefix(Path(results) / matrix.name), _digest(matrix, lock)
    reports: dict[SlotKind, NodeReport] = {}
    faults: dict[str, str] = {}
    for site in fleet.sites:
        order = chunk_order(site, matrix.path, lock) | {"digest": digest}
        try:
            session = ENGINES.load(site.engine).open_session(site, prefix)
            found = ask_nodes(site, session, prefix=prefix, order=order, limit_s=_CHECK_LIMIT_S, refresh=refresh)
        except (EngineError, OSError) as error:
            faults[site.name] = str(error)
            continue
        for slot, report in found.items():
            if isinstance(report, str):
                faults[str(slot)] = report
            else:
                reports[slot] = report
    return FleetCheck(reports=reports, faults=faults)


def _digest(matrix: Matrix, lock: Path | None) -> str:
    """Return a digest of this version and of the files that a node's report depends on."""
    files = [path.read_bytes() for path in (matrix.path, lock or matrix.lock_path) if path.is_file()]
    return hashlib.sha256(b"\0".join((__version__.encode(), *files))).hexdigest()


def resolved_lock(lock: str | Path | None) -> Path | None:
    """Return the path of an images lock as nodes find it."""
    return None if lock is None else Path(lock).resolve()
