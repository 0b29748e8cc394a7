"""Memory of all processes of a role together, summed at intervals where no control group can limit it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from kernel_matrix.sandboxes.process_tree import processes_below

_PROC = Path("/proc")
_SHORTEST_S, _LONGEST_S = 0.1, 2.0  # between two looks; one takes 3 ms for a process that has loaded torch
# A fast process touches this much new memory; the nearer the limit, the sooner the next look.
_GROWTH_BYTES_PER_S = 8 << 30

_KB = re.compile(rb"^(RssAnon|VmRSS|VmSwap|Pss_Anon|SwapPss):\s+(\d+) kB$", re.MULTILINE)
_SHARED = re.compile(
    rb"^(?P<first>[0-9a-f]+)-(?P<end>[0-9a-f]+) \S{4} (?P<offset>[0-9a-f]+) \S+ (?P<inode>\d+) +"
    rb"(?P<name>/dev/zero|/memfd:).*\(deleted\)$",
    re.MULTILINE,
)
"""A mapping of memory without a file: shared memory that has no name, or a memory file."""

_BLOCK_BYTES = 512  # unit of ``st_blocks``


@dataclass(slots=True)
class MemoryWatch:
    """Sums what the processes of a role use: their own pages, shared memory, and their file systems of memory.

    What was lent to them does not count: memory files of another user, and all memory files where the role can make
    none itself.
    """

    limit_bytes: int
    file_systems: tuple[str, ...]
    """Private file systems of memory, as the processes see them; empty for a role without namespaces."""
    memory_files_of: int | None
    """User whose memory files count; ``None`` counts none."""
    _lent: set[int] = field(default_factory=set)
    """Memory files, by inode, that another user has made."""

    def used_bytes(self, launcher: int, first: int) -> int:
        """Return the memory in use.

        Args:
            launcher: process that started the role.
            first: its child; with namespaces, process 1 of the role's own.
        """
        below = (_PROC / str(pid) for pid, _state in processes_below(launcher))
        places = list(_private_processes(first) if self.file_systems else below)
        shared = self._shared_bytes(places) + self._in_file_systems(first)
        used = sum(map(_own_bytes, places)) + shared
        # Pages that forked processes share are counted once for each. Counting them exactly takes longer.
        return used if used <= self.limit_bytes else sum(map(_exact_bytes, places)) + shared

    def next_look_s(self, used_bytes: int) -> float:
        """Return the time until the next look."""
        return min(max((self.limit_bytes - used_bytes) / _GROWTH_BYTES_PER_S, _SHORTEST_S), _LONGEST_S)

    def _in_file_systems(self, first: int) -> int:
        used = 0
        with suppress(OSError):  # the role has ended
            for place in self.file_systems:
                found = os.statvfs(f"{_PROC}/{first}/root{place}")
                used += (found.f_blocks - found.f_bfree) * found.f_frsize
        return used

    def _shared_bytes(self, places: list[Path]) -> int:
        """Return the size of shared memory without a name, by its extent, and of memory files that count."""
        sizes: dict[int, int] = {}
        files: dict[int, int] = {}
        for place in places:
            if self.memory_files_of is not None:
                files.update(self._memory_files(place))
            for mapping in _SHARED.finditer(_read(place / "maps")):
                if mapping["name"] == b"/dev/zero" or self.memory_files_of is not None:
                    length = int(mapping["end"], 16) - int(mapping["first"], 16)
                    inode, extent = int(mapping["inode"]), int(mapping["offset"], 16) + length
                    sizes[inode] = max(sizes.get(inode, 0), extent)
        return sum(size for inode, size in {**sizes, **files}.items() if inode not in self._lent)

    def _memory_files(self, place: Path) -> Iterator[tuple[int, int]]:
        """Yield (inode, bytes) of the memory files that a process has open, and note those that were lent."""
        with suppress(OSError):
            for descriptor in (place / "fd").iterdir():
                with suppress(OSError):
                    if str(descriptor.readlink()).startswith("/memfd:"):
                        status = descriptor.stat()
                        if status.st_uid != self.memory_files_of:
                            self._lent.add(status.st_ino)
                        yield status.st_ino, status.st_blocks * _BLOCK_BYTES


def _private_processes(first: int) -> Iterator[Path]:
    """Yield the folder in ``/proc`` of each process in the PID namespace of ``first``."""
    with suppress(OSError):
        for place in (_PROC / str(first) / "root/proc").iterdir():
            if place.name.isdecimal():
                yield place


def _own_bytes(place: Path) -> int:
    """Return a process's own pages, in memory or swapped out."""
    found = _kilobytes(place / "status")
    return (found.get("RssAnon", found.get("VmRSS", 0)) + found.get("VmSwap", 0)) << 10


def _exact_bytes(place: Path) -> int:
    """Return the same with each shared page divided among those who share it."""
    found = _kilobytes(place / "smaps_rollup")
    return (found["Pss_Anon"] + found.get("SwapPss", 0)) << 10 if "Pss_Anon" in found else _own_bytes(place)


def _kilobytes(path: Path) -> dict[str, int]:
    return {match[1].decode(): int(match[2]) for match in _KB.finditer(_read(path))}


def _read(path: Path) -> bytes:
    """Return a file of ``/proc``; empty if its process has ended, or the kernel lacks it."""
    try:
        return path.read_bytes()
    except OSError:
        return b""
