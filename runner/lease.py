"""One device, held alone: a lock against other runners, and the driver's process lists against everybody else.

The lock is an ``flock`` on one file per device in a folder of this node. The kernel frees it when its holder dies,
however it dies. The files are never unlinked: two waiters could then lock two files of the same name.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from runner.errors import GpuBusyError, InfrastructureError
from runner.gpus import Gpu, vendor

LOCK_DIR_VARIABLE = "KERNEL_MATRIX_LOCK_DIR"

_SHARED_LOCKS = Path("/run/lock/kernel-matrix")
_FIRST_PAUSE_S = 0.001
_LONGEST_PAUSE_S = 0.1

_OWN_PID_NAMESPACE = Path("/proc/self/ns/pid")
_HOST_PID_NAMESPACE_INODE = 4026531836
"""The kernel's fixed number of the first PID namespace, the one the NVIDIA driver counts in."""


class WaitCancelledError(GpuBusyError):
    """The wait for a device was called off before the device was free."""


@dataclass(slots=True, kw_only=True)
class Lease:
    """A device while it is held, and afterwards what was seen on it. Made by :func:`hold`."""

    gpu: Gpu
    waited_s: float
    """Seconds from asking until the device was ours alone."""
    before: Mapping[str, Any]
    """The device's snapshot when the lease began."""
    after: Mapping[str, Any] = field(default_factory=dict)
    """The device's snapshot when it ended; empty until then, and when the device no longer answers."""
    foreign_pids: tuple[int, ...] = ()
    """Every foreign process seen on the device, at any look, ascending."""
    warnings: tuple[str, ...] = ()
    """What could not be read, in words."""
    _watch: _Watch
    _looks: int = 0
    _doubts: tuple[str, ...] = ()

    @property
    def exclusive(self) -> str:
        """``proven``, ``unproven`` or ``not_applicable``, by all looks so far."""
        if self.gpu.vendor == "cpu":
            return "not_applicable"
        return "unproven" if self._doubts or self.foreign_pids else "proven"

    @property
    def reason(self) -> str:
        """What :attr:`exclusive` rests on, in words."""
        if self.gpu.vendor == "cpu":
            return "a CPU is shared with everything that runs on this machine; only other runners are kept off"
        seen = (f"foreign processes were seen: {_named(self.foreign_pids)}",) if self.foreign_pids else ()
        return "; ".join((*seen, *self._doubts)) or f"no foreign process in {self._looks} looks"

    def check(self) -> tuple[int, ...]:
        """Look again: the foreign processes on the device now, also remembered in :attr:`foreign_pids`.

        A driver that no longer answers is not an error here but a doubt in the record: what ran has still to be told.
        """
        try:
            found = self._watch.foreign()
        except InfrastructureError as error:
            self._doubts = tuple(dict.fromkeys((*self._doubts, error.what)))
            return ()
        self._looks += 1
        self.foreign_pids = tuple(sorted({*self.foreign_pids, *found}))
        return found

    def clock_state(self, policy: str) -> tuple[str, str]:
        """The clocks' state under ``policy`` (``observe``, ``lock``, ``require``) and the reason in words."""
        if self.gpu.vendor == "cpu":
            return "not_applicable", "a CPU's clock is not the runner's to lock"
        if policy == "observe":
            return "unlocked", "policy observe: nothing was changed"
        return "unlocked", f"policy {policy}: locking clocks is not part of this version, the driver chose them"

    def _end(self) -> None:
        self.check()
        try:
            self.after = vendor(self.gpu.vendor).snapshot(self.gpu)
        except InfrastructureError as error:
            self.warnings = (*self.warnings, f"no snapshot after the cell: {error.what}")


