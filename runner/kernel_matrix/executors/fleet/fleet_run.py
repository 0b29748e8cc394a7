"""One run over the sites of a fleet."""

from __future__ import annotations

import json
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from kernel_matrix.executors.engines import ENGINES, EngineError
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.fleet.node_report import NodeReport
from kernel_matrix.executors.fleet.site_run import ActiveChunk, LeftChunk, SiteRun
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.fleet import Fleet, Site
from kernel_matrix.fleet.chunks import PlacedCell, SlotKind
from kernel_matrix.fleet.dispatcher import Dispatcher
from kernel_matrix.hosts.survey import Conditions, conditions
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.model.enums import Status
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record
from kernel_matrix.results.store import RecordStore

_STORE_FILE: Final = "fleet.json"
_LOOK_EVERY_S: Final = 1.0
"""Between two looks at all sites; a look costs two commands per site."""
_MOST_FRUITLESS: Final = 3
"""Chunks in a row without a record until their kind of GPU is closed: something is wrong there, whatever is sent."""
_PARTING_S: Final = 90.0
"""How long a cancelled job may take to end: its runner has a minute to give the GPU back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOrder:
    """What a run over a fleet has beyond any other run."""

    fleet: Fleet
    matrix: Path
    lock: Path | None
    slots: Mapping[str, frozenset[SlotKind]] = field(default_factory=dict)
    """Cell id → where it can run."""
    reports: Mapping[SlotKind, NodeReport] = field(default_factory=dict)
    """What nodes have."""

    def conditions(self, cell: Cell) -> Conditions:
        """Return what ``cell`` would meet at the sites that can run it."""
        found: dict[tuple[str, str | None, str], set[str | None]] = {}
        for report in (self.reports[slot] for slot in self.slots[cell.id]):
            image_id = report.image_ids.get(cell.toolchain.name)
            for here, drivers in conditions(cell, report.inventory, image_id).items():
                found.setdefault(here, set()).update(drivers)
        return found


def job_prefix(store: Path) -> str:
    """Return what the names of all jobs for a store of results begin with; the same wherever the store is led from."""
    path = store / _STORE_FILE
    try:
        return str(json.loads(path.read_bytes())["job_prefix"])
    except (OSError, ValueError, KeyError):
        prefix = f"km-{secrets.token_hex(4)}"
        store.mkdir(parents=True, exist_ok=True)
        replace_file(path, json.dumps({"job_prefix": prefix}))
        return prefix


class FleetSites:
    """The sites of a fleet, for one store of results.

    Args:
        order: The run's.
        store: Where records go.
    """

    def __init__(self, order: FleetOrder, store: RecordStore) -> None:
        self.order = order
        self.troubles: dict[str, str] = {}
        """Site → what its engine said last, while it does not answer."""
        self.left: dict[tuple[str, str], LeftChunk] = {}
        """Site and name → a chunk of an earlier run whose job goes on."""
        self._store = store
        self._prefix = job_prefix(store.root)
        self.runs = {site.name: self._open(site) for site in order.fleet.sites}

    def _open(self, site: Site) -> SiteRun:
        session = ENGINES.load(site.engine).open_session(site, self._prefix)
        order = {
            "matrix": str(self.order.matrix),
            "sandbox": site.sandbox,
            "engine": site.engine,
            **({} if self.order.lock is None else {"lock": str(self.order.lock)}),
        }
        return SiteRun(site, session, prefix=self._prefix, order=order, home=self._store)

    def recover(self) -> None:
        """Take home what earlier runs left at the sites; their jobs that go on are this run's then.

        A site that does not answer keeps what it has.
        """
        for site in self.runs.values():
            try:
                _, going_on = site.recover()
            except EngineError as error:  # noqa: PERF203  # one silent site must not stop the others
                self.complain(site, error.what)
            else:
                self.left |= {(site.site.name, name): chunk for name, chunk in going_on.items()}

    def ask_capacity(self) -> dict[SlotKind, int]:
        """Return what the sites have now; a site that does not answer has nothing in this run.

        Raises:
            EngineError: None answers.
        """
        found: dict[SlotKind, int] = {}
        silent: list[EngineError] = []
        for site in self.runs.values():
            try:
                found |= site.capacity()
            except EngineError as error:  # noqa: PERF203  # one silent site must not stop the others
                silent.append(error)
                self.complain(site, error.what)
        if not found and silent:
            raise silent[0]
        return found

    def complain(self, site: SiteRun, what: str) -> None:
        """Keep what an engine says while it does not answer; empty if it does."""
        if what:
            self.troubles[site.site.name] = what
        else:
            self.troubles.pop(site.site.name, None)


class FleetRun:
    """One run over a fleet. Use it as ``with run.running() as events: for event in events: …``."""

    def __init__(self, cells: Sequence[Cell], sites: FleetSites, policy: RunPolicy) -> None:
        self.planned = len(cells)
        self.counts: Counter[Status] = Counter()
        self.quarantined: Mapping[str, str] = {}
        self.closed: dict[SlotKind, str] = {}
        """Kind of GPU → why nothing more is sent there."""
        self._cells = {cell.id: cell for cell in cells}
        self._fleet = sites
        self._sites = sites.runs
        self._policy = policy
        self._capacity: Mapping[SlotKind, int] = {}
        self._fruitless: Counter[SlotKind] = Counter()

    @property
    def left(self) -> int:
        """Number of cells that have not ended."""
        return self.planned - sum(self.counts.values())

    @contextmanager
    def running(self) -> Iterator[Iterator[RunEvent]]:
        """Run the cells and yield the events; on leaving, every job is ended and what it measured comes home.

        Raises:
            EngineError: No site answers; raised by the iterator.
            StoreError: A record could not be written; raised by the iterator.
        """
        try:
            yield self._events()
        finally:
            self._part()

    def _events(self) -> Iterator[RunEvent]:
        self._capacity = self._fleet.ask_capacity()
        dispatcher = self._dispatcher()
        while not dispatcher.is_done and self._can_go_on(dispatcher):
            for site in self._sites.values():
                yield from self._look(site, dispatcher)
            self._submit(dispatcher)
            time.sleep(_LOOK_EVERY_S)

    def _dispatcher(self) -> Dispatcher:
        held = {id_: name for (_, name), chunk in self._fleet.left.items() for id_ in chunk.cell_ids}
        dispatcher = Dispatcher(map(self._placed, self._cells.values()), self._capacity, held)
        for (site, name), chunk in self._fleet.left.items():
            self._sites[site].resume(name, dispatcher.resume(name, SlotKind(site, chunk.resource)))
        return dispatcher

    def _placed(self, cell: Cell) -> PlacedCell:
        return PlacedCell(
            id=cell.id,
            expected_s=cell.expected_s,
            kind=(cell.gpu.name, cell.toolchain.name),
            family=(cell.problem.id, cell.dtype.value),
            slots=self._fleet.order.slots[cell.id],
        )

    def _can_go_on(self, dispatcher: Dispatcher) -> bool:
        """Return False if nothing runs, and what waits can run on closed kinds of GPU only."""
        return bool(self._running()) or dispatcher.has_work_for(set(self._capacity) - set(self.closed))

    def _running(self) -> Counter[SlotKind]:
        return Counter(chunk.slot for site in self._sites.values() for chunk in site.active.values())

    def _look(self, site: SiteRun, dispatcher: Dispatcher) -> Iterator[RunEvent]:
        """Take home what a site has, and tell the dispatcher."""
        try:
            news = site.look()
        except EngineError as error:
            self._fleet.complain(site, error.what)
            return
        self._fleet.complain(site, "")
        for chunk, record in news.records:
            self._fruitless[chunk.slot] = 0
            dispatcher.recorded([record.cell_id])
            yield from self._ended(record, f"{site.site.name}/{chunk.node}")
        for chunk, is_lost in news.ended:
            dispatcher.ended(chunk.number, lost=is_lost and chunk.has_begun)
            self._note_fruit(chunk)

    def _ended(self, record: Record, lane: str) -> Iterator[RunEvent]:
        cell = self._cells.get(record.cell_id)
        if cell is None:  # of an earlier run, which had other cells
            return
        self.counts[record.outcome.status] += 1
        yield RunEvent(happening=EventKind.CELL_ENDED, cell=cell, lane=lane, record=record)

    def _submit(self, dispatcher: Dispatcher) -> None:
        running = self._running()
        for slot, units in self._capacity.items():
            site = self._sites[slot.site]
            while slot not in self.closed and running[slot] < units and site.has_room():
                chunk = dispatcher.take(slot)
                if chunk is None:
                    break
                running[slot] += 1
                try:
                    site.submit(chunk, self._policy.run_id)
                except EngineError as error:
                    self._fleet.complain(site, error.what)
                    break
        holders = {number: site for site in self._sites.values() for number in site.active}
        for number, ids in dispatcher.newly_withdrawn():
            holders[number].withdraw(number, ids)

    def _note_fruit(self, chunk: ActiveChunk) -> None:
        """Close a kind of GPU whose chunks end again and again without any record."""
        if not chunk.has_begun:
            return
        self._fruitless[chunk.slot] += not chunk.seen
        if self._fruitless[chunk.slot] >= _MOST_FRUITLESS:
            self.closed[chunk.slot] = chunk.log_tail

    def _part(self) -> None:
        """End all jobs, and take home what they measured until then."""
        end_s = time.monotonic() + _PARTING_S
        for site in self._sites.values():
            with suppress(EngineError):
                site.cancel()
        while any(site.active for site in self._sites.values()) and time.monotonic() < end_s:
            for site in self._sites.values():
                with suppress(EngineError):
                    site.look()
            time.sleep(_LOOK_EVERY_S)
