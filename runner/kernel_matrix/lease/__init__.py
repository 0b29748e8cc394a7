"""Exclusive use of one device, which is always released and restored.

:func:`hold` is the entry point. It uses the modules of this package in this order:

===================  =============================================================================================
``locks``            one lock per device, which the kernel releases however its holder ends
``repair``           resets what a dead process left set on the device
``exclusivity``      refuses modes that rule out exclusive use, and waits until other processes have left
``clock_lock``       locks clocks, resets them and reads them back (``journal``, ``clock_targets``, ``restore``)
``watch``            samples the device all the time; ``gpu_processes`` tells own processes from foreign ones, and
                     ``group_snapshots`` makes one series of those of several devices
``exclusive_mode``   lets the driver refuse other processes during a session
``release_check``    checks at the end that all own processes and their memory are gone
``kept_processes``   processes that stay until the next lease, and the lock, which is kept for them
===================  =============================================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from kernel_matrix.errors import InfrastructureError
from kernel_matrix.lease.clock_lock import ClocksSet, ResetState, clocks_held
from kernel_matrix.lease.exclusive_mode import ExclusiveMode, refusing_others
from kernel_matrix.lease.exclusivity import await_exclusive, check_exclusivity
from kernel_matrix.lease.gpu_processes import OwnProcesses
from kernel_matrix.lease.group_snapshots import joined_snapshots
from kernel_matrix.lease.kept_processes import KeptProcesses
from kernel_matrix.lease.locks import LOCK_DIR_VARIABLE, LeaseWait, WaitCancelledError, lock_file, lock_folder
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
    "KeptProcesses",
    "Lease",
    "LeaseTerms",
    "ReleaseCheck",
    "ResetState",
    "WaitCancelledError",
    "hold",
    "lock_folder",
]

LONGEST_GAP_S = 1.0
"""Longest gap between two snapshots; a process in a longer one could have disturbed a measurement unseen."""
_STILL_HELD = ReleaseCheck(reason="the device is still held")


@dataclass(slots=True, kw_only=True)
class Lease:
    """A held device or group, and afterwards the observations made on it. Created by :func:`hold`.

    Of a group, this is the lease of the first device, and :attr:`peers` are those of the others.
    """

    gpu: Gpu
    waited_s: float
    """Seconds from the request until the device was free of others."""
    before: Mapping[str, Any]
    """Snapshot at the start of the lease, before the clocks were changed."""
    after: Mapping[str, Any] = field(default_factory=dict)
    """Snapshot after the clocks were reset; empty until then, and if the device no longer answers."""
    clocks: ClocksSet = field(init=False)
    aftermath: ReleaseCheck = _STILL_HELD
    tenants: OwnProcesses
    """Own processes."""
    peers: tuple[Lease, ...] = ()
    """Leases of the other devices of the group; empty for a single device."""
    warnings: tuple[str, ...] = ()
    """Repairs made first, and everything that could not be done or read."""
    _watch: DeviceWatch
    _terms: LeaseTerms
    _folder: Path
    _doubts: tuple[str, ...]

    @property
    def members(self) -> tuple[Lease, ...]:
        """Leases of all devices of the group; this one alone for a single device."""
        return (self, *self.peers)

    def admit(self, pid: int) -> None:
        """Treat a process as the cell's own from now on; call it as soon as the process is started."""
        for one in self.members:
            one.tenants.admit(pid)

    @property
    def snapshots(self) -> Sequence[DeviceSnapshot]:
        """All snapshots so far, oldest first, from before the cell's processes to after them. Empty for a CPU."""
        return joined_snapshots([one._watch.snapshots for one in self.members])  # noqa: SLF001  # of its own class

    @property
    def lost(self) -> str:
        """Reason why a device counts as lost; empty if none does."""
        return next(filter(None, (one._watch.lost for one in self.members)), "")  # noqa: SLF001  # of its own class

    @property
    def sees_processes(self) -> bool:
        """Processes on the device can be told apart, so that one of others would be seen; a CPU has none."""
        return self._watch.can_attribute or self._watch.blind

    @property
    def foreign_pids(self) -> tuple[int, ...]:
        """All foreign processes seen on the device, ascending."""
        return tuple(sorted({pid for snapshot in self.snapshots for pid in snapshot.foreign}))

    @property
    def exclusive(self) -> str:
        """``proven``, ``unproven`` or ``not_applicable``, judged by all snapshots so far."""
        if self._watch.blind:
            return "unproven" if get_platform(self.gpu.platform).IS_ACCELERATOR else "not_applicable"
        return "unproven" if any(self._reasons_unproven()) else "proven"

    @property
    def reason(self) -> str:
        """Evidence for :attr:`exclusive`."""
        if self._watch.blind and get_platform(self.gpu.platform).IS_ACCELERATOR:
            return "the platform does not say which processes are on the device"
        if self._watch.blind:
            return "a CPU is shared with everything that runs on this machine; only other runners are kept off"
        gap_s = longest_gap_s(self.snapshots)
        return "; ".join(self._reasons_unproven()) or (
            f"no foreign process in {len(self.snapshots)} snapshots, at most {gap_s:.3f} s apart"
        )

    @contextmanager
    def session(self, *, processes: int) -> Iterator[None]:
        """Enclose one judge and its contestants; in hard mode the driver refuses other processes once all have started.

        Args:
            processes: Number of processes that will use the device.
        """
        with ExitStack() as undo:
            for one in self.members:
                undo.enter_context(one._hard_session(processes))  # noqa: SLF001  # of its own class
            yield

    @contextmanager
    def _hard_session(self, processes: int) -> Iterator[None]:
        if self._watch.blind or not self._terms.hard_exclusive:
            yield
            return
        mode = None
        try:
            with (
                refusing_others(self.gpu, self._terms, self._folder) as mode,
                self._watch.notifying(self._make_engager(mode, processes)),
            ):
                yield
        finally:
            if mode is not None and mode.trouble:
                self.warnings = (*self.warnings, f"hard mode: {mode.trouble}")

    def _make_engager(self, mode: ExclusiveMode, processes: int) -> Callable[[DeviceSnapshot], None]:
        """Return a listener that engages ``mode`` once a snapshot shows ``processes`` new processes of our own."""
        earlier = {pid for snapshot in self.snapshots for pid in snapshot.own}

        def engage(snapshot: DeviceSnapshot) -> None:
            if len(set(snapshot.own) - earlier) >= processes:
                mode.engage()

        return engage

    def _reasons_unproven(self) -> Iterator[str]:
        """Yield the reasons why exclusive use of the device is not proven."""
        if self.foreign_pids:
            yield f"foreign processes were seen: {self.tenants.named(self.foreign_pids)}"
        yield from (doubt for one in self.members for doubt in one._doubts)  # noqa: SLF001  # of its own class
        if self.lost:
            yield f"the GPU was lost: {self.lost}"
        elif trouble := self.snapshots[-1].trouble:
            yield f"the last snapshot failed: {trouble}"
        if (gap_s := longest_gap_s(self.snapshots)) > LONGEST_GAP_S:
            yield f"no snapshot was taken for {gap_s:.1f} s"

    def _note_after(self) -> None:
        if self.lost:
            self.warnings = (*self.warnings, "no snapshot after the cell: the GPU was lost")
            return
        try:
            self.after = get_platform(self.gpu.platform).snapshot(self.gpu.members[0])
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
    kept: KeptProcesses | None = None,
) -> Iterator[Lease]:
    """Hold ``gpu``, or all devices of a group, until the context is left.

    Devices of a group are taken in the order of their UUIDs, so that two programs that want overlapping groups never
    wait for each other; each may be waited for as long as ``terms`` say.

    A foreign process, or a driver that does not answer, is an error before the context is entered. Inside the context
    the lease only notes it, so that results can still be reported.

    Args:
        gpu: The device, or the group.
        terms: Conditions of the lease.
        reap: Function called under the lock that removes leftovers of dead runners and returns a line for each.
        lock_dir: Folder of the lock files and journals, on a local disk; by default :func:`lock_folder`.
        cancelled: Function polled while waiting; ``True`` cancels the wait.
        kept: Processes that stay on a single device from lease to lease; they count as the cell's own.

    Raises:
        GpuBusyError: A device is not free within ``terms.wait_s``; the message names its users.
        WaitCancelledError: ``cancelled`` returned ``True``.
        GpuRefusedError: Exclusive use cannot be proven, and ``terms`` require it.
        GpuSettingError: A dead owner's settings cannot be undone, or ``terms`` require a lock that fails.
        InfrastructureError: A lock file or a device cannot be used.
    """
    if gpu.devices:
        kept = None  # it keeps the lock of one device
    with ExitStack() as undo:
        leases = [
            undo.enter_context(_hold_one(one, terms, reap=reap, lock_dir=lock_dir, cancelled=cancelled, kept=kept))
            for one in gpu.members
        ]
        leases[0].gpu, leases[0].peers = gpu, tuple(leases[1:])
        yield leases[0]


