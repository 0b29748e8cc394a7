"""The loop over cells: a lane per device, a build pool beside them, retries, resume, and events for whoever watches.

Cells go to the lanes longest first. A lane takes the first cell of its device whose build is ready, so that a device
never waits for a compiler while something else could run. Nothing in here prints.
"""

from __future__ import annotations

import os
import queue
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from enum import Enum

from runner.cell import Assignment, Bench, CellCancelledError, Ran, run_cell
from runner.cell.building import NEEDS_BUILD, Build, BuildCancelledError, run_build
from runner.cell.scratch import scratch_folder
from runner.cell.settling import machine_failed
from runner.cell.specs import Place, arch_list, builder_spec
from runner.core.vocab import Fault, Stage, Status
from runner.engines import Labels
from runner.errors import InfrastructureError
from runner.facts import Survey
from runner.gpus import Gpu
from runner.host import core_sha256
from runner.owner import owner_token
from runner.plan import Cell, devices_matching
from runner.results.record import Record
from runner.results.store import AttemptSummary, Store


class Happening(str, Enum):
    """What an event tells."""

    BUILD_STARTED = "build_started"
    """A candidate is being compiled."""
    BUILD_ENDED = "build_ended"
    """It was, or was not."""
    CELL_STARTED = "cell_started"
    """A cell has a lane."""
    CELL_ENDED = "cell_ended"
    """A record was written."""
    CELL_RETRIED = "cell_retried"
    """The machine failed the cell; it is tried again: at once, or on another GPU when this one is quarantined."""
    CELL_SKIPPED = "cell_skipped"
    """The deadline is too near to begin it."""
    GPU_QUARANTINED = "gpu_quarantined"
    """Nothing more runs on this GPU in this run; ``text`` says why, ``cell`` is the one after which it was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """Something happened. ``record`` is there when a cell ended."""

    happening: Happening
    cell: Cell
    lane: str = ""
    """UUID of the device."""
    record: Record | None = None
    text: str = ""


class Rerun(str, Enum):
    """Which cells that have a record run again."""

    NONE = "none"
    """Only those whose last attempt was the machine's fault."""
    FAILED = "failed"
    """Also those whose last attempt did not pass."""
    STALE = "stale"
    """Also those that ran with another engine, image, driver or core than this run would."""
    ALL = "all"
    """Every cell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Orders:
    """How a session goes about its cells."""

    run_id: str
    fail_fast: bool = False
    """Stop at the first cell that does not pass."""
    deadline: float | None = None
    """Monotonic time after which no cell is begun, and none that is expected to end later."""
    build_workers: int = 0
    """0: one per core."""


def cells_to_run(cells: Sequence[Cell], store: Store, survey: Survey, rerun: Rerun) -> list[Cell]:
    """The cells that still have to run, longest first."""
    attempts = store.attempts() if rerun is not Rerun.ALL else {}
    wanted = [cell for cell in cells if not _is_done(cell, attempts.get(cell.id, ()), survey, rerun)]
    return sorted(wanted, key=lambda cell: -cell.expected_s)


def _is_done(cell: Cell, attempts: Sequence[AttemptSummary], survey: Survey, rerun: Rerun) -> bool:
    if not attempts or attempts[-1].fault is Fault.INFRA:
        return False
    last = attempts[-1]
    if rerun is Rerun.FAILED:
        return last.status is Status.PASSED
    return rerun is not Rerun.STALE or not _is_stale(cell, last, survey)


def _is_stale(cell: Cell, last: AttemptSummary, survey: Survey) -> bool:
    image = survey.images.get(cell.toolchain.name)
    drivers = {gpu.driver for gpu in devices_matching(cell.gpu, survey.facts.gpus)}
    now = (survey.engine.name, image.id if image is not None else None, core_sha256())
    return (last.engine, last.image_id, last.core_sha256) != now or last.driver not in drivers


@dataclass
class _Pending:
    """Cells that no lane has taken yet, and those that may come back. To be read and changed under ``changed``."""

    cells: list[Cell]
    running: dict[str, Cell] = field(default_factory=dict)
    """UUID of a lane's device → the cell it runs now."""
    closed: set[str] = field(default_factory=set)
    """UUIDs of devices whose lane takes nothing any more."""
    changed: threading.Condition = field(default_factory=threading.Condition)


