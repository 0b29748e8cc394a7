"""One run over the sites of a fleet."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Final, TypeVar

from kernel_matrix.errors import InfrastructureError, StoreError
from kernel_matrix.executors.engines import ENGINES, EngineError
from kernel_matrix.executors.events import EventKind, RunEvent, RunMessage, RunStatus
from kernel_matrix.executors.fleet.node_report import NodeReport
from kernel_matrix.executors.fleet.site_run import ActiveChunk, LeftChunk, SiteNews, SiteRun, chunk_order
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.fleet import Fleet, Site
from kernel_matrix.fleet.chunks import SlotKind
from kernel_matrix.fleet.dispatcher import MOST_LOSSES, Dispatcher
from kernel_matrix.fleet.placement import placed_cell
from kernel_matrix.hosts.survey import Conditions, HostSurvey, conditions
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record
from kernel_matrix.results.store import RecordStore

_T = TypeVar("_T")
_STORE_FILE: Final = "fleet.json"
_LOOK_EVERY_S: Final = 1.0
"""Between two looks at all sites; a look costs two commands per site."""
_MOST_FRUITLESS: Final = 3
"""Chunks in a row without a record until their kind of GPU is closed: something is wrong there, whatever is sent."""
CAPACITY_EVERY_S: Final = 60.0
"""Between two questions what the sites have; nodes come and go within minutes."""
_TAKES_CHUNKS: Final = "takes chunks"
"""What a site whose workspace cannot be written does not do."""
_PARTING_S: Final = 90.0
"""How long a cancelled job may take to end: its runner has a minute to give the GPU back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetOrder:
    """The fleet of a run, and which of its sites can run which cells."""

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

    def devices(self, _cell: Cell) -> None:
        """Return None: the engines of sites know how many GPUs there are, and not which."""
        return


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


def drained(found: list[_T]) -> list[_T]:
    """Return what a list holds, and empty it."""
    held, found[:] = found[:], []
    return held


class FleetSites:
    """The sites of a fleet, for one store of results.

    Args:
        order: The run's.
        store: Where records go.
    """

    def __init__(self, order: FleetOrder, store: RecordStore) -> None:
        self.order = order
        self.numbers = count()
        """Of the runs at these sites, since one process may start several with one name."""
        self.left: dict[tuple[str, str], LeftChunk] = {}
        """Site and name → a chunk of an earlier run whose job goes on."""
        self.units: Mapping[SlotKind, int] = {}
        """Kind of GPU → how many the sites had when they were asked last."""
        self._troubles: dict[tuple[str, str], str] = {}
        """Site and what it does not do → what was said of it last."""
        self._news: list[RunMessage] = []
        self._store = store
        self._prefix = job_prefix(store.root)
        self.runs = {site.name: self._open(site) for site in order.fleet.sites}

    def _open(self, site: Site) -> SiteRun:
        session = ENGINES.load(site.engine).open_session(site, self._prefix)
        order = chunk_order(site, self.order.matrix, self.order.lock)
        return SiteRun(site, session, prefix=self._prefix, order=order, home=self._store)

    def recover(self) -> None:
        """Take home what earlier runs left at the sites; their jobs that go on are this run's then.

        A site that does not answer keeps what it has.
        """
        for site in self.runs.values():
            try:
                _, going_on = site.recover()
            except EngineError as error:  # noqa: PERF203  # one silent site must not stop the others
                self.complain(site, str(error))
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
                self.complain(site, str(error))
        if not found and silent:
            raise silent[0]
        self.units = found
        return found

    def complain(self, site: SiteRun, what: str, *, cure: str = "answers") -> None:
        """Keep what is wrong with a site; empty if nothing is any more, and it does what ``cure`` says again."""
        key = (site.site.name, cure)
        if what and self._troubles.get(key) != what:
            self._news.append(RunMessage(text=f"{what}\nit is asked again until it {cure}", is_warning=True))
        elif not what and key in self._troubles:
            self._news.append(RunMessage(text=f"site {site.site.name} {cure} again"))
        if what:
            self._troubles[key] = what
        else:
            self._troubles.pop(key, None)

    def look(self, site: SiteRun) -> SiteNews | None:
        """Copy new records of a site to the store, and return its news.

        Returns:
            None if the site does not answer; then :meth:`news` has a message about that.
        """
        try:
            found = site.look()
        except EngineError as error:
            self.complain(site, str(error))
            return None
        self.complain(site, "")
        return found

    def part(self) -> Iterator[Record]:
        """End all jobs, and yield the records that come home until they have ended."""
        end_s = time.monotonic() + _PARTING_S
        for site in self.runs.values():
            with suppress(EngineError):
                site.cancel()
        while any(site.active for site in self.runs.values()) and time.monotonic() < end_s:
            for site in self.runs.values():
                with suppress(EngineError):
                    yield from (record for _, record in site.look().records)
            time.sleep(_LOOK_EVERY_S)

    def news(self) -> list[RunMessage]:
        """Return what is new about sites that do not answer, or have no room."""
        return drained(self._news)


