"""Control groups that limit the memory and the number of all tasks of a role, where this runner can make some.

In version 1 of control groups, tasks (processes and threads) have a hierarchy of their own.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_matrix.hosts.process_token import orphaned_folders, owner_in_name
from kernel_matrix.sandboxes.control_groups import PROCESSES, VERSION_1, VERSION_2, groups_of, read

_PREFIX = "kernel-matrix-role-"

_MOST_TASKS = "pids.max"
"""File of a group with the largest number of its tasks."""
_SETTINGS = {
    # "memsw", memory and swap together, exists only where the kernel counts swap.
    VERSION_1: {"memory.limit_in_bytes": "{limit}", "memory.memsw.limit_in_bytes": "{limit}"},
    VERSION_2: {"memory.max": "{limit}", "memory.swap.max": "0", "memory.oom.group": "1", _MOST_TASKS: "{pids}"},
}
"""Type of the file system → file → what is written into it; all but the first may be absent."""

EVENTS = {VERSION_1: "memory.oom_control", VERSION_2: "memory.events"}
"""Type of the file system → file with the number of processes killed for memory, ``oom_kill N``."""

_TRIED_BYTES, _TRIED_PIDS = 1 << 40, 1 << 10  # limits of a group that is made only to see whether it can be
_REMOVAL_S, _REMOVAL_PAUSE_S = 2.0, 0.01


@dataclass(frozen=True, slots=True)
class MemoryGroup:
    """A control group of one role."""

    folder: Path
    events: str
    """Its file that counts the processes that were killed for memory."""
    joining_fd: int
    """Its list of processes, open: a process that writes 0 joins the group."""
    tasks: Path | None = None
    """The group that limits the number of tasks; None if it is this one, or none does."""

    def take_launcher(self, pid: int) -> None:
        """Limit the number of tasks that the launcher ``pid``, which has started nothing yet, will have.

        Raises:
            OSError: If that is not possible.
        """
        if self.tasks is not None:
            (self.tasks / PROCESSES).write_text(str(pid), encoding="ascii")

    def oom_kills(self) -> int:
        """Return the number of processes of the group that the kernel has killed for memory."""
        return count_oom_kills(self.folder / self.events)


@dataclass(frozen=True, slots=True)
class MemoryGroups:
    """A control group below which each role gets one of its own."""

    parent: Path
    settings: Mapping[str, str]
    """File of a group → what limits it, ``{limit}`` being the bytes and ``{pids}`` the tasks; written in this order."""
    events: str
    """File of a group that counts the processes that were killed for memory."""
    tasks_parent: Path | None = None
    """In version 1 the group below which each role gets one that limits the number of its tasks."""

    @property
    def limit_tasks(self) -> bool:
        """True if groups limit the number of tasks too."""
        return self.tasks_parent is not None or _MOST_TASKS in self.settings

    @contextmanager
    def new_group(self, limit_bytes: int, pids: int, outer_tasks: int = 1) -> Iterator[MemoryGroup]:
        """Make an empty group with limits; remove it when the context ends, by which its processes must have ended.

        Args:
            limit_bytes: Most memory, with swap, of all processes together.
            pids: Most processes and threads.
            outer_tasks: How many more the launcher is, with what it starts before the role's own first process. In
                version 1 they count, because the launcher joins before it starts anything.

        Raises:
            OSError: If that is not possible.
        """
        with ExitStack() as stack:
            folder = stack.enter_context(_new_folder(self.parent))
            for name, text in self.settings.items():
                (folder / name).write_text(text.format(limit=limit_bytes, pids=pids), encoding="ascii")
            tasks = None
            if self.tasks_parent is not None:
                tasks = stack.enter_context(_new_folder(self.tasks_parent))
                (tasks / _MOST_TASKS).write_text(str(pids + outer_tasks), encoding="ascii")
            joining_fd = os.open(folder / PROCESSES, os.O_WRONLY)
            stack.callback(os.close, joining_fd)
            yield MemoryGroup(folder, self.events, joining_fd, tasks)

    def orphans(self) -> Sequence[Path]:
        """Return the groups of dead runners."""
        parents = (self.parent, self.tasks_parent)
        return [folder for parent in parents if parent is not None for folder in orphaned_folders(_PREFIX, parent)]


def count_oom_kills(events: Path) -> int:
    """Return the number of processes that the kernel has killed for memory, from the file of a group that has it."""
    rows = (line.split() for line in read(events).splitlines())
    return sum(int(row[1]) for row in rows if row[0] == "oom_kill")


def find_memory_groups(process: Path = Path("/proc/self")) -> MemoryGroups | str:
    """Return where this runner can make control groups that limit memory, or why it cannot."""
    reasons = []
    for kind, folder in _places(process):
        try:
            return _try(process, kind, folder)
        except OSError as error:  # noqa: PERF203  # there are three places at most
            reasons.append(f"{folder}: {error.strerror}")
    return "; ".join(reasons) or "no control group with the memory controller is mounted"


def _places(process: Path) -> Iterator[tuple[str, Path]]:
    """Yield (type of the file system, group) of groups that may have groups with a memory limit below them."""
    for kind, mounted_at, path in groups_of(process, "memory", process):
        folder = _own_group(mounted_at, path)
        if kind == VERSION_1:
            yield kind, folder
            continue
        # In version 2 a group with processes has no limited groups below it, but may have some beside it.
        for place in (folder, folder.parent):
            if place.is_relative_to(mounted_at) and "memory" in read(place / "cgroup.subtree_control").split():
                yield kind, place


def _try(process: Path, kind: str, parent: Path) -> MemoryGroups:
    """Make a group, limit it and remove it; with one for tasks beside it, if that is possible and needed.

    Raises:
        OSError: If that is not possible.
    """
    with _new_folder(parent) as folder:
        needed, *others = _SETTINGS[kind]
        present = [needed, *(name for name in others if (folder / name).exists())]
    found = MemoryGroups(parent, {name: _SETTINGS[kind][name] for name in present}, EVENTS[kind])
    for tasks_parent in () if found.limit_tasks else _places_for_tasks(process):
        both = replace(found, tasks_parent=tasks_parent)
        with suppress(OSError), both.new_group(_TRIED_BYTES, _TRIED_PIDS):
            return both
    with found.new_group(_TRIED_BYTES, _TRIED_PIDS):
        return found


def _places_for_tasks(process: Path) -> Iterator[Path]:
    """Yield the group of ``process`` in the hierarchy of version 1 that limits the number of tasks."""
    for kind, mounted_at, path in groups_of(process, "pids", process):
        if kind == VERSION_1:
            yield _own_group(mounted_at, path)


def _own_group(mounted_at: Path, path: str) -> Path:
    """Return the group at ``path``, or the mount point if the group lies outside of what is mounted."""
    return mounted_at if path.startswith("..") else mounted_at / path


@contextmanager
def _new_folder(parent: Path) -> Iterator[Path]:
    folder = parent / f"{_PREFIX}{owner_in_name(os.getpid())}{secrets.token_hex(4)}"
    folder.mkdir()
    try:
        yield folder
    finally:
        _remove(folder)


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
