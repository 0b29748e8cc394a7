"""Stopping and continuing all processes below one, some of which may be hostile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kernel_matrix.errors import SandboxError

_STOPPED = frozenset("TtZX")  # states of stopped, traced and ended processes in /proc/<pid>/stat
_PATIENCE_S = 1.0  # a process in a system call stops when the call ends
_POLL_S = 0.0005


def stop_below(root: int) -> None:
    """Stop every descendant of the process ``root``.

    It repeats until none of them runs, because a process may start another one before it is stopped itself.

    Raises:
        SandboxError: A process may not be stopped, or does not stop.
    """
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        running = [pid for pid in _descendants(root) if _state(pid) not in _STOPPED]
        if not running:
            return
        if time.monotonic() > deadline:
            raise SandboxError(f"processes {running} did not stop within {_PATIENCE_S:g} s")
        _signal(running, signal.SIGSTOP)
        time.sleep(_POLL_S)


def continue_below(root: int) -> None:
    """Let every descendant of the process ``root`` run on.

    Raises:
        SandboxError: This user may not signal one of them.
    """
    _signal(list(_descendants(root)), signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # noqa: PERF203  # it has ended since
            continue
        except PermissionError:
            raise SandboxError(f"this user may not send {number.name} to process {pid}") from None


def _descendants(root: int) -> Iterator[int]:
    """Yield the process ids of all descendants of ``root``, parents first."""
    for child in _children(root):
        yield child
        yield from _descendants(child)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            found += map(int, (task / "children").read_text(encoding="ascii").split())
    return found


def _state(pid: int) -> str:
    """Return the state's letter; ``X`` if the process has ended."""
    try:
        # The name in parentheses may contain spaces and parentheses.
        return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0].decode("ascii")
    except OSError:
        return "X"
