"""Finding, stopping and continuing all processes of a role, some of which may be hostile."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from kernel_matrix.errors import SandboxError
from kernel_matrix.sandboxes.control_groups import PROCESSES

_PROC = Path("/proc")
_STOPPED = frozenset("TtZX")  # states of stopped, traced and ended processes
_PATIENCE_S = 1.0  # a process in a system call stops when the call ends
_POLL_S = 0.0005

FindProcesses = Callable[[], Iterable[tuple[int, str]]]
"""Returns process id and state, a letter of ``/proc/<pid>/stat``, of each process that is meant."""


def processes_below(root: int) -> Iterator[tuple[int, str]]:
    """Yield process id and state of every descendant of the process ``root``.

    All processes of the machine are looked at, which takes 5 ms beside 200 processes: the kernel's own list of a
    process's children is optional, and leaves some out while others end.
    """
    children: dict[int, list[tuple[int, str]]] = {}
    for place in _PROC.iterdir():
        if place.name.isdecimal():
            with suppress(OSError):  # it has ended since
                state, parent = _state_and_parent(place)
                children.setdefault(parent, []).append((int(place.name), state))
    found = children.get(root, [])
    while found:
        pid, state = found.pop()
        yield pid, state
        found += children.get(pid, [])


def processes_in(group: Path) -> Iterator[tuple[int, str]]:
    """Yield process id and state of every process of a control group.

    Raises:
        OSError: The group does not exist.
    """
    for pid in (group / PROCESSES).read_text(encoding="ascii").split():
        with suppress(OSError):  # it has ended since
            yield int(pid), _state_and_parent(_PROC / pid)[0]


def stop(find: FindProcesses) -> list[int]:
    """Stop every process that ``find`` finds, and return their ids.

    It repeats until none of them runs, because a process may start another one before it is stopped itself.

    Raises:
        SandboxError: A process may not be stopped, or does not stop.
    """
    deadline = time.monotonic() + _PATIENCE_S
    found = dict(find())
    while running := [pid for pid, state in found.items() if state not in _STOPPED]:
        if time.monotonic() > deadline:
            raise SandboxError(f"processes {running} did not stop within {_PATIENCE_S:g} s")
        _signal(running, signal.SIGSTOP)
        time.sleep(_POLL_S)
        found = dict(find())
    return list(found)


def resume(find: FindProcesses, stopped: list[int] | None = None) -> None:
    """Let every process that ``find`` finds run on.

    Args:
        find: Finds the processes.
        stopped: All of them, if they were stopped and are known.

    Raises:
        SandboxError: This user may not signal one of them.
    """
    _signal([pid for pid, _state in find()] if stopped is None else stopped, signal.SIGCONT)


def _state_and_parent(process: Path) -> tuple[str, int]:
    # The name in parentheses may contain spaces and parentheses.
    state, parent, *_ = (process / "stat").read_bytes().rpartition(b")")[2].decode("ascii").split()
    return state, int(parent)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:  # noqa: PERF203  # it has ended since
            continue
        except PermissionError:
            raise SandboxError(f"this user may not send {number.name} to process {pid}") from None