@contextmanager
def _hold_one(
    gpu: Gpu,
    terms: LeaseTerms,
    *,
    reap: Callable[[], Sequence[str]],
    lock_dir: Path | None,
    cancelled: Callable[[], bool],
    kept: KeptProcesses | None,
) -> Iterator[Lease]:
    """Hold one device; see :func:`hold`."""
    folder, kept = lock_dir or lock_folder(), KeptProcesses() if kept is None else kept
    wait = LeaseWait(f"{gpu.uuid} ({gpu.name})", limit_s=terms.wait_s, cancelled=cancelled)
    with (
        kept.locked(lock_file(folder, gpu.uuid), wait),
        get_platform(gpu.platform).opened(),
        closing(OwnProcesses(mps_allowed=terms.allow_mps)) as tenants,
    ):
        for root in kept.roots:
            tenants.admit(root)
        found = (*repair(gpu, folder), *reap())
        watch = DeviceWatch(gpu, tenants)
        doubtful = _await_exclusive_use(gpu, terms, watch, wait, has_own=bool(kept.roots))
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
        with _clocks_and_watch(lease, terms, folder, watch, kept):
            yield lease


def _await_exclusive_use(
    gpu: Gpu, terms: LeaseTerms, watch: DeviceWatch, wait: LeaseWait, *, has_own: bool
) -> tuple[str, ...]:
    """Wait until the device has no foreign process; return the reasons why exclusive use is still not proven."""
    if watch.blind:
        return ()
    modes = get_platform(gpu.platform).modes(gpu)
    return (
        *check_exclusivity(gpu, modes, terms, can_attribute=watch.can_attribute),
        *await_exclusive(watch, terms, wait, has_own=has_own),
    )


@contextmanager
def _clocks_and_watch(
    lease: Lease, terms: LeaseTerms, folder: Path, watch: DeviceWatch, kept: KeptProcesses
) -> Iterator[None]:
    """Lock the clocks and watch the device. Each clean-up step runs even if an earlier one failed."""
    try:
        with clocks_held(lease.gpu, terms, folder) as lease.clocks, watch.running():
            try:
                yield
            finally:
                lease.aftermath = await_aftermath(watch, kept)
    finally:
        lease._note_after()  # noqa: SLF001  # only the code that began a lease ends it, never its user
