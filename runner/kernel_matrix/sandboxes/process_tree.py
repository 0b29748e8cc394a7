"""Finding, stopping and continuing all processes below one, some of which may be hostile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from kernel_matrix.errors import SandboxError

_PROC = Path("/proc")
_STOPPED = frozenset("TtZX")  # states of stopped, traced and ended processes
_PATIENCE_S = 1.0  # a process in a system call stops when the call ends
_POLL_S = 0.0005


def processes_below(root: int) -> Iterator[tuple[int, str]]:
    """Yield process id and state, a letter of ``/proc/<pid>/stat``, of every descendant of the process ``root``.

    All processes of the machine are looked at: the kernel's own list of a process's children is optional, and leaves
    some out while others end.
    """
    children: dict[int, list[tuple[int, str]]] = {}
    for place in _PROC.iterdir():
        if place.name.isdecimal():
            with suppress(OSError):  # it has ended since
                # The name in parentheses may contain spaces and parentheses.
                state, parent, *_ = (place / "stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
                children.setdefault(int(parent), []).append((int(place.name), state))
    found = children.get(root, [])
    while found:
        pid, state = found.pop()
        yield pid, state
        found += children.get(pid, [])


def stop_below(root: int) -> list[int]:
    """Stop every descendant of the process ``root``, and return their ids.

    It repeats until none of them runs, because a process may start another one before it is stopped itself.

    Raises:
        SandboxError: A process may not be stopped, or does not stop.
    """
    deadline = time.monotonic() + _PATIENCE_S
    below = dict(processes_below(root))
    while running := [pid for pid, state in below.items() if state not in _STOPPED]:
        if time.monotonic() > deadline:
            raise SandboxError(f"processes {running} did not stop within {_PATIENCE_S:g} s")
        _signal(running, signal.SIGSTOP)
        time.sleep(_POLL_S)
        below = dict(processes_below(root))
    return list(below)


def continue_below(root: int, stopped: list[int] | None = None) -> None:
    """Let every descendant of the process ``root`` run on.

    Args:
        root: Process id.
        stopped: All of them, if they were stopped and are known; looking for them takes 5 ms beside 200 processes.

    Raises:
        SandboxError: This user may not signal one of them.
    """
    _signal([pid for pid, _state in processes_below(root)] if stopped is None else stopped, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # noqa: PERF203  # it has ended since
            continue
        except PermissionError:
            raise SandboxError(f"this user may not send {number.name} to process {pid}") from None
