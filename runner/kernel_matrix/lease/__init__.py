"""Exclusive use of one device, always given back.

:func:`hold` is the entry point. It uses the modules of this package in this order:

===================  =============================================================================================
``locks``            one lock per device, which the kernel releases however its holder ends
``repair``           resets what a dead process left set on the device
``exclusivity``      refuses modes that rule out exclusive use, and waits until other processes have left
``clock_lock``       locks clocks, resets them and reads them back (``journal``, ``clock_targets``, ``restore``)
``watch``            samples the device all the time; ``gpu_processes`` tells own processes from foreign ones
``exclusive_mode``   lets the driver refuse other processes during a session
``release_check``    checks at the end that all own processes and their memory are gone
===================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_matrix.errors import InfrastructureError
from kernel_matrix.lease.clock_lock import ClocksSet, ResetState, clocks_held
from kernel_matrix.lease.exclusive_mode import ExclusiveMode, refusing_others
from kernel_matrix.lease.exclusivity import await_alone, doubts
from kernel_matrix.lease.gpu_processes import OwnProcesses
from kernel_matrix.lease.locks import LOCK_DIR_VARIABLE, LeaseWait, WaitCancelledError, lock_file, lock_folder, locked
from kernel_matrix.lease.release_check import ReleaseCheck, await_aftermath
from kernel_matrix.lease.repair import repair
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.lease.watch import DeviceSnapshot, DeviceWatch, longest_gap_s
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform

__all__ = [
    "LOCK_DIR_VARIABLE",
    "ClocksSet",
    "DeviceSnapshot",
    "Lease",
    "LeaseTerms",
    "ReleaseCheck",
    "ResetState",
    "WaitCancelledError",
    "hold",
    "lock_folder",
]

LONGEST_GAP_S = 1.0
"""Somebody who came and went between two looks farther apart than this could have been of weight."""
_STILL_HELD = ReleaseCheck(reason="the device is still held")


@dataclass(slots=True, kw_only=True)
class Lease:
    """A device while it is held, and afterwards what was seen on it. Made by :func:`hold`."""

    gpu: Gpu
    waited_s: float
    """Seconds from asking until the device was ours alone."""
    before: Mapping[str, Any]
    """The device's snapshot when the lease began, before its clocks were touched."""
    after: Mapping[str, Any] = field(default_factory=dict)
    """The device's snapshot when its clocks were given back; empty until then, and when it no longer answers."""
    clocks: ClocksSet = field(init=False)
    aftermath: ReleaseCheck = _STILL_HELD
    tenants: OwnProcesses
    """Tell it of each process of this cell as soon as it is started: ``tenants.admit(pid)``."""
    warnings: tuple[str, ...] = ()
    """What had to be repaired first, and what could not be done or read, in words."""
    _watch: DeviceWatch
    _terms: LeaseTerms
    _folder: Path
    _doubts: tuple[str, ...]

    @property
    def looks(self) -> Sequence[DeviceSnapshot]:
        """All looks so far, oldest first: the one that found nobody, those during, those after. None at a CPU."""
        return self._watch.looks

    @property
    def lost(self) -> str:
        """Why the device counts as lost, in words; empty: it is not."""
        return self._watch.lost

    @property
    def foreign_pids(self) -> tuple[int, ...]:
        """Every foreign process seen on the device, at any look, ascending."""
        return tuple(sorted({pid for look in self.looks for pid in look.foreign}))

    @property
    def exclusive(self) -> str:
        """``proven``, ``unproven`` or ``not_applicable``, by all looks so far."""
        if self._watch.blind:
            return "unproven" if get_platform(self.gpu.platform).IS_ACCELERATOR else "not_applicable"
        return "unproven" if any(self._objections()) else "proven"

    @property
    def reason(self) -> str:
        """What :attr:`exclusive` rests on, in words."""
        if self._watch.blind and get_platform(self.gpu.platform).IS_ACCELERATOR:
            return "the platform does not say which processes are on the device"
        if self._watch.blind:
            return "a CPU is shared with everything that runs on this machine; only other runners are kept off"
        gap_s = longest_gap_s(self.looks)
        return "; ".join(self._objections()) or (
            f"no foreign process in {len(self.looks)} looks, at most {gap_s:.3f} s apart"
        )

    @contextmanager
    def session(self, *, processes: int) -> Iterator[None]:
        """Around one judge and its contestants. In hard mode the driver refuses everybody else once all are at work.

        :param processes: how many of them will be on the device.
        """
        if self._watch.blind or not self._terms.hard_exclusive:
            yield
            return
        mode = None
        try:
            with (
                refusing_others(self.gpu, self._terms, self._folder) as mode,
                self._watch.telling(self._closer(mode, processes)),
            ):
                yield
        finally:
            if mode is not None and mode.trouble:
                self.warnings = (*self.warnings, f"hard mode: {mode.trouble}")

    def _closer(self, mode: ExclusiveMode, processes: int) -> Callable[[DeviceSnapshot], None]:
        """Engages ``mode`` at the first look that shows a whole session; what an earlier one left does not count."""
        earlier = {pid for look in self.looks for pid in look.own}

        def close(look: DeviceSnapshot) -> None:
            if len(set(look.own) - earlier) >= processes:
                mode.engage()

        return close

    def _objections(self) -> Iterator[str]:
        """What keeps the device from being proven ours alone, in words."""
        if self.foreign_pids:
            yield f"foreign processes were seen: {self.tenants.named(self.foreign_pids)}"
        yield from self._doubts
        if self.lost:
            yield f"the GPU was lost: {self.lost}"
        elif self.looks[-1].trouble:
            yield f"the last look failed: {self.looks[-1].trouble}"
        if (gap_s := longest_gap_s(self.looks)) > LONGEST_GAP_S:
            yield f"for {gap_s:.1f} s nobody looked"

    def _note_after(self) -> None:
        if self.lost:
            self.warnings = (*self.warnings, "no snapshot after the cell: the GPU was lost")
            return
        try:
            self.after = get_platform(self.gpu.platform).snapshot(self.gpu)
        except InfrastructureError as error:
            self.warnings = (*self.warnings, f"no snapshot after the cell: {error.what}")


