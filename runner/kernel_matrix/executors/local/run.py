"""One run over some cells, with its lanes, its build pool and its events."""

from __future__ import annotations

import queue
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import groupby
from pathlib import Path

from kernel_matrix.attempt import CellCancelledError, RunContext
from kernel_matrix.attempt.building import BuildCancelledError, BuildResult
from kernel_matrix.attempt.buildpool import BuildListener, BuildPool, build_pool, builds_at_once, reserved_cores
from kernel_matrix.attempt.scratch import scratch_folder
from kernel_matrix.attempt.source_findings import is_rejected
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.local.cell_queue import CellQueue
from kernel_matrix.executors.local.compile_lane import CellsToCompile, CompileLane
from kernel_matrix.executors.local.lane import DeviceLane
from kernel_matrix.executors.local.run_state import RunState, RunTally
from kernel_matrix.executors.local.sandbox_outage import SandboxOutage
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.model.enums import Status
from kernel_matrix.plan import Cell
from kernel_matrix.results.store import RecordStore


class Run:
    """One run over some cells. Use it as ``with run.running() as events: for event in events: …``.

    Args:
        cells: The cells, in the order to run them.
        survey: This host. If ``is_open``, each of its devices gets a lane.
        store: Where records are kept.
        policy: Rules of the run.
        is_open: More cells may come by :meth:`add` while it runs, until :meth:`end`.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        survey: HostSurvey,
        store: RecordStore,
        policy: RunPolicy,
        *,
        is_open: bool = False,
    ) -> None:
        self._cells = tuple(cells)
        self._survey = survey
        self._store = store
        self._policy = policy
        self._is_open = is_open
        on_devices = [cell for cell in cells if not cell.compile_only]
        self._pending = CellQueue(on_devices, survey.inventory.gpus, policy.measured_on, is_open=is_open)
        self._to_compile: CellsToCompile = queue.SimpleQueue()
        self._compile_lanes = 0
        self._builds: BuildPool | None = None
        """None unless it runs."""
        self._events: queue.SimpleQueue[RunEvent | BaseException | None] = queue.SimpleQueue()
        self._stop = threading.Event()
        self._tally = RunTally()
        self.planned = len(cells)

    @property
    def counts(self) -> Counter[Status]:
        """Status → cells that ended so."""
        return self._tally.counts

    @property
    def quarantined(self) -> Mapping[str, str]:
        """UUID → reason why nothing more runs on that GPU in this run."""
        return self._tally.quarantined

    @property
    def left(self) -> int:
        """Number of cells that have not ended."""
        return self.planned - sum(self.counts.values())

    def stop(self) -> None:
        """Cancel the run; lanes end as soon as they have removed their containers."""
        self._stop.set()
        self._pending.cancel()
        self._end_compile_lanes()

    def add(self, cells: Sequence[Cell]) -> None:
        """Run these cells, too; only while it runs, and before :meth:`end`."""
        self.planned += len(cells)
        self._build(cells)
        self._pending.add([cell for cell in cells if not cell.compile_only])

    def end(self) -> None:
        """Say that no more cells come; the run ends when all have ended."""
        self._pending.end()
        self._end_compile_lanes()

    @contextmanager
    def running(self) -> Iterator[Iterator[RunEvent]]:
        """Run in the background and yield the events. On leaving, stop everything and remove what was started.

        Raises:
            StoreError: A record could not be written; raised by the iterator.
        """
        with ExitStack() as undo:
            context = self._run_context(undo.enter_context(scratch_folder()))
            outage = SandboxOutage(
                sandbox=context.sandbox,
                limit_s=self._policy.sandbox_wait_s,
                tell=self._events.put,
                cancelled=context.cancelled,
            )
            self._builds = undo.enter_context(self._build_pool(context, outage))
            shared = self._shared(context, self._builds, outage)
            lanes: list[DeviceLane | CompileLane] = [DeviceLane(gpu, shared) for gpu in self._pending.devices()]
            lanes += self._make_compile_lanes(shared)
            threads = self._make_threads(lanes)
            undo.callback(_join, threads)
            undo.callback(self.stop)
            self._build(self._cells)
            if not self._is_open:
                self._end_compile_lanes()
            for thread in threads:
                thread.start()
            yield self._drain(len(threads))

    def _make_threads(self, lanes: Sequence[DeviceLane | CompileLane]) -> list[threading.Thread]:
        """Return a thread for each lane; those of groups begin when the lanes of single devices have ended."""
        threads: list[threading.Thread] = []
        for _, alike in groupby(sorted(lanes, key=_devices_of), key=_devices_of):
            earlier = tuple(threads)
            threads += [threading.Thread(target=self._follow, args=(lane, earlier), name=lane.name) for lane in alike]
        return threads

    def _build(self, cells: Sequence[Cell]) -> None:
        """Start what the builds of ``cells`` need, and hand out those that are only compiled."""
        assert self._builds is not None  # noqa: S101  # for the type checker: it is running
        self._builds.submit([cell for cell in cells if not (cell.compile_only or is_rejected(cell))])
        for cell in cells:
            if cell.compile_only:
                self._builds.expect(cell)
                self._to_compile.put(cell)

    def _make_compile_lanes(self, shared: RunState) -> list[CompileLane]:
        """Return the lanes of the cells that are only compiled, one per concurrent build."""
        most = shared.builds.workers
        self._compile_lanes = most if self._is_open else min(most, sum(cell.compile_only for cell in self._cells))
        return [CompileLane(number, self._to_compile, shared) for number in range(self._compile_lanes)]

    def _end_compile_lanes(self) -> None:
        for _ in range(self._compile_lanes):
            self._to_compile.put(None)

    def _run_context(self, scratch: Path) -> RunContext:
        return RunContext(
            run_id=self._policy.run_id,
            sandbox=self._survey.sandbox,
            sandbox_status=self._survey.status,
            owner=owner_token(),
            scratch=scratch,
            cancelled=self._stop.is_set,
        )

    def _shared(self, context: RunContext, builds: BuildPool, outage: SandboxOutage) -> RunState:
        return RunState(
            survey=self._survey,
            store=self._store,
            policy=self._policy,
            context=context,
            builds=builds,
            pending=self._pending,
            tally=self._tally,
            outage=outage,
            tell=self._events.put,
            stop=self.stop,
        )

    def _follow(self, lane: DeviceLane | CompileLane, earlier: Sequence[threading.Thread]) -> None:
        """Run a lane to its end, once ``earlier`` threads have ended; a failure of the lane ends the run."""
        for thread in earlier:
            thread.join()
        try:
            lane.run()
        except CellCancelledError:
            pass
        except BaseException as error:  # noqa: BLE001  # passed to the main thread, which decides
            self._events.put(error)
        finally:
            self._events.put(None)

    def _drain(self, running: int) -> Iterator[RunEvent]:
        """Yield events until ``running`` lanes have ended."""
        while running:
            event = self._events.get()
            if event is None:
                running -= 1
            elif isinstance(event, BaseException):
                raise event
            else:
                yield event

    def _build_pool(self, context: RunContext, outage: SandboxOutage) -> AbstractContextManager[BuildPool]:
        listener = BuildListener(
            started=self._tell_build_started,
            ended=self._tell_build_ended,
            ready=self._pending.wake,
            is_void=lambda cell, since: _outlasted_by_build(outage, cell, since),
        )
        survey, devices = self._survey, self._pending.devices()
        return build_pool(
            context,
            survey.images,
            survey.inventory.gpus,
            workers=self._policy.build_workers or builds_at_once(devices),
            reserved=reserved_cores(devices),
            builds_first=not self._is_open,  # an open run may never be without builds
            listener=listener,
        )

    def _tell_build_started(self, cell: Cell) -> None:
        self._events.put(RunEvent(happening=EventKind.BUILD_STARTED, cell=cell))

    def _tell_build_ended(self, cell: Cell, build: BuildResult) -> None:
        text = f"{build.seconds:.1f} s" + (f": {build.outcome.evidence.message}" if build.outcome else "")
        self._events.put(RunEvent(happening=EventKind.BUILD_ENDED, cell=cell, text=text))


def _devices_of(lane: DeviceLane | CompileLane) -> int:
    return lane.devices if isinstance(lane, DeviceLane) else 1


def _outlasted_by_build(outage: SandboxOutage, cell: Cell, since: float) -> bool:
    try:
        return outage.wait_until_back(cell, since)
    except CellCancelledError:
        raise BuildCancelledError from None


def _join(threads: Sequence[threading.Thread]) -> None:
    """Wait for the lanes, which remove their containers and folders before their parent folder is removed."""
    started = [thread for thread in threads if thread.ident is not None]
    try:
        for thread in started:
            thread.join()
    except BaseException:  # a signal; its handler raises only once, see kernel_matrix.cli.stop_signals
        for thread in started:
            thread.join()
        raise
