"""Concurrent builds of a run, without a lease, each distinct content once."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.buildcache import BuildCache, default_cache
from kernel_matrix.attempt.building import BuildCancelledError, BuildResult
from kernel_matrix.attempt.candidate_build import build_for, is_built
from kernel_matrix.attempt.contestants import NEEDS_BUILD
from kernel_matrix.attempt.outcome import machine_failed
from kernel_matrix.attempt.role_specs import CellPlacement
from kernel_matrix.attempt.turns import Turns
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.images import ResolvedImage
from kernel_matrix.model.enums import Fault, Language, Stage, Tier
from kernel_matrix.plan import Cell, devices_matching
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.sandboxes import ProcessLabels

CORES_PER_LANE = 3  # a timed session keeps three processes busy beside the builds: judge, candidate, baseline


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildListener:
    """Callbacks of a pool, called from its threads."""

    started: Callable[[Cell], None] = lambda _cell: None
    ended: Callable[[Cell, BuildResult], None] = lambda _cell, _build: None
    ready: Callable[[], None] = lambda: None
    """Called when any build is done, whatever its result, so that waiting lanes look again."""
    is_void: Callable[[Cell, float], bool] = lambda _cell, _since: False
    """Asked when a build failed because of this machine: return whether to build again.

    The number is the monotonic time at which the build began.
    """


@dataclass
class BuildPool:
    """Pool of builders that compile candidates before a device is leased for them. Created by :func:`build_pool`."""

    context: RunContext
    images: Mapping[str, ResolvedImage]
    """Toolchain name → image."""
    gpus: tuple[Gpu, ...]
    cache: BuildCache
    listener: BuildListener
    workers: int
    """Number of concurrent builds."""
    reserved: int
    """Number of cores that builds leave to sessions."""
    builds_first: bool
    """``True``: cells of tier ``publish`` wait until nothing is left to build, else only for what is being built."""
    _executor: ThreadPoolExecutor
    _builds: dict[str, Future[BuildResult]] = field(default_factory=dict)
    """Build key → build. Change it only while holding ``_changing``."""
    _unfinished: set[Future[BuildResult] | str] = field(default_factory=set)
    """What ``builds_first`` waits for: builds of the pool, and ids of cells that are only compiled."""
    _changing: threading.Lock = field(default_factory=threading.Lock)
    _turns: Turns = field(default_factory=Turns)

    def submit(self, cells: Sequence[Cell]) -> None:
        """Start the builds that ``cells`` need, each distinct content once, in this order."""
        for cell in cells:
            key, gpus = self._key(cell), devices_matching(cell.gpu, self.gpus)
            with self._changing:
                if gpus and is_built(cell, gpus[0]) and key not in self._builds:
                    self._builds[key] = self._start(cell)

    @property
    def beside_sessions(self) -> bool:
        """``True``: builds give way to sessions on accelerators.

        Sessions on a CPU use all cores, so builds that gave way to them would not end in time.
        """
        return self.reserved > 0

    def expect(self, cell: Cell) -> None:
        """Count a cell that is only compiled, outside the pool, as unfinished until :meth:`compiled` is called."""
        self._unfinished.add(cell.id)

    def compiled(self, cell: Cell) -> None:
        """Say that an expected cell has ended."""
        self._end(cell.id)

    def is_ready(self, cell: Cell) -> bool:
        """Return True if the cell may begin: :meth:`result` returns at once, and no build that it waits for is left."""
        if self.builds_first and cell.protocol.tier is Tier.PUBLISH and self._unfinished:
            return False
        build = self._builds.get(self._key(cell))
        return build is None or build.done()

    def turn_to_build(self) -> AbstractContextManager[None]:
        """Wait for published cells that have begun, and let none begin.

        What compiles outside the pool calls it, too.
        """
        return self._turns.turn("build")

    def turn_to_time(self, cell: Cell) -> AbstractContextManager[None]:
        """Wait for builds that have begun, and let none begin, if the cell is of tier ``publish``.

        A build beside a timed cell disturbs it, whatever its priority and cores.
        """
        return self._turns.turn("time") if cell.protocol.tier is Tier.PUBLISH else nullcontext()

    def result(self, cell: Cell) -> BuildResult | None:
        """Wait for the cell's build and return its result; None if the cell needs no build.

        Raises:
            BuildCancelledError: If the run was cancelled.
        """
        build = self._builds.get(self._key(cell))
        return None if build is None else build.result()

    def retry_if_lost(self, cell: Cell) -> None:
        """Start a build again if it failed because of this machine: another attempt would only see the same failure."""
        key = self._key(cell)
        with self._changing:
            before = self._builds.get(key)
            if before is not None and before.done() and _is_lost(before.result()):
                self._builds[key] = self._start(cell)

    def _key(self, cell: Cell) -> str:
        """Return a key that is equal for cells that can share a build."""
        image = self.images.get(cell.toolchain.name)
        gpus = devices_matching(cell.gpu, self.gpus)
        target = get_platform(cell.gpu.platform).compile_target(gpus[0].compute_capability) if gpus else ""
        where = (image.id if image is not None else "", target)
        call = (cell.problem.digest, cell.dtype.value, *(workload.name for workload in cell.workloads))
        return "/".join((cell.candidate.digest, *where, *(call if cell.candidate.language is Language.TRITON else ())))

    def _start(self, cell: Cell) -> Future[BuildResult]:
        future = self._executor.submit(self._build, cell)
        self._unfinished.add(future)
        future.add_done_callback(self._end)
        return future

    def _end(self, build: Future[BuildResult] | str) -> None:
        self._unfinished.discard(build)
        self.listener.ready()

    def _build(self, cell: Cell) -> BuildResult:
        """Compile a cell's candidate; a failure of this machine becomes an outcome.

        Raises:
            BuildCancelledError: If the run was cancelled.
        """
        with self.turn_to_build():
            if self.context.cancelled():
                raise BuildCancelledError
            self.listener.started(cell)
            began = time.monotonic()
            build = self._compile(cell)
            while _is_lost(build) and self.listener.is_void(cell, began):
                began = time.monotonic()
                build = self._compile(cell)
            self.listener.ended(cell, build)
            return build

    def _compile(self, cell: Cell) -> BuildResult:
        gpu = devices_matching(cell.gpu, self.gpus)[0]
        labels = ProcessLabels(
            run_id=self.context.run_id, cell_id=cell.id, session=0, gpu_uuid="", owner=self.context.owner
        )
        place = CellPlacement(
            cell=cell,
            gpu=gpu,
            image=self.images.get(cell.toolchain.name),
            labels=labels,
            beside_sessions=self.beside_sessions,
        )
        try:
            build = build_for(place, self.context, self.cache)
        except (InfrastructureError, OSError) as error:
            build = BuildResult(outcome=machine_failed(error, Stage.BUILD))
        return build if cell.candidate.language in NEEDS_BUILD else replace(build, outcome=None)


@contextmanager
def build_pool(
    context: RunContext,
    images: Mapping[str, ResolvedImage],
    gpus: tuple[Gpu, ...],
    *,
    workers: int,
    reserved: int = 0,
    builds_first: bool = True,
    cache: BuildCache | None = None,
    listener: BuildListener | None = None,
) -> Iterator[BuildPool]:
    """Make a pool for one run. On exit, builds not started are dropped, and running ones are waited for.

    Builders use none of the first ``reserved`` cores, and give way to what is timed there. No build runs beside a cell
    of tier ``publish``: such cells wait for all builds, or take turns with them if ``builds_first`` is False. Without a
    ``cache``, this user's is used.
    """
    with ThreadPoolExecutor(workers, "build", leave_cores, (reserved,)) as executor:
        try:
            yield BuildPool(
                context,
                images,
                gpus,
                cache or default_cache(),
                listener or BuildListener(),
                workers,
                reserved,
                builds_first,
                executor,
            )
        finally:
            executor.shutdown(wait=False, cancel_futures=True)


def reserved_cores(devices: Sequence[Gpu]) -> int:
    """Return how many cores builds leave to sessions on ``devices``: at most half of them.

    A timed process that waits for a core delays its session by milliseconds, which its times show. A CPU device
    reserves no cores, since its sessions use all of them.
    """
    lanes = sum(get_platform(device.platform).IS_ACCELERATOR for device in devices)
    return min(CORES_PER_LANE * lanes, len(os.sched_getaffinity(0)) // 2)


def builds_at_once(devices: Sequence[Gpu]) -> int:
    """Return one build per core that is not reserved for sessions on ``devices``."""
    return len(os.sched_getaffinity(0)) - reserved_cores(devices)


def leave_cores(reserved: int) -> None:
    """Keep this thread and what it starts off the first ``reserved`` cores, which a low priority alone does not do."""
    if reserved:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[reserved:])


def _is_lost(build: BuildResult) -> bool:
    return build.outcome is not None and build.outcome.fault is Fault.INFRA
