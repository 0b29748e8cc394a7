"""The chunks of one run at one site: their folders, their jobs, and the records that come home.

A chunk is a folder in the site's workspace::

    <workspace>/<store>/<chunk>/chunk.json       what to run, read by ``kernel-matrix cell run``
                                withdrawn.json   cells that other chunks have taken over
                                resource.txt     on which GPU model
                                records/ …       a store of the chunk's own, so that no two processes write to one
                                log.txt          output of the job

The name of the folder is the job's, too. When a chunk has ended and its records are home, its folder is removed. So
whatever is there belongs to chunks that are under way, or were left by a head that died: a later run goes on with them.
"""

from __future__ import annotations

import json
import math
import shutil
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

from kernel_matrix.attempt.buildcache import CACHE_VARIABLE
from kernel_matrix.errors import StoreError
from kernel_matrix.executors.engines import LOG_FILE, EngineSession, Job, JobState
from kernel_matrix.fleet import Site
from kernel_matrix.fleet.chunks import Chunk, SlotKind
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.model.instants import parse_instant, utc_now
from kernel_matrix.results.adoption import AdoptionRefusedError, adopt, adopt_run
from kernel_matrix.results.record import Record
from kernel_matrix.results.store import RecordStore

CHUNK_FILE: Final = "chunk.json"
WITHDRAWN_FILE: Final = "withdrawn.json"
BUILDS_FOLDER: Final = "builds"
"""In the workspace: what one node has compiled, the others take."""
RESOURCE_FILE: Final = "resource.txt"
_TAIL_BYTES: Final = 2000
_CLOCK_NOISE_S: Final = 2.0
"""Clocks that a network time service keeps differ by far less, and a shared file system shows files later."""
_SETTLING_S: Final = 60.0
"""How long an engine may not know a job until it is lost: a controller that starts again knows none at first."""


@dataclass(slots=True)
class ActiveChunk:
    """A chunk whose job may be running."""

    number: int
    slot: SlotKind
    token: str
    folder: Path
    known_s: float
    """When the engine last knew its job, monotonic seconds."""
    shortest_s: float = 0.0
    """Expected time of its shortest cell, seconds."""
    submitted_at: str = ""
    """By this machine's clock; empty for a chunk of an earlier run."""
    has_begun: bool = False
    """True once its job ran; one that never did says nothing about its cells."""
    node: str = ""
    """Where it runs or ran; empty while the engine does not say."""
    unit: str = ""
    """UUID of its GPU, if the engine says."""
    moves: bool = False
    """True: a GPU that has measured all of its cells takes none of them."""
    reason: str = ""
    """Why it waits or was lost, as the engine says."""
    seen: set[str] = field(default_factory=set)
    """Names of its records that were looked at."""
    has_records: bool = False
    """True once one of them was a record."""
    log_tail: str = ""
    """End of the job's output, once it has ended."""


@dataclass(frozen=True, slots=True)
class LeftChunk:
    """A chunk of an earlier run whose job goes on."""

    resource: str
    cell_ids: frozenset[str]

    @staticmethod
    def read(folder: Path) -> LeftChunk:
        """Read what was written when it was submitted; an unreadable one has no cells, and its records come anyway."""
        try:
            ids = json.loads((folder / CHUNK_FILE).read_bytes())["cell_ids"]
            return LeftChunk((folder / RESOURCE_FILE).read_text(encoding="utf-8"), frozenset(ids))
        except (OSError, ValueError, KeyError, TypeError):
            return LeftChunk("", frozenset())


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkState:
    """A chunk in a workspace."""

    site: str
    name: str
    resource: str
    state: str
    """What the engine says of its job; ``unknown`` if it does not know it."""
    reason: str
    node: str
    cells: int
    records: int
    """Cells that ended so far."""
    log: Path


@dataclass(frozen=True, slots=True, kw_only=True)
class SiteNews:
    """Records, warnings and ended chunks of a site since the last look."""

    records: Sequence[tuple[ActiveChunk, Record]]
    warnings: Sequence[str]
    """Why files of chunks are no records, and which clocks differ."""
    ended: Sequence[tuple[ActiveChunk, bool]]
    """Chunks whose jobs are gone; True: lost."""


def chunk_order(site: Site, matrix: Path, lock: Path | None) -> dict[str, Any]:
    """Return what ``chunk.json`` holds besides the cells."""
    order = {"matrix": str(matrix), "sandbox": site.sandbox, "engine": site.engine}
    return order if lock is None else order | {"lock": str(lock)}


