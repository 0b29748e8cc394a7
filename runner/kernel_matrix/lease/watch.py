"""Looks at a device twenty times a second while it is held: telemetry, and who is on it."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise

from kernel_matrix.errors import GpuLostError, InfrastructureError
from kernel_matrix.lease.gpu_processes import Ownership, OwnProcesses, pids_mean_something
from kernel_matrix.platforms import Gpu, TelemetrySample
from kernel_matrix.platforms.registry import get_platform

PERIOD_S = 0.05
_HUNG_S = 10.0
"""A driver that has not answered for so long will not: nothing can end a call into it."""


@dataclass(frozen=True, slots=True)
class DeviceSnapshot:
    """One look at a device: what the driver said, and whose the processes are."""

    sample: TelemetrySample
    """Only its time, where the driver did not answer."""
    own: tuple[int, ...] = ()
    """Listed processes of this cell, ascending."""
    foreign: tuple[int, ...] = ()
    """Listed processes of others, ascending."""
    trouble: str = ""
    """Why the driver did not answer, in words; empty: it did."""


class DeviceWatch:
    """Looks at one device. Use it only while the driver's library is open, and let it run once.

    :param period_s: seconds from the beginning of one look to the beginning of the next.
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
        self.looks: list[DeviceSnapshot] = []
        """All looks, oldest first. Grows while the watch runs."""
        self.cpu_s = 0.0
        """Processor time that the looks of :meth:`running` have taken, seconds."""
        self.tells_apart = self._sampler is not None and pids_mean_something()
        """Whether it can be said whose a process is: not for a CPU, nor in a PID namespace of our own."""

    @property
    def blind(self) -> bool:
        """There is nothing to see on this device (a CPU): looks are empty, and none is kept."""
        return self._sampler is None

    @property
    def lost(self) -> str:
        """Why the device counts as lost, in words; empty: it does not. Nobody looks any more then."""
        asked_s = self._asked_s
        if not self._lost and asked_s is not None and time.monotonic() - asked_s > _HUNG_S:
            self._lost = f"the driver has not answered a question about {self._gpu.uuid} for {_HUNG_S:g} s"
        return self._lost

    def begin(self) -> DeviceSnapshot:
        """Look, and forget the looks before.

        :raises GpuLostError: when the device no longer answers.
        :raises InfrastructureError: when the driver cannot say.
        """
        look = self._see()
        self.looks[:] = () if self.blind else (look,)
        return look

    @contextmanager
    def running(self) -> Iterator[None]:
        """Look all the time, in a thread that ends with the context.

        A driver that does not answer is not an error then, but noted in the look.
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
            if thread.is_alive() and not self.lost:  # where it is lost, the thread has ended, or hangs in the driver
                thread.join(_HUNG_S)

    def look_now(self) -> DeviceSnapshot:
        """Have the running watch look at once, and wait for that look, or until the device counts as lost."""
        since_ns = time.monotonic_ns()
        with self._looked:
            self._wake.set()
            while not self.lost and self.looks[-1].sample.at_ns < since_ns:
                self._looked.wait(self._period_s)
        return self.looks[-1]

    @contextmanager
    def telling(self, listener: Callable[[DeviceSnapshot], None]) -> Iterator[None]:
        """Tell ``listener`` of every look, in the thread that looks; once the context is left it is not called."""
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
            self._look()
            self.cpu_s = time.thread_time()
            # Looks that are overdue are left out: a burst of them would tell nothing, and cost the time of a kernel.
            due_s = self._period_s * (math.floor((time.monotonic() - began) / self._period_s) + 1)

    def _look(self) -> None:
        self._asked_s = time.monotonic()
        try:
            look = self._see()
        except InfrastructureError as error:
            look = DeviceSnapshot(TelemetrySample(at_ns=time.monotonic_ns()), trouble=error.what)
            if isinstance(error, GpuLostError):
                self._lost = error.what
        with self._looked:
            self.looks.append(look)
            self._looked.notify_all()
        self._tell(look)
        self._asked_s = None

    def _see(self) -> DeviceSnapshot:
        if self._sampler is None:
            return DeviceSnapshot(TelemetrySample(at_ns=time.monotonic_ns()))
        sample = self._sampler()
        return DeviceSnapshot(sample, *self._tell_apart(sample.pids))

    def _tell_apart(self, pids: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Own and foreign ones among ``pids``; neither where that cannot be told."""
        if not self.tells_apart:
            return (), ()
        standing = {pid: self._tenants.standing(pid) for pid in pids}
        if not {Ownership.FOREIGN, Ownership.GONE}.isdisjoint(standing.values()):
            standing = self._second_opinion(standing)
        return _those(standing, Ownership.OURS), _those(standing, Ownership.FOREIGN)

    def _second_opinion(self, first: dict[int, Ownership]) -> dict[int, Ownership]:
        """Asked once more: a process that was just ending, or that just lost its parent, only seemed foreign."""
        listed = set(self._platform.processes(self._gpu))
        settled = {
            pid: Ownership.OURS if self._tenants.standing(pid) is Ownership.OURS else first[pid] for pid in first
        }
        return {
            pid: Ownership.FOREIGN if standing is Ownership.GONE and pid in listed else standing
            for pid, standing in settled.items()
        }

    def _tell(self, look: DeviceSnapshot) -> None:
        with self._listening:
            for listener in self._listeners:
                listener(look)


def longest_gap_s(looks: Iterable[DeviceSnapshot]) -> float:
    """Seconds between the two consecutive answered looks that are farthest apart; 0 for fewer than two."""
    times = [look.sample.at_ns for look in looks if not look.trouble]
    return max((later - earlier for earlier, later in pairwise(times)), default=0) / 1e9


def _those(standing: dict[int, Ownership], which: Ownership) -> tuple[int, ...]:
    return tuple(sorted(pid for pid, one in standing.items() if one is which))
