"""What the kernel calls the program of a process, and how one program that matters is known by it."""

from __future__ import annotations

from pathlib import Path

MPS_SERVER = "nvidia-cuda-mps-server"[:15]
"""As ``/proc/<pid>/comm`` shows it, which keeps 15 characters; its control daemon looks the same, on no device."""

_PROC = Path("/proc")


def command(pid: int) -> str:
    """What the kernel calls the program of ``pid``, or that this cannot be read."""
    try:
        return (_PROC / str(pid) / "comm").read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return "name not readable"
