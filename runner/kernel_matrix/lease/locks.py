"""One lock file per device in a folder of this node, and one time limit for everything a lease waits for.

The lock is an ``flock``. The kernel releases it when its holder dies, however it dies. The files are never unlinked,
because two waiters could then lock two files of the same name.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import datetime, timezone
from pathlib import Path

from kernel_matrix.errors import GpuBusyError, InfrastructureError
from kernel_matrix.lease.gpu_processes import named
from kernel_matrix.untrusted_json import parse_object

LOCK_DIR_VARIABLE = "KERNEL_MATRIX_LOCK_DIR"

_SHARED_LOCKS = Path("/run/lock/kernel-matrix")
_FIRST_PAUSE_S = 0.001  # a device is often free again at once
_LONGEST_PAUSE_S = 0.1  # a long wait must not take processor time, nor overlook a free device for long


class WaitCancelledError(GpuBusyError):
    """The wait for a device was cancelled before the device was free."""


class LeaseWait:
    """One time limit for all waits of one lease.

    Args:
        device: Description of the device for messages: ``<uuid> (<name>)``.
        limit_s: Longest wait, seconds from now; 0 does not wait.
        cancelled: Function called at every pause; ``True`` cancels the wait.
    """

    def __init__(self, device: str, *, limit_s: float, cancelled: Callable[[], bool] = lambda: False) -> None:
        self._device = device
        self._limit_s = limit_s
        self._cancelled = cancelled
        self._began = time.monotonic()
        self._pause_s = _FIRST_PAUSE_S

    @property
    def elapsed_s(self) -> float:
        """Seconds waited so far."""
        return time.monotonic() - self._began

    @property
    def left_s(self) -> float:
        """Seconds left to wait; 0 when the limit is reached."""
        return max(0.0, self._limit_s - self.elapsed_s)

    def pause(self, why: str) -> None:
        """Sleep for a short, growing time, because of ``why``.

        Raises:
            GpuBusyError: The limit is reached.
            WaitCancelledError: The wait was cancelled.
        """
        if self._cancelled():
            raise WaitCancelledError(f"the wait for {self._device} was called off; {why}")
        if self.left_s <= 0:
            raise GpuBusyError(
                f"{self._device} was not free within {self._limit_s:g} s: {why}",
                next_step="Run again when it is free, or wait longer (policy.gpu_wait_s); a foreign process can be "
                "tolerated with policy.exclusive = false.",
            )
        time.sleep(min(self._pause_s, self.left_s))
        self._pause_s = min(2 * self._pause_s, _LONGEST_PAUSE_S)


def lock_folder() -> Path:
    """Return the folder of this node's lock files, created if absent.

    ``$KERNEL_MATRIX_LOCK_DIR``, else ``/run/lock/kernel-matrix``, which all users share, else a private folder of this
    user: ``$XDG_RUNTIME_DIR/kernel-matrix`` or ``/tmp/kernel-matrix-<uid>``.

    Raises:
        InfrastructureError: None of them can be written.
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


def lock_file(folder: Path, uuid: str) -> Path:
    """Return the path of the lock file of the device ``uuid`` in ``folder``."""
    return folder / (re.sub(r"[^A-Za-z0-9-]", "_", uuid) + ".lock")


@contextmanager
def locked(path: Path, wait: LeaseWait) -> Iterator[None]:
    """Hold the lock on ``path``. Two descriptors exclude each other, in two processes and in two threads alike.

    Raises:
        GpuBusyError: Another process holds it for longer than ``wait`` allows; the message names the holder.
        WaitCancelledError: ``wait`` was cancelled.
        InfrastructureError: The lock file cannot be used.
    """
    descriptor = _open_lock(path)
    try:
        while not _try_lock(descriptor):
            wait.pause(f"another runner holds {path}{_holder(descriptor)}")
        try:
            _write_holder(descriptor)
            yield
        finally:
            os.ftruncate(descriptor, 0)
            # Unlock explicitly: a forked child may hold a copy of the descriptor, and closing ours would keep the lock.
            fcntl.flock(descriptor, fcntl.LOCK_UN)
    finally:
        os.close(descriptor)


def _private_folder() -> Path:
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    if runtime and os.access(runtime, os.W_OK):
        return Path(runtime, "kernel-matrix")
    return Path(f"/tmp/kernel-matrix-{os.geteuid()}")  # noqa: S108  # used only when it is ours, see _usable


def _usable(folder: Path, *, shared: bool) -> bool:
    """Return whether lock files can be kept in ``folder``, which is created if absent."""
    with suppress(OSError):
        folder.mkdir(parents=True)
        folder.chmod(0o1777 if shared else 0o700)  # mkdir obeys the umask, which would lock other users out
    try:
        info = folder.stat() if shared else folder.lstat()
    except OSError:
        return False
    ours = shared or info.st_uid == os.geteuid()
    return stat.S_ISDIR(info.st_mode) and ours and os.access(folder, os.W_OK | os.X_OK)


def _open_lock(path: Path) -> int:
    """Open the lock file; if absent, create it so that all users may lock it.

    Raises:
        InfrastructureError: It cannot be opened, or is not a regular file with one link.
    """
    # In a folder that all users write, another user may have put a link or a pipe here: do not follow it or wait for
    # it.
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
    """Write the holder of the lock into its file; only messages use it, the lock itself is the kernel's."""
    since = datetime.now(timezone.utc).isoformat(timespec="seconds")
    os.ftruncate(descriptor, 0)
    os.pwrite(descriptor, json.dumps({"pid": os.getpid(), "since": since}).encode(), 0)


def _holder(descriptor: int) -> str:
    try:
        holder = parse_object(os.pread(descriptor, 4096, 0))
        return f": {named((int(holder['pid']),))}, since {holder['since']}"
    except (ValueError, KeyError, TypeError):
        return ""  # the file is empty between locking and writing
