"""Processes that stay on a device between two leases, and the lock that keeps other runners off meanwhile."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

from kernel_matrix.lease.gpu_processes import Ownership, OwnProcesses
from kernel_matrix.lease.locks import LeaseWait, locked


class KeptProcesses:
    """Processes of one lane that serve several cells; the lane's own thread uses it.

    While there are any, the device's lock is kept at the end of a lease, and the lane's next lease goes on with it.
    """

    def __init__(self) -> None:
        self._roots: tuple[int, ...] = ()
        self._lock = ExitStack()
        self._locked: Path | None = None
        self._leased = False

    @property
    def roots(self) -> Sequence[int]:
        """PIDs of the first process of each tree; empty if none stays."""
        return self._roots

    def set(self, roots: Iterable[int]) -> None:
        """Set the processes that stay; none releases the lock, at the end of the present lease if there is one."""
        self._roots = tuple(roots)
        if not self._roots and not self._leased:
            self._release()

    @contextmanager
    def locked(self, path: Path, wait: LeaseWait) -> Iterator[None]:
        """Hold the lock on ``path``, as :func:`.locks.locked` does, and afterwards as long as processes stay."""
        if self._locked != path:
            self._release()
            self._lock.enter_context(locked(path, wait))
            self._locked = path
        self._leased = True
        try:
            yield
        finally:
            self._leased = False
            if not self._roots:
                self._release()

    def among(self, pids: Iterable[int]) -> frozenset[int]:
        """Return those of ``pids`` that belong to kept processes."""
        if not self._roots:
            return frozenset()
        with closing(OwnProcesses()) as kept:
            for root in self._roots:
                kept.admit(root)
            return frozenset(pid for pid in pids if kept.owner_of(pid) is Ownership.OURS)

    def _release(self) -> None:
        self._locked = None
        self._lock.close()
