"""Attribution of the processes that the driver lists on a device: own or foreign.

The driver lists PIDs of the first PID namespace. A process is ours if it shares a PID namespace with an admitted
process, else if it is in the same container's control group, else if it descends from one. A process that cannot be
read is foreign.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from enum import Enum
from pathlib import Path
from typing import NamedTuple

from kernel_matrix.platforms.process_names import command
from kernel_matrix.platforms.registry import platforms

_PROC = Path("/proc")
_HOST_PID_NAMESPACE_INODE = 4026531836
"""The kernel's fixed inode number of the first PID namespace, in which the NVIDIA driver counts."""

_NAMESPACES = ("ns/pid", "ns/pid_for_children")
"""A container's first process is inside its namespace; a launcher stays outside the namespace of its children."""
_CONTAINER_ID = re.compile(r"[0-9a-f]{64}")


class Ownership(Enum):
    """Owner of a listed process."""

    OURS = "ours"
    FOREIGN = "foreign"
    TOLERATED = "tolerated"
    """An MPS server, where policy allows it: neither ours nor foreign."""
    GONE = "gone"
    """It ended before its owner was known: a second list shows if it is really on the device."""


class _Stat(NamedTuple):
    """Parent and start time of a process. PIDs are reused; PID and start time together are unique until reboot."""

    parent: int
    start: str
    """Clock ticks from boot to its start."""


def sees_driver_pids() -> bool:
    """Return whether ``/proc`` here shows the same PIDs as the driver."""
    try:
        return (_PROC / "self/ns/pid").stat().st_ino == _HOST_PID_NAMESPACE_INODE
    except OSError:
        return False  # if /proc does not show this process, it belongs to another namespace


def named(pids: Iterable[int]) -> str:
    """Return for example ``4242 (python3), 77 (name not readable)``."""
    return ", ".join(f"{pid} ({command(pid)})" for pid in pids)


class OwnProcesses:
    """Own processes on one device. Must be closed.

    Args:
        mps_allowed: Tolerate an MPS server.
    """

    def __init__(self, *, mps_allowed: bool = False) -> None:
        self._mps_allowed = mps_allowed
        self._outside = {inode for name in _NAMESPACES if (inode := _inode(os.getpid(), name)) is not None}
        self._outer_containers = set(_container_ids(os.getpid()))
        self._pinned: dict[int, int] = {}
        self._containers: set[str] = set()
        self._roots: set[tuple[int, str]] = set()
        self._known = {os.getpid(): _start(os.getpid())}
        self._names: dict[int, str] = {}

    def close(self) -> None:
        """Close the held namespaces; from now on no process is recognised by its PID namespace."""
        while self._pinned:
            os.close(self._pinned.popitem()[1])

    def admit(self, root_pid: int) -> None:
        """Treat this process, its PID namespace, its container and its descendants as ours from now on.

        Call it as soon as the process is started: until then its use of the device counts as foreign. A process that
        has already ended admits nothing.
        """
        root = _stat(root_pid)
        if root is None:
            return
        self._roots.add((root_pid, root.start))
        self._known[root_pid] = root.start
        self._containers |= set(_container_ids(root_pid)) - self._outer_containers
        for name in _NAMESPACES:
            self._pin(root_pid, name)

    def owner_of(self, pid: int) -> Ownership:
        """Return the owner of ``pid``. A process of ours that has just ended stays ours until its PID is reused."""
        stat = _stat(pid)
        if stat is None:
            return Ownership.OURS if pid in self._known else Ownership.GONE
        if self._known.get(pid) == stat.start:
            return Ownership.OURS
        if self._belongs(pid):
            self._known[pid] = stat.start
            return Ownership.OURS
        self._known.pop(pid, None)
        if _start(pid) != stat.start:  # it ended during the check and may have been unreadable
            return Ownership.GONE
        name = self._names.get(pid) or self._names.setdefault(pid, command(pid))
        servers = {platform.SHARING_SERVER for platform in platforms().values()}
        return Ownership.TOLERATED if self._mps_allowed and name in servers else Ownership.FOREIGN

    def named(self, pids: Iterable[int]) -> str:
        """Return what :func:`named` does, with the names that foreign processes had when first seen."""
        return ", ".join(f"{pid} ({self._names.get(pid) or command(pid)})" for pid in pids)

    def _belongs(self, pid: int) -> bool:
        return _inode(pid, "ns/pid") in self._pinned or _in_any(pid, self._containers) or self._descends(pid)

    def _descends(self, pid: int) -> bool:
        return any(ancestor in self._roots for ancestor in _ancestry(pid))

    def _pin(self, root_pid: int, name: str) -> None:
        """Remember a namespace and keep it open, because the kernel reuses the number of a closed one."""
        try:
            descriptor = os.open(_PROC / str(root_pid) / name, os.O_RDONLY)
        except OSError:
            return
        inode = os.fstat(descriptor).st_ino
        if inode in self._outside or inode in self._pinned:
            os.close(descriptor)
        else:
            self._pinned[inode] = descriptor


def _stat(pid: int) -> _Stat | None:
    try:
        text = (_PROC / str(pid) / "stat").read_bytes()
    except OSError:
        return None
    # The name in parentheses may contain anything, so the fields are counted from the end; the parent is field 4.
    fields = text.rpartition(b")")[2].decode().split()
    return _Stat(parent=int(fields[1]), start=fields[19])


def _start(pid: int) -> str:
    stat = _stat(pid)
    return "" if stat is None else stat.start


def _ancestry(pid: int) -> Iterator[tuple[int, str]]:
    """Yield ``pid`` and its ancestors with their start times, up to the first that has ended or has no parent."""
    while (stat := _stat(pid)) is not None:
        yield pid, stat.start
        pid = stat.parent


def _inode(pid: int, name: str) -> int | None:
    try:
        return (_PROC / str(pid) / name).stat().st_ino
    except OSError:
        return None


def _container_ids(pid: int) -> Iterator[str]:
    """Yield ids of the innermost containers of ``pid``: ``…/docker/<id>`` (cgroupfs), ``…/docker-<id>.scope``."""
    for line in _cgroup_lines(pid):
        if ids := _CONTAINER_ID.findall(line):
            yield ids[-1]


def _in_any(pid: int, containers: set[str]) -> bool:
    """Return whether ``pid`` is in one of ``containers`` or in a container inside them."""
    return any(not containers.isdisjoint(_CONTAINER_ID.findall(line)) for line in _cgroup_lines(pid))


def _cgroup_lines(pid: int) -> list[str]:
    try:
        return (_PROC / str(pid) / "cgroup").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
