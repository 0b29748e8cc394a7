"""Control groups that limit the memory of all processes of a role together, where this runner can make some."""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.hosts.process_token import orphaned_folders, owner_in_name
from kernel_matrix.sandboxes.control_groups import VERSION_1, VERSION_2, groups_of, read

_PREFIX = "kernel-matrix-role-"

_SETTINGS = {
    # "memsw", memory and swap together, exists only where the kernel counts swap.
    VERSION_1: {"memory.limit_in_bytes": "{limit}", "memory.memsw.limit_in_bytes": "{limit}"},
    VERSION_2: {"memory.max": "{limit}", "memory.swap.max": "0", "memory.oom.group": "1"},
}
"""Type of the file system → file → what is written into it; all but the first may be absent."""

EVENTS = {VERSION_1: "memory.oom_control", VERSION_2: "memory.events"}
"""Type of the file system → file with the number of processes killed for memory, ``oom_kill N``."""

_TRIED_BYTES = 1 << 40  # limit of a group that is made only to see whether it can be
_REMOVAL_S, _REMOVAL_PAUSE_S = 2.0, 0.01


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group of one role."""

    folder: Path
    events: str
    """Its file that counts the processes that were killed for memory."""
    joining_fd: int
    """Its list of processes, open: a process that writes 0 joins the group."""

    def oom_kills(self) -> int:
        """Return the number of processes of the group that the kernel has killed for memory."""
        return count_oom_kills(self.folder / self.events)


@dataclass(frozen=True, slots=True)
class MemoryGroups:
    """A control group below which each role gets one of its own."""

    parent: Path
    settings: Mapping[str, str]
    """File of a group → what limits it, with ``{limit}`` for the bytes; in the order of writing."""
    events: str
    """File of a group that counts the processes that were killed for memory."""

    @contextmanager
    def new_group(self, limit_bytes: int) -> Iterator[MemoryGroup]:
        """Make an empty group with a limit; remove it when the context ends, by which its processes must have ended.

        Raises:
            OSError: If that is not possible.
        """
        folder = _make_folder(self.parent)
        try:
            for name, text in self.settings.items():
                (folder / name).write_text(text.format(limit=limit_bytes), encoding="ascii")
            joining_fd = os.open(folder / "cgroup.procs", os.O_WRONLY)
            try:
                yield MemoryGroup(folder, self.events, joining_fd)
            finally:
                os.close(joining_fd)
        finally:
            _remove(folder)

    def orphans(self) -> Sequence[Path]:
        """Return the groups of dead runners."""
        return orphaned_folders(_PREFIX, self.parent)


def count_oom_kills(events: Path) -> int:
    """Return the number of processes that the kernel has killed for memory, from the file of a group that has it."""
    rows = (line.split() for line in read(events).splitlines())
    return sum(int(row[1]) for row in rows if row[0] == "oom_kill")


def find_memory_groups(process: Path = Path("/proc/self")) -> MemoryGroups | str:
    """Return where this runner can make control groups that limit memory, or why it cannot."""
    reasons = []
    for kind, folder in _places(process):
        try:
            return _try(kind, folder)
        except OSError as error:  # noqa: PERF203  # there are three places at most
            reasons.append(f"{folder}: {error.strerror}")
    return "; ".join(reasons) or "no control group with the memory controller is mounted"


def _places(process: Path) -> Iterator[tuple[str, Path]]:
    """Yield (type of the file system, group) of groups that may have groups with a memory limit below them."""
    for kind, mounted_at, path in groups_of(process, "memory", process):
        folder = mounted_at if path.startswith("..") else mounted_at / path
        if kind == VERSION_1:
            yield kind, folder
            continue
        # In version 2 a group with processes has no limited groups below it, but may have some beside it.
        for place in (folder, folder.parent):
            if place.is_relative_to(mounted_at) and "memory" in read(place / "cgroup.subtree_control").split():
                yield kind, place


def _try(kind: str, parent: Path) -> MemoryGroups:
    """Make a group, limit it and remove it.

    Raises:
        OSError: If that is not possible.
    """
    folder = _make_folder(parent)
    try:
        needed, *others = _SETTINGS[kind]
        present = [needed, *(name for name in others if (folder / name).exists())]
    finally:
        _remove(folder)
    found = MemoryGroups(parent, {name: _SETTINGS[kind][name] for name in present}, EVENTS[kind])
    with found.new_group(_TRIED_BYTES):
        return found


def _make_folder(parent: Path) -> Path:
    folder = parent / f"{_PREFIX}{owner_in_name(os.getpid())}{secrets.token_hex(4)}"
    folder.mkdir()
    return folder


def _remove(folder: Path) -> None:
    """Remove a group; the kernel may take a moment to notice that its processes have ended."""
    deadline = time.monotonic() + _REMOVAL_S
    while folder.exists():
        with suppress(OSError):
            folder.rmdir()
            return
        if time.monotonic() > deadline:
            return  # a later run removes it
        time.sleep(_REMOVAL_PAUSE_S)