class Session:
    """One run over some cells. Use as ``with session.running() as events: for event in events: …``."""

    def __init__(self, cells: Sequence[Cell], survey: Survey, store: Store, orders: Orders) -> None:
        self._survey = survey
        self._store = store
        self._orders = orders
        self._pending = _Pending(list(cells))
        self._events: queue.SimpleQueue[Event | BaseException | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._builds: dict[str, Future[Build]] = {}
        self._tries: Counter[str] = Counter()
        self.planned = len(cells)
        self.counts: Counter[Status] = Counter()
        self.quarantined: dict[str, str] = {}
        """UUID → why nothing more runs on that GPU in this run, in words."""

    @property
    def left(self) -> int:
        """Cells that this run did not bring to an end."""
        return self.planned - sum(self.counts.values())

    def stop(self) -> None:
        """Call everything off; lanes end as soon as they have taken their containers away."""
        self._stop.set()
        with self._pending.changed:
            self._pending.changed.notify_all()

    @contextmanager
    def running(self) -> Iterator[Iterator[Event]]:
        """Run in the background; yields the events. On leaving, everything is stopped and taken away.

        :raises StoreError: from the iterator, when a record could not be written.
        """
        with ExitStack() as undo:
            scratch = undo.enter_context(scratch_folder())
            bench = Bench(
                run_id=self._orders.run_id,
                engine=self._survey.engine,
                engine_status=self._survey.status,
                owner=owner_token(),
                scratch=scratch,
                cancelled=self._stop.is_set,
            )
            workers = self._orders.build_workers or os.cpu_count() or 1
            pool = undo.enter_context(ThreadPoolExecutor(workers, thread_name_prefix="build"))
            undo.callback(pool.shutdown, wait=False, cancel_futures=True)
            self._submit_builds(pool, bench)
            lanes = [threading.Thread(target=self._lane, args=(gpu, bench), name=gpu.uuid) for gpu in self._devices()]
            undo.callback(_join, lanes)
            undo.callback(self.stop)
            for lane in lanes:
                lane.start()
            yield self._drain(lanes)

    def _devices(self) -> list[Gpu]:
        """Devices that at least one cell can run on."""
        axes = {cell.gpu.name: cell.gpu for cell in self._pending.cells}.values()
        found = {gpu.uuid: gpu for axis in axes for gpu in devices_matching(axis, self._survey.facts.gpus)}
        return list(found.values())

    def _drain(self, lanes: Sequence[threading.Thread]) -> Iterator[Event]:
        running = len(lanes)
        while running:
            event = self._events.get()
            if event is None:
                running -= 1
            elif isinstance(event, BaseException):
                raise event
            else:
                yield event

    def _lane(self, gpu: Gpu, bench: Bench) -> None:
        """Take cells for ``gpu`` until there are none, or it is quarantined; the lane's own failure ends the run."""
        try:
            while not self._stop.is_set() and gpu.uuid not in self.quarantined:
                cell = self._take(gpu)
                if cell is None:
                    break
                self._run_one(cell, gpu, bench)
        except CellCancelledError:
            pass
        except BaseException as error:  # noqa: BLE001  # told to the main thread, which decides
            self._events.put(error)
        finally:
            self._close(gpu)
            self._events.put(None)

    def _take(self, gpu: Gpu) -> Cell | None:
        """The next cell for ``gpu`` whose build is ready; waits while one may still become ready, or come back."""
        pending = self._pending
        with pending.changed:
            while not self._stop.is_set():
                mine = [cell for cell in pending.cells if self._fits(cell, gpu)]
                ready = [cell for cell in mine if self._is_built(cell)]
                if ready:
                    pending.cells.remove(ready[0])
                    pending.running[gpu.uuid] = ready[0]
                    return ready[0]
                # A cell that another lane runs comes back when that lane's GPU is quarantined.
                if not mine and not any(self._fits(cell, gpu) for cell in pending.running.values()):
                    return None
                pending.changed.wait()
        return None

    def _fits(self, cell: Cell, gpu: Gpu) -> bool:
        return gpu in devices_matching(cell.gpu, self._survey.facts.gpus)

    def _close(self, gpu: Gpu) -> None:
        """The lane of ``gpu`` takes nothing any more; whoever waits for its cell need not wait."""
        with self._pending.changed:
            self._pending.closed.add(gpu.uuid)
            self._pending.running.pop(gpu.uuid, None)
            self._pending.changed.notify_all()

    def _run_one(self, cell: Cell, gpu: Gpu, bench: Bench) -> None:
        """One cell, with its retries, each attempt recorded."""
        deadline = self._orders.deadline
        if deadline is not None and time.monotonic() + cell.expected_s > deadline:
            text = f"expected to take {cell.expected_s:.0f} s, which is past the deadline"
            self._events.put(Event(happening=Happening.CELL_SKIPPED, cell=cell, lane=gpu.uuid, text=text))
            self._put_down(gpu)
            return
        self._events.put(Event(happening=Happening.CELL_STARTED, cell=cell, lane=gpu.uuid))
        ran = self._attempt(cell, gpu, bench)
        while self._is_tried_again(cell, ran.record):
            retried = Event(happening=Happening.CELL_RETRIED, cell=cell, lane=gpu.uuid, record=ran.record)
            if ran.quarantine:
                if self._hand_on(gpu, retried):
                    return
                break
            self._events.put(retried)
            self._build_again_if_lost(cell, bench)
            ran = self._attempt(cell, gpu, bench)
        self._end(cell, gpu, ran.record)

    def _is_tried_again(self, cell: Cell, record: Record) -> bool:
        """Whether the machine failed ``cell``, and has not done so too often, on whatever device."""
        failed = record.outcome.fault is Fault.INFRA and not self._stop.is_set()
        return failed and self._tries[cell.id] <= cell.policy.infra_retries

    def _hand_on(self, gpu: Gpu, retried: Event) -> bool:
        """Leave the cell of ``gpu``'s lane to the others, and tell so; false when none of them is left to take it."""
        pending, cell = self._pending, retried.cell
        with pending.changed:
            fitting = devices_matching(cell.gpu, self._survey.facts.gpus)
            if all(other.uuid in pending.closed for other in fitting):
                return False
            self._events.put(retried)
            del pending.running[gpu.uuid]
            pending.cells.insert(0, cell)
            pending.changed.notify_all()
        return True

    def _end(self, cell: Cell, gpu: Gpu, record: Record) -> None:
        with self._pending.changed:
            self.counts[record.outcome.status] += 1
        self._put_down(gpu)
        self._events.put(Event(happening=Happening.CELL_ENDED, cell=cell, lane=gpu.uuid, record=record))
        if self._orders.fail_fast and record.outcome.status is not Status.PASSED:
            self.stop()

    def _put_down(self, gpu: Gpu) -> None:
        """The cell of this lane does not come back."""
        with self._pending.changed:
            self._pending.running.pop(gpu.uuid, None)
            self._pending.changed.notify_all()

    def _attempt(self, cell: Cell, gpu: Gpu, bench: Bench) -> Ran:
        """One attempt, recorded."""
        build = self._builds.get(_build_key(cell, self._survey))
        try:
            made = build.result() if build is not None else None
        except BuildCancelledError:
            raise CellCancelledError from None
        assignment = Assignment(
            cell=cell,
            gpu=gpu,
            image=self._survey.images.get(cell.toolchain.name),
            build=made,
            attempt=self._store.next_attempt(cell.id),
        )
        self._tries[cell.id] += 1
        ran = run_cell(assignment, bench)
        self._store.save(ran.record, ran.trace)
        if ran.quarantine:
            self._quarantine(cell, gpu, ran.quarantine)
        return ran

    def _quarantine(self, cell: Cell, gpu: Gpu, why: str) -> None:
        with self._pending.changed:
            self.quarantined[gpu.uuid] = why
            self._pending.closed.add(gpu.uuid)
        self._events.put(Event(happening=Happening.GPU_QUARANTINED, cell=cell, lane=gpu.uuid, text=why))

    def _build_again_if_lost(self, cell: Cell, bench: Bench) -> None:
        """Build anew what the machine failed to build: the next attempt would only find the same failure."""
        key = _build_key(cell, self._survey)
        before = self._builds.get(key)
        if before is None:
            return
        outcome = before.result().outcome
        if outcome is not None and outcome.fault is Fault.INFRA:
            again: Future[Build] = Future()
            try:
                again.set_result(self._build(cell, bench))
            except BuildCancelledError:
                raise CellCancelledError from None
            self._builds[key] = again

    def _is_built(self, cell: Cell) -> bool:
        build = self._builds.get(_build_key(cell, self._survey))
        return build is None or build.done()

    def _submit_builds(self, pool: ThreadPoolExecutor, bench: Bench) -> None:
        """Start building what the cells need, each content once, in the order the lanes will want it."""
        for cell in self._pending.cells:
            key = _build_key(cell, self._survey)
            if cell.candidate.language in NEEDS_BUILD and key not in self._builds:
                future = pool.submit(self._build, cell, bench)
                future.add_done_callback(self._wake)
                self._builds[key] = future

    def _build(self, cell: Cell, bench: Bench) -> Build:
        """Compile a cell's candidate; what the machine fails at becomes an outcome too.

        :raises BuildCancelledError: when the run was called off.
        """
        if self._stop.is_set():
            raise BuildCancelledError
        gpu = devices_matching(cell.gpu, self._survey.facts.gpus)[0]
        labels = Labels(run_id=bench.run_id, cell_id=cell.id, session=0, gpu_uuid="", owner=bench.owner)
        place = Place(cell=cell, gpu=gpu, image=self._survey.images.get(cell.toolchain.name), labels=labels)
        self._events.put(Event(happening=Happening.BUILD_STARTED, cell=cell))
        try:
            build = run_build(
                bench.engine,
                lambda code, channel: builder_spec(place, code, channel),
                cell.candidate.path,
                keep_in=bench.scratch,
                timeout_s=cell.policy.build_timeout_s,
                max_bytes=cell.policy.tmpfs_mib << 20,
                cancelled=bench.cancelled,
            )
        except (InfrastructureError, OSError) as error:
            build = Build(outcome=machine_failed(error, Stage.BUILD))
        text = f"{build.seconds:.1f} s" + (f": {build.outcome.evidence.message}" if build.outcome else "")
        self._events.put(Event(happening=Happening.BUILD_ENDED, cell=cell, text=text))
        return build

    def _wake(self, _future: Future[Build]) -> None:
        with self._pending.changed:
            self._pending.changed.notify_all()


def _build_key(cell: Cell, survey: Survey) -> str:
    """What determines an artefact: source, image, and the architecture it is compiled for."""
    image = survey.images.get(cell.toolchain.name)
    gpus = devices_matching(cell.gpu, survey.facts.gpus)
    architecture = arch_list(gpus[0]) if gpus else ""
    return "/".join((cell.candidate.digest, image.id if image is not None else "local", architecture))


def _join(lanes: Sequence[threading.Thread]) -> None:
    for lane in lanes:
        if lane.ident is not None:
            lane.join()
