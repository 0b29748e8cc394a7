"""The builds of a run: many at once, off every lease, each content once."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.buildcache import BuildCache, default_cache
from kernel_matrix.attempt.building import BuildCancelledError, BuildResult
from kernel_matrix.attempt.candidate_build import build_for, is_built
from kernel_matrix.attempt.contestants import NEEDS_BUILD
from kernel_matrix.attempt.outcome import machine_failed
from kernel_matrix.attempt.role_specs import CellPlacement, arch_list
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.images import ResolvedImage
from kernel_matrix.model.enums import Fault, Language, Stage
from kernel_matrix.plan import Cell, devices_matching
from kernel_matrix.platforms import Gpu
from kernel_matrix.sandboxes import ProcessLabels

CORES_PER_LANE = 3
"""Processes of a session that are timed beside the builds: judge, candidate, baseline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuildListener:
    """Whom a pool tells. All are called from its threads."""

    started: Callable[[Cell], None] = lambda _cell: None
    ended: Callable[[Cell, BuildResult], None] = lambda _cell, _build: None
    ready: Callable[[], None] = lambda: None
    """Some build is done, however it ended: who waits for one looks again."""


@dataclass
class BuildPool:
    """Builds what cells need before a device is leased for them. Made by :func:`build_pool`."""

    bench: RunContext
    images: Mapping[str, ResolvedImage]
    """Name of a toolchain → its image."""
    gpus: tuple[Gpu, ...]
    cache: BuildCache
    listener: BuildListener
    workers: int
    """Builds at once."""
    _executor: ThreadPoolExecutor
    _builds: dict[str, Future[BuildResult]] = field(default_factory=dict)
    """Key of a build → what comes, or came, of it. To be changed under ``_changing``."""
    _changing: threading.Lock = field(default_factory=threading.Lock)

    def submit(self, cells: Sequence[Cell]) -> None:
        """Start building what ``cells`` need, each content once, in this order."""
        for cell in cells:
            key, gpus = self._key(cell), devices_matching(cell.gpu, self.gpus)
            with self._changing:
                if gpus and is_built(cell, gpus[0]) and key not in self._builds:
                    self._builds[key] = self._start(cell)

    def is_ready(self, cell: Cell) -> bool:
        """Whether :meth:`result` answers at once."""
        build = self._builds.get(self._key(cell))
        return build is None or build.done()

    def result(self, cell: Cell) -> BuildResult | None:
        """What came of the cell's build, waited for; null where it needs none.

        :raises BuildCancelledError: when the run was called off.
        """
        build = self._builds.get(self._key(cell))
        return None if build is None else build.result()

    def retry_if_lost(self, cell: Cell) -> None:
        """Start anew what the machine failed to build: another attempt would only find the same failure."""
        key = self._key(cell)
        with self._changing:
            before = self._builds.get(key)
            if before is not None and before.done() and _is_lost(before.result()):
                self._builds[key] = self._start(cell)

    def _key(self, cell: Cell) -> str:
        """The same for cells that one build serves."""
        image = self.images.get(cell.toolchain.name)
        gpus = devices_matching(cell.gpu, self.gpus)
        where = (image.id if image is not None else "", arch_list(gpus[0]) if gpus else "")
        call = (cell.problem.digest, cell.dtype.value, *(workload.name for workload in cell.workloads))
        return "/".join((cell.candidate.digest, *where, *(call if cell.candidate.language is Language.TRITON else ())))

    def _start(self, cell: Cell) -> Future[BuildResult]:
        future = self._executor.submit(self._build, cell)
        future.add_done_callback(lambda _: self.listener.ready())
        return future

    def _build(self, cell: Cell) -> BuildResult:
        """Compile a cell's candidate; what the machine fails at becomes an outcome too.

        :raises BuildCancelledError: when the run was called off.
        """
        if self.bench.cancelled():
            raise BuildCancelledError
        self.listener.started(cell)
        build = self._compile(cell)
        self.listener.ended(cell, build)
        return build

    def _compile(self, cell: Cell) -> BuildResult:
        gpu = devices_matching(cell.gpu, self.gpus)[0]
        labels = ProcessLabels(
            run_id=self.bench.run_id, cell_id=cell.id, session=0, gpu_uuid="", owner=self.bench.owner
        )
        place = CellPlacement(cell=cell, gpu=gpu, image=self.images.get(cell.toolchain.name), labels=labels)
        try:
            build = build_for(place, self.bench, self.cache)
        except (InfrastructureError, OSError) as error:
            build = BuildResult(outcome=machine_failed(error, Stage.BUILD))
        return build if cell.candidate.language in NEEDS_BUILD else replace(build, outcome=None)


@contextmanager
def build_pool(
    bench: RunContext,
    images: Mapping[str, ResolvedImage],
    gpus: tuple[Gpu, ...],
    *,
    workers: int,
    cache: BuildCache | None = None,
    listener: BuildListener | None = None,
) -> Iterator[BuildPool]:
    """A pool for one run; on leaving, what has not begun never does, and what runs is waited for.

    :param workers: builds at once.
    :param cache: null: this user's.
    """
    with ThreadPoolExecutor(workers, thread_name_prefix="build") as executor:
        try:
            yield BuildPool(
                bench, images, gpus, cache or default_cache(), listener or BuildListener(), workers, executor
            )
        finally:
            executor.shutdown(wait=False, cancel_futures=True)


def builds_at_once(devices: Sequence[Gpu]) -> int:
    """One build per core that the sessions on ``devices`` leave free, but at least on half of the cores.

    A process that waits for a core stalls its session by milliseconds, and the times show it. None is kept for a CPU
    that is measured itself: it computes on all of them.
    """
    cores = len(os.sched_getaffinity(0))
    lanes = sum(device.vendor != "cpu" for device in devices)
    return max((cores + 1) // 2, cores - CORES_PER_LANE * lanes)


def _is_lost(build: BuildResult) -> bool:
    return build.outcome is not None and build.outcome.fault is Fault.INFRA
