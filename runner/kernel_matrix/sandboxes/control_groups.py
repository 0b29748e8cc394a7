"""Control groups of a process, and where their hierarchies are mounted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

VERSION_1, VERSION_2 = "cgroup", "cgroup2"
"""Types of the file system."""
PROCESSES = "cgroup.procs"
"""File of a group with its processes; a process whose id is written to it joins the group."""


def groups_of(process: Path, controller: str, mounts: Path) -> Iterator[tuple[str, Path, str]]:
    """Yield (type of the file system, mount point, group below it) of each mounted hierarchy that has ``controller``.

    Args:
        process: Folder of the process below ``/proc``.
        controller: Name of a controller; version 2 has one hierarchy for all, which may lack it.
        mounts: Folder below ``/proc`` of the process whose mounts are meant.
    """
    paths = dict(_paths(process))
    for kind, root, mounted_at, options in _mounts(mounts):
        path = paths.get(controller if kind == VERSION_1 else "")
        if path is not None and (kind == VERSION_2 or controller in options):
            yield kind, mounted_at, os.path.relpath(path, root)


def read(path: Path) -> str:
    """Return the content of a file; nothing if it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="surrogateescape")
    except OSError:
        return ""


def _paths(process: Path) -> Iterator[tuple[str, str]]:
    """Yield (controller, path) of the groups that the process is in; version 2 has an empty controller."""
    for line in read(process / "cgroup").splitlines():
        _, controllers, path = line.split(":", 2)
        for controller in controllers.split(","):
            yield controller, path


def _mounts(process: Path) -> Iterator[tuple[str, str, Path, list[str]]]:
    """Yield (type, root, mount point, options) of each mounted hierarchy of control groups."""
    for line in read(process / "mountinfo").splitlines():
        place, _, kind = line.partition(" - ")
        kind, _, options = kind.split(" ", 2)
        if kind in (VERSION_1, VERSION_2):
            root, mounted_at = place.split(" ")[3:5]
            yield kind, root, Path(mounted_at), options.split(",")
