"""What the kernel calls the program of a process."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def command(pid: int) -> str:
    """What the kernel calls the program of ``pid``, or that this cannot be read."""
    try:
        return (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "name not readable"
