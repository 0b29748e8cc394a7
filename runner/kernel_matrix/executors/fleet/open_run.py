"""A run over a fleet to which cells are added while it goes on: jobs stay, and are sent one cell after the other."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from kernel_matrix.errors import StoreError
from kernel_matrix.executors.engines import EngineError
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.fleet.fleet_run import CAPACITY_EVERY_S, FleetSites
from kernel_matrix.executors.fleet.sent_files import SIGN_EVERY_S, SentFiles
from kernel_matrix.executors.fleet.site_run import ActiveChunk, SiteRun
from kernel_matrix.fleet.chunks import Chunk, SlotKind
from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record

_LOOK_EVERY_S: Final = 1.0
"""Between two looks at all sites; a look costs two commands per site."""
_IN_HAND: Final = 12
"""Cells that a job holds: some are built while one is judged."""
_MOST_IN_JOB: Final = 1000
"""Cells that one job is sent, which remembers all of them."""
_MOST_FRUITLESS: Final = 3
"""Jobs in a row without a record until a kind of GPU rests: something is wrong there, whatever is sent."""
_REST_S: Final = 600.0
_REST_UNBEGUN_S: Final = 30.0
"""After a job that never began: somebody has cancelled it, or its site does not start jobs now."""
_PARTING_JOB_S: Final = 600.0
"""Time before a job's limit at which it is sent nothing more."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class SentCell:
    """A cell and what a node needs to plan it."""

    cell: Cell
    request: dict[str, Any]
    """The candidate, as JSON."""
    slots: frozenset[SlotKind]
    """Where it can run."""


@dataclass(slots=True)
class _OpenJob:
    """A job that stays."""

    chunk: ActiveChunk
    files: SentFiles
    in_hand: dict[str, SentCell] = field(default_factory=dict)
    records: dict[str, Record] = field(default_factory=dict)
    """Cell id → its latest record."""
    sent: int = 0
    is_testing: bool = False
    """True while it has one cell that a lost job had."""
    is_ending: bool = False
    submitted_s: float = field(default_factory=time.monotonic)
    used_s: float = field(default_factory=time.monotonic)
    """When it last had something in hand."""


