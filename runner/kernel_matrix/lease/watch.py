"""Watch of a held device: telemetry and processes, sampled twenty times a second."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from kernel_matrix.errors import GpuLostError, InfrastructureError
from kernel_matrix.lease.gpu_processes import Ownership, OwnProcesses, sees_driver_pids
from kernel_matrix.platforms import Gpu, TelemetrySample
from kernel_matrix.platforms.registry import get_platform

PERIOD_S = 0.05
"""Seconds between snapshots; every process that stays longer on the device is seen."""
_HUNG_S = 10.0
"""A driver that has not answered for so long will not: nothing can interrupt a call into it."""


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """One snapshot of a device: the driver's sample, and the owners of the listed processes."""

    sample: TelemetrySample
    """Holds only the time if the driver did not answer."""
    own: tuple[int, ...] = ()
    """Listed processes of this cell, ascending."""
    foreign: tuple[int, ...] = ()
    """Listed processes of others, ascending."""
    trouble: str = ""
    """Reason why the driver did not answer; empty if it did."""


class DeviceWatch:
    """Watch of one device. Use it only while the driver's library is open, and run it once.

    Args:
        gpu: The device.
        tenants: The cell's own processes.
        period_s: Seconds from the start of one snapshot to the start of the next.
    """

    def __init__(self, gpu: Gpu, tenants: OwnProcesses, *, period_s: float = PERIOD_S) -> None:
        self._gpu = gpu
        self._platform = get_platform(gpu.platform)
        self._sampler = self._platform.sampler(gpu)
        self._tenants = tenants
        self._period_s = period_s
        self._wake = threading.Event()
        self._over = False
        self._looked = threading.Condition()
        self._asked_s: float | None = None
        self._lost = ""
        self._listening = threading.Lock()
        self._listeners: list[Callable[[DeviceSnapshot], None]] = []
        self.snapshots: list[DeviceSnapshot] = []
        """All snapshots, oldest first. Grows while the watch runs."""
        self.cpu_s = 0.0
        """Processor time that the snapshots of :meth:`running` have taken, seconds."""
        self.can_attribute = self._sampler is not None and sees_driver_pids()
        """``True`` if processes can be attributed: not for a CPU, nor in a PID namespace of our own."""

    @property
    def blind(self) -> bool:
        """``True`` if the device has no telemetry (a CPU): snapshots are empty and none is kept."""
        return self._sampler is None

    @property
    def lost(self) -> str:
        """Reason why the device counts as lost; empty if it does not. A lost device is not sampled any more."""
        asked_s = self._asked_s
        if not self._lost and asked_s is not None and time.monotonic() - asked_s > _HUNG_S:
            self._lost = f"the driver has not answered a question about {self._gpu.uuid} for {_HUNG_S:g} s"
        return self._lost

    def begin(self) -> DeviceSnapshot:
        """Take a first snapshot and discard all earlier ones.

        Raises:
            GpuLostError: The device no longer answers.
            InfrastructureError: The driver gives no answer to the question.
        """
        snapshot = self._sample()
        self.snapshots[:] = () if self.blind else (snapshot,)
        return snapshot

    @contextmanager
    def running(self) -> Iterator[None]:
        """Take snapshots in a thread that ends with the context.

        A driver that does not answer is noted in the snapshot and is not an error.
        """
        if self.blind:
            yield
            return
        thread = threading.Thread(target=self._follow, name=f"watch-{self._gpu.uuid}", daemon=True)
        try:
            thread.start()
            yield
        finally:
            self._over = True
            self._wake.set()
            if thread.is_alive() and not self.lost:  # if it is lost, the thread has ended or hangs
                thread.join(_HUNG_S)

    def take_now(self) -> DeviceSnapshot:
        """Make the running watch take a snapshot at once, and wait until it has or the device counts as lost."""
        since_ns = time.monotonic_ns()
        with self._looked:
            self._wake.set()
            while not self.lost and self.snapshots[-1].sample.at_ns < since_ns:
                self._looked.wait(self._period_s)
        return self.snapshots[-1]

    @contextmanager
    def notifying(self, listener: Callable[[DeviceSnapshot], None]) -> Iterator[None]:
        """Call ``listener`` with every snapshot, in the watching thread, until the context is left."""
        with self._listening:
            self._listeners.append(listener)
        try:
            yield
        finally:
            with self._listening:
                self._listeners.remove(listener)

    def _follow(self) -> None:
        began = time.monotonic()
        due_s = 0.0
        while not self.lost:
            self._wake.wait(began + due_s - time.monotonic())
            self._wake.clear()
            if self._over:
                return
            self._take()
            self.cpu_s = time.thread_time()
            # Skip overdue snapshots: a burst of them would show nothing new and disturb kernels.
            due_s = self._period_s * (math.floor((time.monotonic() - began) / self._period_s) + 1)

    def _take(self) -> None:
        self._asked_s = time.monotonic()
        try:
            snapshot = self._sample()
        except InfrastructureError as error:
            snapshot = DeviceSnapshot(TelemetrySample(at_ns=time.monotonic_ns()), trouble=error.what)
            if isinstance(error, GpuLostError):
                self._lost = error.what
        with self._looked:
            self.snapshots.append(snapshot)
            self._looked.notify_all()
        self._notify(snapshot)
        self._asked_s = None

    def _sample(self) -> DeviceSnapshot:
        if self._sampler is None:
            return DeviceSnapshot(TelemetrySample(at_ns=time.monotonic_ns()))
        sample = self._sampler()
        return DeviceSnapshot(sample, *self._attribute(sample.pids))

    def _attribute(self, pids: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Return the own and the foreign ones among ``pids``; both empty if they cannot be attributed."""
        if not self.can_attribute:
            return (), ()
        owners = {pid: self._tenants.owner_of(pid) for pid in pids}
        if not {Ownership.FOREIGN, Ownership.GONE}.isdisjoint(owners.values()):
            owners = self._confirm_foreign(owners)
        return _select(owners, Ownership.OURS), _select(owners, Ownership.FOREIGN)

    def _confirm_foreign(self, first: dict[int, Ownership]) -> dict[int, Ownership]:
        """Check a second time, because a process that is ending or has just lost its parent may look foreign."""
        listed = set(self._platform.processes(self._gpu))
        settled = {
            pid: Ownership.OURS if self._tenants.owner_of(pid) is Ownership.OURS else first[pid] for pid in first
        }
        return {
            pid: Ownership.FOREIGN if owner is Ownership.GONE and pid in listed else owner
            for pid, owner in settled.items()
        }

    def _notify(self, snapshot: DeviceSnapshot) -> None:
        with self._listening:
            for listener in self._listeners:
                listener(snapshot)


def longest_gap_s(snapshots: Iterable[DeviceSnapshot]) -> float:
    """Return the longest time between two consecutive answered snapshots, seconds; 0 for fewer than two."""
    times = [snapshot.sample.at_ns for snapshot in snapshots if not snapshot.trouble]
    return max((later - earlier for earlier, later in pairwise(times)), default=0) / 1e9


def _select(owners: dict[int, Ownership], which: Ownership) -> tuple[int, ...]:
    return tuple(sorted(pid for pid, one in owners.items() if one is which))