@contextmanager
def hold(
    gpu: Gpu,
    terms: LeaseTerms,
    *,
    reap: Callable[[], Sequence[str]] = tuple,
    lock_dir: Path | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Lease]:
    """Hold ``gpu`` until the context is left, whatever happens inside.

    A foreign process or a driver that no longer answers is an error before the context is entered; inside, the lease
    notes it and goes on: what ran has still to be told.

    :param reap: takes away what dead runners left on this host, under the lock; one line for each thing.
    :param lock_dir: folder of the lock files and journals, on a local disk; null: :func:`lock_folder`.
    :param cancelled: asked while waiting; true calls the wait off.
    :raises GpuBusyError: when the device is not free within ``terms.wait_s``, naming who is on it.
    :raises WaitCancelledError: when ``cancelled`` said so.
    :raises GpuRefusedError: when nobody can be proven alone on the device, and ``terms`` want that.
    :raises GpuSettingError: when a dead owner's settings cannot be undone, or ``terms`` require a lock that fails.
    :raises InfrastructureError: when the lock file or the device cannot be used.
    """
    folder = lock_dir or lock_folder()
    wait = LeaseWait(f"{gpu.uuid} ({gpu.name})", limit_s=terms.wait_s, cancelled=cancelled)
    with (
        locked(lock_file(folder, gpu.uuid), wait),
        get_platform(gpu.platform).opened(),
        closing(OwnProcesses(mps_allowed=terms.allow_mps)) as tenants,
    ):
        found = (*repair(gpu, folder), *reap())
        watch = DeviceWatch(gpu, tenants)
        doubtful = _become_alone(gpu, terms, watch, wait)
        lease = Lease(
            gpu=gpu,
            waited_s=wait.elapsed_s,
            before=get_platform(gpu.platform).snapshot(gpu),
            tenants=tenants,
            warnings=found,
            _watch=watch,
            _terms=terms,
            _folder=folder,
            _doubts=doubtful,
        )
        with _clocks_and_watch(lease, terms, folder, watch):
            yield lease


def _become_alone(gpu: Gpu, terms: LeaseTerms, watch: DeviceWatch, wait: LeaseWait) -> tuple[str, ...]:
    """Wait until nobody else is on the device; why that is no proof, in words."""
    if watch.blind:
        return ()
    modes = get_platform(gpu.platform).modes(gpu)
    return (*doubts(gpu, modes, terms, tells_apart=watch.tells_apart), *await_alone(watch, terms, wait))


@contextmanager
def _clocks_and_watch(lease: Lease, terms: LeaseTerms, folder: Path, watch: DeviceWatch) -> Iterator[None]:
    """Each step at the end is done whatever became of the one before it: the clocks are given back in any case."""
    try:
        with clocks_held(lease.gpu, terms, folder) as lease.clocks, watch.running():
            try:
                yield
            finally:
                lease.aftermath = await_aftermath(watch)
    finally:
        lease._note_after()  # noqa: SLF001  # a lease is ended by who began it, never by its user
