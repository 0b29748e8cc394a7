"""Names of the programs that processes run."""

from __future__ import annotations

from pathlib import Path

_PROC = Path("/proc")


def command(pid: int) -> str:
    """Return the kernel's name of the program of ``pid``, or ``name not readable``."""
    try:
        return (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "name not readable"