class FleetOpenRun:
    """A run over a fleet. Use it as ``with run.running() as events: for event in events: …``.

    A cell that ends without a record has an event of the kind ``cell_skipped``.

    Args:
        sites: The sites, for the store of results.
        run_id: Name of the run.
        release_after_s: How long a job that has nothing to do keeps its GPU.
    """

    def __init__(self, sites: FleetSites, run_id: str, *, release_after_s: float) -> None:
        self.planned = 0
        self._fleet = sites
        self._token = f"{run_id}p{next(sites.numbers)}"
        self._release_after_s = release_after_s
        self._added: queue.SimpleQueue[SentCell] = queue.SimpleQueue()
        self._waiting: deque[SentCell] = deque()
        self._suspects: deque[SentCell] = deque()
        """Cells whose job was lost: each is judged by a job that has nothing else, so that only one can be to blame."""
        self._jobs: dict[int, _OpenJob] = {}
        self._numbers = count()
        self._capacity_asked_s = 0.0
        self._fruitless: Counter[SlotKind] = Counter()
        self._rests_until_s: dict[SlotKind, float] = {}
        self._signed_s = 0.0
        self._is_ended = False
        self._is_stopped = False
        self._wake = threading.Event()

    # ---- for other threads

    def add(self, cells: Sequence[SentCell]) -> None:
        """Run these cells, too; before :meth:`end`."""
        self.planned += len(cells)
        for cell in cells:
            self._added.put(cell)
        self._wake.set()

    def end(self) -> None:
        """Say that no more cells come; the run ends when all have ended."""
        self._is_ended = True
        self._wake.set()

    def stop(self) -> None:
        """End the run; cells that have not ended leave no record."""
        self._is_stopped = True
        self._wake.set()

    # ---- the run

    @contextmanager
    def running(self) -> Iterator[Iterator[RunEvent]]:
        """Run the cells and yield the events; on leaving, every job is ended.

        Raises:
            EngineError: No site answers; raised by the iterator.
            StoreError: A record could not be written; raised by the iterator.
        """
        try:
            yield self._events()
        finally:
            for job in self._jobs.values():
                job.files.send_last()
            for _ in self._fleet.part():
                pass

    def _events(self) -> Iterator[RunEvent]:
        looked_s = 0.0
        self._fleet.ask_capacity()
        self._capacity_asked_s = time.monotonic()
        while not self._is_stopped and not (self._is_ended and self._has_nothing()):
            while not self._added.empty():
                self._waiting.append(self._added.get())
            if time.monotonic() - looked_s >= _LOOK_EVERY_S:
                looked_s = time.monotonic()
                for site in self._fleet.runs.values():
                    yield from self._look(site)
                self._give_signs()
                self._ask_capacity()
            self._hand_out()
            self._start_jobs()
            self._end_idle_jobs()
            for message in self._fleet.news():
                _log.log(logging.WARNING if message.is_warning else logging.INFO, "%s", message.text)
            self._wake.wait(_LOOK_EVERY_S)
            self._wake.clear()

    def _has_nothing(self) -> bool:
        in_hand = any(job.in_hand for job in self._jobs.values())
        return not (in_hand or self._waiting or self._suspects) and self._added.empty()

    # ---- what jobs have done

    def _look(self, site: SiteRun) -> Iterator[RunEvent]:
        mine = {number: self._jobs[number] for number in site.active if number in self._jobs}
        # Before the records: one that is written is then seen with its record.
        ended = {number: job.files.ended() for number, job in mine.items()}
        news = self._fleet.look(site)
        if news is None:
            return
        for text in news.warnings:
            _log.warning("%s", text)
        for chunk, record in news.records:
            if chunk.number in mine:
                mine[chunk.number].records[record.cell_id] = record
        for number, cells in ended.items():
            yield from self._cells_ended(mine[number], cells)
        for chunk, is_lost in news.ended:
            if chunk.number in self._jobs:
                yield from self._job_ended(self._jobs.pop(chunk.number), is_lost=is_lost)

    def _cells_ended(self, job: _OpenJob, ended: dict[str, str]) -> Iterator[RunEvent]:
        for cell_id, why in ended.items():
            sent, record = job.in_hand.get(cell_id), job.records.get(cell_id)
            if sent is not None and not why and record is None:
                continue  # the file system shows its record later
            job.files.forget(cell_id)
            if sent is None:
                continue
            del job.in_hand[cell_id]
            job.records.pop(cell_id, None)
            self._fruitless[job.chunk.slot] = 0
            kind = EventKind.CELL_SKIPPED if why else EventKind.CELL_ENDED
            lane = f"{job.chunk.slot.site}/{job.chunk.node or job.chunk.slot.resource}"
            yield RunEvent(happening=kind, cell=sent.cell, lane=lane, record=None if why else record, text=why)

    def _job_ended(self, job: _OpenJob, *, is_lost: bool) -> Iterator[RunEvent]:
        """Take back what a job has not judged."""
        yield from self._cells_ended(job, {id_: "" for id_ in [*job.in_hand] if id_ in job.records})
        left, slot = [*job.in_hand.values()], job.chunk.slot
        if job.is_ending or not (left or is_lost):
            self._waiting.extendleft(reversed(left))
            return
        why = job.chunk.reason or "it ended by itself"
        _log.warning("%s: a job has ended with %d cells: %s\n%s", slot, len(left), why, job.chunk.log_tail)
        if not job.chunk.has_begun:  # and so was sent nothing
            self._rests_until_s[slot] = time.monotonic() + _REST_UNBEGUN_S
            return
        if not job.chunk.has_records:
            self._fruitless[slot] += 1
            if self._fruitless[slot] >= _MOST_FRUITLESS:
                self._rests_until_s[slot] = time.monotonic() + _REST_S
                _log.error("%s: %d jobs in a row without a record; it rests for %.0f s", slot, _MOST_FRUITLESS, _REST_S)
        if len(left) == 1:
            yield RunEvent(happening=EventKind.CELL_SKIPPED, cell=left[0].cell, text=f"its job was lost: {why}")
        else:
            self._suspects.extend(left)

    # ---- what jobs are to do

    def _hand_out(self) -> None:
        for job in self._jobs.values():
            if job.is_ending or job.sent >= _MOST_IN_JOB or not job.chunk.has_begun:
                continue
            slot = job.chunk.slot
            if not job.in_hand:
                suspect = _take(self._suspects, slot)
                job.is_testing = suspect is not None
                if suspect is not None:
                    self._send(job, suspect)
            while not job.is_testing and len(job.in_hand) < _IN_HAND and (cell := _take(self._waiting, slot)):
                self._send(job, cell)

    def _send(self, job: _OpenJob, sent: SentCell) -> None:
        try:
            job.files.send(sent.cell.id, sent.request)
        except OSError as error:
            self._waiting.appendleft(sent)
            job.is_ending = True  # another one has another folder
            _log.warning("%s cannot be written: %s", job.files.folder, error.strerror)
            return
        job.in_hand[sent.cell.id] = sent
        job.sent += 1

    def _start_jobs(self) -> None:
        """Submit a job for each free GPU that something waits for."""
        now_s, active = time.monotonic(), Counter(job.chunk.slot for job in self._jobs.values())
        for slot, most in self._fleet.units.items():
            site = self._fleet.runs[slot.site]
            if self._rests_until_s.get(slot, 0.0) > now_s or active[slot] >= most or not site.has_room():
                continue
            begins = any(job.chunk.slot == slot and not job.chunk.has_begun for job in self._jobs.values())
            if not begins and any(slot in one.slots for one in (*self._waiting, *self._suspects)):
                self._submit(site, slot)

    def _submit(self, site: SiteRun, slot: SlotKind) -> None:
        chunk = Chunk(number=next(self._numbers), slot=slot, cells=(), is_open=True)
        try:
            site.submit(chunk, self._token)
        except StoreError as error:
            self._fleet.complain(site, str(error))
            return
        except EngineError as error:  # the job may exist all the same
            self._fleet.complain(site, str(error))
        active = site.active[chunk.number]
        job = self._jobs[chunk.number] = _OpenJob(active, SentFiles(active.folder))
        job.files.give_sign()

    def _end_idle_jobs(self) -> None:
        now_s = time.monotonic()
        for job in self._jobs.values():
            hours = self._fleet.runs[job.chunk.slot.site].site.hours
            is_old = hours is not None and now_s - job.submitted_s > hours * 3600 - _PARTING_JOB_S
            if job.in_hand or not job.chunk.has_begun:
                job.used_s = now_s
            is_idle = now_s - job.used_s > self._release_after_s
            if not job.is_ending and (is_old or is_idle or job.sent >= _MOST_IN_JOB):
                job.is_ending = True
                job.files.send_last()

    def _give_signs(self) -> None:
        if time.monotonic() - self._signed_s >= SIGN_EVERY_S:
            self._signed_s = time.monotonic()
            for job in self._jobs.values():
                job.files.give_sign()

    def _ask_capacity(self) -> None:
        """Follow nodes that come and go."""
        if time.monotonic() - self._capacity_asked_s >= CAPACITY_EVERY_S:
            self._capacity_asked_s = time.monotonic()
            with suppress(EngineError):
                self._fleet.ask_capacity()


def _take(cells: deque[SentCell], slot: SlotKind) -> SentCell | None:
    """Take the first of the cells that can run there; None if there is none."""
    for index, one in enumerate(cells):
        if slot in one.slots:
            del cells[index]
            return one
    return None
