"""Which processes belong to a started role: everything that descends from its first one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection
from contextlib import suppress
from pathlib import Path

_PROC = Path("/proc")


def family(roots: Collection[int]) -> set[int]:
    """``roots`` and all their descendants that run now, as PIDs of this process's namespace.

    Inside a container an orphan is adopted by the container's own init, so that nothing leaves the tree.
    """
    children = defaultdict(list)
    for entry in _PROC.iterdir():
        if entry.name.isdecimal():
            with suppress(OSError):  # it ended while we were looking
                children[_parent(entry)].append(int(entry.name))
    found: set[int] = set()
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        if pid not in found:
            found.add(pid)
            waiting += children[pid]
    return found


def _parent(entry: Path) -> int:
    # The name in parentheses may hold anything, so the fields are counted from its end; the parent is field 4.
    return int((entry / "stat").read_bytes().rpartition(b")")[2].split()[1])