@contextmanager
def hold(
    gpu: Gpu,
    *,
    wait_s: float,
    exclusive: bool,
    own_pids: Callable[[], Collection[int]],
    lock_dir: Path | None = None,
    cancelled: Callable[[], bool] = lambda: False,
) -> Iterator[Lease]:
    """Hold ``gpu`` until the context is left, whatever happens inside.

    :param wait_s: seconds to wait at most, for other runners and for foreign processes together.
    :param exclusive: true: begin only when no foreign process is on the device; false: only look and remember.
    :param own_pids: host PIDs that belong to this cell now; asked at every look.
    :param lock_dir: folder of the lock files, on a local disk; null: :func:`lock_folder`.
    :param cancelled: asked while waiting; true calls the wait off.
    :raises GpuBusyError: when the device is not free within ``wait_s``, naming who is on it.
    :raises WaitCancelledError: when ``cancelled`` said so.
    :raises InfrastructureError: when the lock file or the device cannot be used.
    """
    wait = _Wait(gpu, limit_s=wait_s, cancelled=cancelled)
    watch = _Watch(gpu, own_pids)
    with _locked(_lock_file(gpu, lock_dir or lock_folder()), wait), vendor(gpu.vendor).opened():
        lease = _begin(gpu, wait=wait, watch=watch, exclusive=exclusive)
        try:
            yield lease
        finally:
            lease._end()  # noqa: SLF001  # a lease is ended by who began it, never by its user


def lock_folder() -> Path:
    """The folder of this node's lock files, made where it is absent.

    ``$KERNEL_MATRIX_LOCK_DIR``, else ``/run/lock/kernel-matrix``, which all users share, else a folder of this user
    alone: ``$XDG_RUNTIME_DIR/kernel-matrix`` or ``/tmp/kernel-matrix-<uid>``.

    :raises InfrastructureError: when none can be written.
    """
    if named := os.environ.get(LOCK_DIR_VARIABLE):
        folders = {Path(named): True}
    else:
        folders = {_SHARED_LOCKS: True, _private_folder(): False}
    for folder, shared in folders.items():
        if _usable(folder, shared=shared):
            return folder
    raise InfrastructureError(
        f"no folder for lock files can be written (tried {', '.join(map(str, folders))})",
        next_step=f"Name a writable folder on a local disk in {LOCK_DIR_VARIABLE}.",
    )


def _private_folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime, "kernel-matrix")
    return Path(f"/tmp/kernel-matrix-{os.geteuid()}")  # noqa: S108  # used only when it is ours, see _usable


def _usable(folder: Path, *, shared: bool) -> bool:
    """Whether lock files can be kept in ``folder``; makes it where it is absent."""
    with suppress(OSError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777 if shared else 0o700)  # mkdir obeys the umask, which would shut other users out
    try:
        info = folder.stat() if shared else folder.lstat()
    except OSError:
        return False
    ours = shared or info.st_uid == os.geteuid()
    return stat.S_ISDIR(info.st_mode) and ours and os.access(folder, os.W_OK | os.X_OK)


def _lock_file(gpu: Gpu, folder: Path) -> Path:
    return folder / (re.sub(r"[^A-Za-z0-9-]", "_", gpu.uuid) + ".lock")


@contextmanager
def _locked(path: Path, wait: _Wait) -> Iterator[None]:
    """Hold the lock on ``path``. Two descriptors exclude each other, in two processes and in two threads alike."""
    descriptor = _open_lock(path)
    try:
        while not _try_lock(descriptor):
            wait.pause(f"another runner holds {path}{_holder(descriptor)}")
        try:
            _write_holder(descriptor)
            yield
        finally:
            os.ftruncate(descriptor, 0)
            # A forked child may still hold a copy of the descriptor: closing ours would then free nothing.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _open_lock(path: Path) -> int:
    """Open the lock file, made where absent for all users to lock.

    :raises InfrastructureError: when it cannot be opened, or is a link or anything but a file of its own.
    """
    # In a folder that all users write, another may have put a link or a pipe here: neither is followed or waited for.
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = _create(path, flags)
        if descriptor is None:
            descriptor = os.open(path, flags)
    except OSError as error:
        raise _unusable(path, str(error.strerror)) from error
    info = os.fstat(descriptor)
    if not stat.S_ISREG(info.st_mode) or info.st_nlink != 1:
        os.close(descriptor)
        raise _unusable(path, "not a plain file of its own")
    return descriptor