class FleetRun:
    """One run over a fleet. Use it as ``with run.running() as events: for event in events: …``.

    Args:
        sites: The sites, for the store of results.
        cells: Cells to run.
        _survey: Of this host, which runs none of them.
        _store: The store; ``sites`` has it.
        policy: Name and deadline of the run.
    """

    def __init__(
        self, sites: FleetSites, cells: Sequence[Cell], _survey: HostSurvey, _store: RecordStore, policy: RunPolicy
    ) -> None:
        self.planned = len(cells)
        self.quarantined: dict[str, str] = {}
        """Site and GPU model → why nothing more is sent there."""
        self._cells = {cell.id: cell for cell in cells}
        self._statuses: dict[str, Status] = {}
        """Cell id → how it ended, by its last attempt."""
        self._undecided: dict[str, tuple[ActiveChunk, Record]] = {}
        """Cell id → an attempt that its node may repeat."""
        self._fleet = sites
        self._sites = sites.runs
        self._policy = policy
        self._token = f"{policy.run_id}p{next(sites.numbers)}"
        self._capacity: dict[SlotKind, int] = {}
        self._capacity_asked_s = 0.0
        self._fruitless: Counter[SlotKind] = Counter()
        self._lost_at: dict[SlotKind, str] = {}
        """Kind of GPU → cell at which a chunk was lost there last."""
        self._is_stopped = False
        self._put_off = 0
        """Cells that the deadline has kept from running."""
        self._told_status = ""
        self._failures: list[str] = []
        """Why cells could not be run."""

    @property
    def counts(self) -> Counter[Status]:
        """Status → cells that ended so."""
        return Counter(self._statuses.values())

    @property
    def clocks_ahead_s(self) -> dict[str, float]:
        """Node whose clock differs from this machine's → by how many seconds, at least, it is ahead."""
        return {node: ahead_s for site in self._sites.values() for node, ahead_s in site.clocks_ahead_s.items()}

    @property
    def left(self) -> int:
        """Number of cells that have not ended."""
        return self.planned - len(self._statuses)

    @contextmanager
    def running(self) -> Iterator[Iterator[RunEvent | RunMessage | RunStatus]]:
        """Run the cells and yield the events; on leaving, every job is ended and what it measured comes home.

        Raises:
            InfrastructureError: No site answers, or cells were given up; raised by the iterator.
            StoreError: A record could not be written; raised by the iterator.
        """
        try:
            yield self._events()
        finally:
            self._part()

    def _events(self) -> Iterator[RunEvent | RunMessage | RunStatus]:
        self._capacity = self._fleet.ask_capacity()
        self._capacity_asked_s = time.monotonic()
        dispatcher = self._dispatcher()
        while not dispatcher.is_done and not self._is_stopped and self._can_go_on(dispatcher):
            for site in self._sites.values():
                yield from self._look(site, dispatcher)
            self._ask_capacity_again()
            self._submit(dispatcher)
            yield from self._skipped(dispatcher)
            yield from self._fleet.news()
            yield from self._status()
            time.sleep(_LOOK_EVERY_S)
        self._check_all_tried()

    def _skipped(self, dispatcher: Dispatcher) -> Iterator[RunEvent]:
        """Yield the cells that this run will not send, for no fault of theirs."""
        late, alone = drained(dispatcher.too_late), drained(dispatcher.without_unit)
        self._put_off += len(late) + len(alone)
        for full in (self._cells[cell.id] for cell in late):
            why = self._policy.why_skipped(full) or "no chunk can end it before the deadline"
            yield RunEvent(happening=EventKind.CELL_SKIPPED, cell=full, text=why)
        for full in (self._cells[cell.id] for cell in alone):
            measured = len(self._policy.measured_on[full.id])
            why = f"units = {full.gpu.units}: no board was found besides the {measured} that have measured it"
            yield RunEvent(happening=EventKind.CELL_SKIPPED, cell=full, text=why)

    def _status(self) -> Iterator[RunStatus]:
        """Yield what runs where, if that has changed."""
        begun = Counter(
            chunk.slot for site in self._sites.values() for chunk in site.active.values() if chunk.has_begun
        )
        sent = self._running()
        parts = []
        for slot, units in self._capacity.items():
            waiting = f" (+{sent[slot] - begun[slot]} waiting)" if sent[slot] > begun[slot] else ""
            parts.append(f"{slot} {'closed' if str(slot) in self.quarantined else f'{begun[slot]}/{units}{waiting}'}")
        text = ", ".join(parts)
        if text != self._told_status:
            self._told_status = text
            yield RunStatus(text)

    def _dispatcher(self) -> Dispatcher:
        # Of two chunks with a cell the later one has it: it has taken the cell over.
        left = sorted(self._fleet.left.items(), key=lambda one: _by_number(one[0][1]))
        held = {id_: name for (_, name), chunk in left for id_ in chunk.cell_ids}
        slots = self._fleet.order.slots
        moving = {id_ for id_, measured_on in self._policy.measured_on.items() if measured_on}
        placed = (placed_cell(cell, slots[cell.id], moves=cell.id in moving) for cell in self._cells.values())
        dispatcher = Dispatcher(placed, self._capacity, held)
        for (site, name), chunk in self._fleet.left.items():
            self._sites[site].resume(name, dispatcher.resume(name, SlotKind(site, chunk.resource)))
        self._fleet.left.clear()
        return dispatcher

    def _can_go_on(self, dispatcher: Dispatcher) -> bool:
        """Return False if nothing runs, and what waits can run on closed kinds of GPU only."""
        return bool(self._running()) or dispatcher.has_work_for(self._open_kinds())

    def _open_kinds(self) -> set[SlotKind]:
        return {slot for slot in self._capacity if str(slot) not in self.quarantined}

    def _running(self) -> Counter[SlotKind]:
        return Counter(chunk.slot for site in self._sites.values() for chunk in site.active.values())

    def _room_s(self) -> float:
        return math.inf if self._policy.deadline is None else self._policy.deadline - time.monotonic()

    def _look(self, site: SiteRun, dispatcher: Dispatcher) -> Iterator[RunEvent | RunMessage]:
        """Take home what a site has, and tell the dispatcher."""
        news = self._fleet.look(site)
        if news is None:
            return
        yield from (RunMessage(text=text, is_warning=True) for text in news.warnings)
        for chunk, record in news.records:
            self._fruitless[chunk.slot] = 0
            yield from self._recorded(chunk, record, dispatcher)
        for chunk, is_lost in news.ended:
            yield from self._chunk_ended(chunk, dispatcher, is_lost=is_lost)

    def _recorded(self, chunk: ActiveChunk, record: Record, dispatcher: Dispatcher) -> Iterator[RunEvent]:
        """Note an attempt; one that its node may repeat is decided by the next, or by the end of the chunk."""
        cell = self._cells.get(record.cell_id)
        if cell is None:  # of an earlier run, which had other cells
            return
        if cell.id in self._undecided:
            before, repeated = self._undecided.pop(cell.id)
            yield RunEvent(happening=EventKind.CELL_RETRIED, cell=cell, lane=_lane(before), record=repeated)
        if _may_be_repeated(record):
            self._undecided[cell.id] = chunk, record
        else:
            yield from self._cell_ended(cell, chunk, record, dispatcher)

    def _cell_ended(self, cell: Cell, chunk: ActiveChunk, record: Record, dispatcher: Dispatcher) -> Iterator[RunEvent]:
        dispatcher.recorded([cell.id])
        is_known = cell.id in self._statuses
        self._statuses[cell.id] = record.outcome.status
        self._is_stopped |= self._policy.fail_fast and record.outcome.fault is not Fault.NONE
        if not is_known:  # a chunk that was thought lost may record a cell again
            yield RunEvent(happening=EventKind.CELL_ENDED, cell=cell, lane=_lane(chunk), record=record)

    def _chunk_ended(
        self, chunk: ActiveChunk, dispatcher: Dispatcher, *, is_lost: bool
    ) -> Iterator[RunEvent | RunMessage]:
        for id_, (its_chunk, record) in [*self._undecided.items()]:
            if its_chunk is not chunk:
                continue
            del self._undecided[id_]
            cell = self._cells[id_]
            if is_lost:  # it will be sent again, with what else has no record
                yield RunEvent(happening=EventKind.CELL_RETRIED, cell=cell, lane=_lane(chunk), record=record)
            else:
                yield from self._cell_ended(cell, chunk, record, dispatcher)
        where = chunk.unit or chunk.node if chunk.has_begun else ""
        was_killed = is_lost and chunk.has_begun
        measured = dispatcher.ended(chunk.number, lost=was_killed, where=None if was_killed else where)
        if is_lost:
            why = f": {chunk.reason}" if chunk.reason else ""
            yield RunMessage(
                text=f"{_lane(chunk)}: a chunk was lost{why}; the rest of it is sent again", is_warning=True
            )
        for given_up in drained(dispatcher.given_up):
            full = self._cells[given_up.id]
            why = f"given up: {MOST_LOSSES} chunks were lost at it"
            self._failures.append(f"{full.candidate.id} {full.dtype.value} {full.gpu.name}: {why}")
            yield RunEvent(happening=EventKind.CELL_SKIPPED, cell=full, lane=_lane(chunk), text=why)
        is_refused = chunk.moves and not is_lost
        if chunk.has_begun and not (chunk.has_records or is_refused) and chunk.shortest_s <= self._room_s():
            yield from self._note_fruitless(chunk, measured.id if is_lost and measured is not None else "")

    def _note_fruitless(self, chunk: ActiveChunk, lost_at: str) -> Iterator[RunMessage]:
        """Close a kind of GPU whose chunks end again and again without any record, not always at the same cell."""
        if lost_at and self._lost_at.get(chunk.slot) == lost_at:
            return
        self._lost_at[chunk.slot] = lost_at
        self._fruitless[chunk.slot] += 1
        if self._fruitless[chunk.slot] >= _MOST_FRUITLESS and str(chunk.slot) not in self.quarantined:
            why = f"{_MOST_FRUITLESS} chunks in a row ended without a record; the last one's output ends so:"
            self.quarantined[str(chunk.slot)] = f"{why}\n{chunk.log_tail}"
            self._failures.append(f"{chunk.slot}: {why}\n{chunk.log_tail}")
            yield RunMessage(text=f"{chunk.slot}: nothing more is sent there: {why}\n{chunk.log_tail}", is_error=True)

    def _ask_capacity_again(self) -> None:
        """Follow nodes that come and go."""
        now_s = time.monotonic()
        if now_s - self._capacity_asked_s < CAPACITY_EVERY_S:
            return
        self._capacity_asked_s = now_s
        with suppress(EngineError):
            self._capacity |= self._fleet.ask_capacity()

    def _submit(self, dispatcher: Dispatcher) -> None:
        running = self._running()
        for slot in self._open_kinds():
            site = self._sites[slot.site]
            while running[slot] < self._capacity[slot] and site.has_room():
                chunk = dispatcher.take(slot, room_s=self._room_s())
                if chunk is None:
                    break
                running[slot] += 1
                try:
                    site.submit(chunk, self._token, self._room_s(), self._policy.measured_on)
                except EngineError as error:
                    self._fleet.complain(site, str(error))
                    break
                except StoreError as error:
                    dispatcher.ended(chunk.number, lost=False)
                    self._fleet.complain(site, str(error), cure=_TAKES_CHUNKS)
                    break
                self._fleet.complain(site, "", cure=_TAKES_CHUNKS)
        holders = {number: site for site in self._sites.values() for number in site.active}
        for number, ids in dispatcher.newly_withdrawn():
            holders[number].withdraw(number, ids)

    def _check_all_tried(self) -> None:
        """Raise if cells are left for another reason than the deadline or the first failure."""
        if self._is_stopped or not self.left - self._put_off:
            return
        what = f"{self.left - self._put_off} cells could not be run at any site:"
        failures = self._failures or ["no site has what they need now: its nodes are down, drained or gone"]
        raise InfrastructureError("\n  ".join((what, *failures)), next_step="mend that, and run again to go on")

    def _part(self) -> None:
        """End all jobs, and take home what they measured until then."""
        for record in self._fleet.part():
            if record.cell_id in self._cells:
                self._statuses[record.cell_id] = record.outcome.status


def _may_be_repeated(record: Record) -> bool:
    """Return whether the node may run the cell again by itself: the machine failed it, or its clocks disagreed once."""
    return record.outcome.fault is Fault.INFRA or record.outcome.status is Status.TIMING_MISMATCH


def _by_number(name: str) -> tuple[str, int]:
    run, _, number = name.rpartition("-")
    return run, int(number) if number.isdecimal() else 0


def _lane(chunk: ActiveChunk) -> str:
    return f"{chunk.slot.site}/{chunk.node or chunk.slot.resource}"