class SiteRun:
    """One run at one site.

    Args:
        site: The site.
        session: Its engine, for jobs whose names begin with ``prefix``.
        prefix: What the names of all chunks of the store begin with.
        order: What ``chunk.json`` holds besides the cells.
        home: Where records go.
    """

    def __init__(
        self, site: Site, session: EngineSession, *, prefix: str, order: dict[str, Any], home: RecordStore
    ) -> None:
        self.site = site
        self.active: dict[int, ActiveChunk] = {}
        self.clocks_ahead_s: dict[str, float] = {}
        """Node whose clock differs from this machine's → by how many seconds, at least, it is ahead."""
        self._left: dict[str, ActiveChunk] = {}
        """Name → a chunk of an earlier run whose job goes on."""
        self._session = session
        self._prefix = prefix
        self._order = order
        self._home = home
        self._folder = site.workspace / prefix

    def capacity(self) -> Mapping[SlotKind, int]:
        """Return how many GPUs of each kind the run may use at a time.

        Raises:
            EngineError: The engine does not answer.
        """
        found = self._session.units()
        wanted = self.site.gpus or tuple(found)
        return {SlotKind(self.site.name, name): found[name] for name in wanted if found.get(name)}

    def has_room(self) -> bool:
        """Return whether the site's limit allows another job."""
        return self.site.jobs is None or len(self.active) < self.site.jobs

    def submit(
        self,
        chunk: Chunk,
        run_token: str,
        room_s: float = math.inf,
        measured_on: Mapping[str, Collection[str]] | None = None,
    ) -> None:
        """Write a chunk and hand its job to the engine.

        Args:
            chunk: The chunk.
            run_token: Name of the run; with the chunk's number it is unique in the store.
            room_s: Time until the deadline of the run, seconds.
            measured_on: Cell id → UUIDs of GPUs that do not take it.

        Raises:
            EngineError: The engine refuses it or does not answer; the job may exist all the same, and counts as active.
            StoreError: The workspace cannot be written.
        """
        token = f"{self._prefix}-{run_token}-{chunk.number}"
        folder = self._folder / token
        document = {**self._order, "cell_ids": [cell.id for cell in chunk.cells]}
        if room_s < math.inf:
            document["deadline"] = (datetime.now(timezone.utc) + timedelta(seconds=room_s)).isoformat()
        if not_on := {cell.id: sorted((measured_on or {})[cell.id]) for cell in chunk.cells if cell.moves}:
            document["not_on"] = not_on
        try:
            folder.mkdir(parents=True)
            (folder / RESOURCE_FILE).write_text(chunk.slot.resource, encoding="utf-8")
            replace_file(folder / CHUNK_FILE, json.dumps(document))
        except OSError as error:
            _remove(folder)  # the next try has another name
            what = f"site {self.site.name}: {self._folder} cannot be written: {error.strerror}"
            raise StoreError(what, next_step="make room there, or mend `workspace` in the fleet file") from None
        self.active[chunk.number] = ActiveChunk(
            chunk.number,
            chunk.slot,
            token,
            folder,
            time.monotonic(),
            chunk.shortest_s,
            utc_now(),
            moves=chunk.moves,
        )
        builds = f"{CACHE_VARIABLE}={self.site.workspace / BUILDS_FOLDER}"
        words = ("cell", "serve" if chunk.is_open else "run", str(folder / CHUNK_FILE), "--out", str(folder), "--json")
        self._session.submit(
            Job(
                token=token,
                resource=chunk.slot.resource,
                folder=folder,
                command=("env", builds, *self.site.start, *words),
                avoid=chunk.avoid,
            )
        )

    def recover(self) -> tuple[list[Record], dict[str, LeftChunk]]:
        """Take home what chunks of earlier runs have, and remove those whose jobs are gone.

        Returns:
            The records that came home, and by name the chunks whose jobs go on.

        Raises:
            EngineError: The engine does not answer; nothing was removed.
            StoreError: The home cannot be written; what it lacks was not removed.
        """
        statuses = self._session.statuses()
        records: list[Record] = []
        going_on: dict[str, LeftChunk] = {}
        for order in sorted(self._folder.glob(f"*/{CHUNK_FILE}")):
            chunk = ActiveChunk(0, SlotKind(self.site.name, ""), order.parent.name, order.parent, time.monotonic())
            records += [found for found in self._new_records(chunk) if not isinstance(found, str)]
            self._adopt_runs(chunk.folder)
            status = statuses.get(chunk.token)
            is_gone = _age_s(order) > _SETTLING_S if status is None else status.state.is_over
            if is_gone:
                _remove(chunk.folder)
            else:
                self._left[chunk.token] = chunk
                going_on[chunk.token] = LeftChunk.read(chunk.folder)
        return records, going_on

    def chunks(self) -> Iterator[ChunkState]:
        """Yield every chunk that is in the workspace, and what the engine says of its job.

        Raises:
            EngineError: The engine does not answer.
        """
        statuses = self._session.statuses()
        for order in sorted(self._folder.glob(f"*/{CHUNK_FILE}")):
            left = LeftChunk.read(order.parent)
            status = statuses.get(order.parent.name)
            yield ChunkState(
                site=self.site.name,
                name=order.parent.name,
                resource=left.resource,
                state="unknown" if status is None else status.state.value,
                reason="" if status is None else status.reason,
                node="" if status is None else status.node,
                cells=len(left.cell_ids),
                records=len(list((order.parent / "records").glob("*.json"))),
                log=order.parent / LOG_FILE,
            )

    def resume(self, name: str, chunk: Chunk) -> None:
        """Go on with a chunk of an earlier run, which :meth:`recover` has found."""
        left = self._left.pop(name)
        left.number, left.slot, left.known_s = chunk.number, chunk.slot, time.monotonic()
        self.active[chunk.number] = left

    def withdraw(self, number: int, ids: Sequence[str]) -> None:
        """Tell a chunk's process which cells others have now; if that fails, cells run twice."""
        with suppress(OSError):
            replace_file(self.active[number].folder / WITHDRAWN_FILE, json.dumps(list(ids)))

    def look(self) -> SiteNews:
        """Ask the engine, and take home what is new. Records are read after the jobs, so that none is missed.

        Raises:
            EngineError: The engine does not answer; nothing has changed.
            StoreError: The home cannot be written; what it lacks was not removed.
        """
        now = time.monotonic()
        statuses = self._session.statuses()
        ended = []
        for chunk in self.active.values():
            status = statuses.get(chunk.token)
            if status is None:
                if now - chunk.known_s > _SETTLING_S:
                    chunk.reason = "the engine does not know its job any more"
                    ended.append((chunk, True))
                continue
            chunk.known_s, chunk.node, chunk.reason = now, status.node or chunk.node, status.reason
            chunk.unit = status.unit or chunk.unit
            chunk.has_begun |= status.state in (JobState.RUNNING, JobState.ENDED) or (chunk.folder / LOG_FILE).is_file()
            if status.state.is_over:
                ended.append((chunk, status.state is JobState.LOST))
        records: list[tuple[ActiveChunk, Record]] = []
        warnings: list[str] = []
        for chunk in self.active.values():
            for found in self._new_records(chunk):
                if isinstance(found, str):
                    warnings.append(found)
                else:
                    records.append((chunk, found))
                    warnings += self._note_clock(chunk, found)
        for chunk, is_lost in ended:
            del self.active[chunk.number]
            self._adopt_runs(chunk.folder)
            chunk.log_tail = _tail(chunk.folder / LOG_FILE)
            if is_lost:  # it may go on somewhere; its folder is looked at again by the next run
                _withdraw_all(chunk.folder)
            else:
                _remove(chunk.folder)
        return SiteNews(records=records, warnings=warnings, ended=ended)

    def cancel(self) -> None:
        """End all jobs of the store, also those of earlier runs.

        Raises:
            EngineError: The engine does not answer.
        """
        self._session.cancel(self._session.statuses())

    def _new_records(self, chunk: ActiveChunk) -> Iterator[Record | str]:
        for path in sorted((chunk.folder / "records").glob("*.json")):
            if path.name in chunk.seen:
                continue
            found: Record | str | None
            try:
                found = adopt(self._home, path)
                chunk.has_records = True
            except AdoptionRefusedError as error:
                found = error.what
            chunk.seen.add(path.name)
            if found is not None:
                yield found

    def _adopt_runs(self, folder: Path) -> None:
        for path in (folder / "runs").glob("*.json"):
            adopt_run(self._home, path)

    def _note_clock(self, chunk: ActiveChunk, record: Record) -> Iterator[str]:
        """Yield a warning when a node's clock is first seen to differ from this machine's."""
        node = record.host.hostname
        ahead_s = _seconds(utc_now(), record.host.ended_at)
        if chunk.submitted_at:
            ahead_s = max(0.0, ahead_s) or min(0.0, _seconds(chunk.submitted_at, record.host.started_at))
        if abs(ahead_s) < _CLOCK_NOISE_S or node in self.clocks_ahead_s:
            return
        self.clocks_ahead_s[node] = ahead_s
        how = f"{abs(ahead_s):.0f} s {'ahead of' if ahead_s > 0 else 'behind'}"
        yield f"the clock of {node} is at least {how} this machine's; its records keep its times"


def _seconds(since: str, until: str) -> float:
    return (parse_instant(until) - parse_instant(since)).total_seconds()


def _age_s(path: Path) -> float:
    try:
        return time.time() - path.stat().st_mtime
    except OSError:
        return 0.0


def _withdraw_all(chunk: Path) -> None:
    """Let a process that goes on there end after its cell: others have all of them now."""
    with suppress(OSError):
        replace_file(chunk / WITHDRAWN_FILE, json.dumps(sorted(LeftChunk.read(chunk).cell_ids)))


def _remove(chunk: Path) -> None:
    """Remove the folder of a chunk, and that of its store if nothing else is in it."""
    shutil.rmtree(chunk, ignore_errors=True)
    with suppress(OSError):
        chunk.parent.rmdir()


def _tail(path: Path) -> str:
    try:
        return path.read_bytes()[-_TAIL_BYTES:].decode(errors="replace")
    except OSError:
        return ""