def _create(path: Path, flags: int) -> int | None:
    # O_EXCL, and a second open without O_CREAT: the kernel refuses O_CREAT on another user's file in a sticky folder.
    try:
        descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
    except FileExistsError:
        return None
    os.fchmod(descriptor, 0o666)
    return descriptor


def _unusable(path: Path, why: str) -> InfrastructureError:
    return InfrastructureError(
        f"lock file {path} cannot be used: {why}",
        next_step=f"Repair or remove it while no runner is running, or name another folder in {LOCK_DIR_VARIABLE}.",
    )


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _write_holder(descriptor: int) -> None:
    """Leave word of who holds the lock: for messages only, the lock itself is the kernel's."""
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)


def _holder(descriptor: int) -> str:
    try:
        told = json.loads(os.pread(descriptor, 4096, 0))
        return f": {_named((int(told['pid']),))}, since {told['since']}"
    except (ValueError, KeyError, TypeError):
        return ""  # between locking and writing nothing is there to read


def _begin(gpu: Gpu, *, wait: _Wait, watch: _Watch, exclusive: bool) -> Lease:
    doubts: tuple[str, ...] = ()
    if gpu.vendor != "cpu" and not watch.sees_host_pids:
        doubts = ("this runner sits in a PID namespace, where the driver's PIDs mean nothing",)
    elif exclusive:
        _await_alone(watch, wait)
    else:
        doubts = ("policy exclusive = false: others were not kept off",)
    before = vendor(gpu.vendor).snapshot(gpu)
    lease = Lease(gpu=gpu, waited_s=wait.elapsed_s, before=before, _watch=watch, _doubts=doubts)
    lease.check()
    return lease


def _await_alone(watch: _Watch, wait: _Wait) -> None:
    while foreign := watch.foreign():
        wait.pause(f"it is in use by {_named(foreign)}")


class _Watch:
    """Tells foreign processes on a device from our own."""

    def __init__(self, gpu: Gpu, own_pids: Callable[[], Collection[int]]) -> None:
        self._gpu = gpu
        self._own_pids = own_pids
        self._ours: set[int] = set()
        self.sees_host_pids = _OWN_PID_NAMESPACE.stat().st_ino == _HOST_PID_NAMESPACE_INODE

    def foreign(self) -> tuple[int, ...]:
        """PIDs on the device that are not ours, ascending; none where PIDs cannot be compared."""
        if not self.sees_host_pids:
            return ()
        # Asked on both sides of the list and never forgotten: a process of ours that starts meanwhile, or has just
        # ended and is still listed, is not foreign.
        self._ours.update(self._own_pids())
        listed = vendor(self._gpu.vendor).processes(self._gpu)
        self._ours.update(self._own_pids())
        return tuple(sorted(set(listed) - self._ours))


class _Wait:
    """One time limit over everything that a lease waits for."""

    def __init__(self, gpu: Gpu, *, limit_s: float, cancelled: Callable[[], bool]) -> None:
        self._gpu = gpu
        self._limit_s = limit_s
        self._cancelled = cancelled
        self._began = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self._began

    def pause(self, why: str) -> None:
        """Sleep a little, longer each time, because of ``why``.

        :raises GpuBusyError: when the limit is reached.
        :raises WaitCancelledError: when the wait was called off.
        """
        device = f"{self._gpu.uuid} ({self._gpu.name})"
        if self._cancelled():
            raise WaitCancelledError(f"the wait for {device} was called off; {why}")
        left_s = self._limit_s - self.elapsed_s
        if left_s <= 0:
            raise GpuBusyError(
                f"{device} was not free within {self._limit_s:g} s: {why}",
                next_step="Run again when it is free, or wait longer (policy.gpu_wait_s); a foreign process can be "
                "tolerated with policy.exclusive = false.",
            )
        time.sleep(min(self._pause_s, left_s))
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def _named(pids: Collection[int]) -> str:
    """``4242 (python3), 77 (name not readable)``."""
    return ", ".join(f"{pid} ({_command(pid)})" for pid in pids)


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "name not readable"
