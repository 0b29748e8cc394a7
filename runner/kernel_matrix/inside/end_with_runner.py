"""First process of a container's role, which ends with the runner that started it, and the container with it.

Run as ``python -m kernel_matrix.inside.end_with_runner LIMITS MODULE [ARGUMENT …]``, where LIMITS are those that the
daemon does not set, as ``nofile=1024,core=0``, or empty. A daemon keeps the containers of a runner that was killed. So
three processes run::

    init        process 1 of the container, which ends with it; reaps what is orphaned
    ├── guard   is connected to the runner's socket; the kernel kills it when the other end is closed, and init with it
    └── module  becomes ``python -m MODULE``

The kernel closes a socket of a process that ends in any way. It does the rest as well, because a candidate is often
stopped by its control group, with all processes of the container. In groups of version 2 these can still be killed.

A candidate has the user of all three. To kill the guard ends the container, and to stop it does not help. It can
neither trace the guard nor reach its connection, as the guard is not dumpable.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import runpy
import select
import signal
import socket
import sys
from typing import NoReturn, Sequence

from kernel_matrix.inside.hard_exit import leave

RUNNER_FOLDER = "/runner"  # as seen inside
SOCKET_NAME = "runner.sock"

_SIGNAL_BASE = 128  # as shells and daemons report death by a signal

# Linux's; Python has no names for them.
_F_SETSIG = 10
_PR_SET_DUMPABLE, _PR_SET_PTRACER = 4, 0x59616D61
_ANY_PROCESS = ctypes.c_ulong(-1).value
_PTRACE_SEIZE, _PTRACE_O_EXITKILL = 0x4206, 1 << 20

_libc = ctypes.CDLL(None, use_errno=True)


def main(arguments: Sequence[str]) -> None:
    """Run a module with its arguments, and leave with its exit code; in its process, return when the module ends.

    Args:
        arguments: Limits, the module, and its arguments.
    """
    limits, *module_arguments = arguments
    for limit in filter(None, limits.split(",")):
        name, _, most = limit.partition("=")
        _lower(getattr(resource, f"RLIMIT_{name.upper()}"), int(most))
    # While init is traced, each signal that it does not block would stop it.
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    _prctl(_PR_SET_PTRACER, _ANY_PROCESS)  # Yama allows a child to trace its parent only so; a second tracer cannot be
    connected, told = os.pipe()
    guard = os.fork()
    if not guard:
        _guard(os.getppid(), told)
    os.close(told)
    if not os.read(connected, 1):
        leave(1)
    module = os.fork()
    if module:
        _reap(module, guard)
    os.close(connected)
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    sys.argv[:] = module_arguments
    runpy.run_module(module_arguments[0], run_name="__main__", alter_sys=True)


def _lower(limit: int, most: int) -> None:
    """Set a limit of this process and of those that it starts, unless it is lower already."""
    _, now = resource.getrlimit(limit)
    most = most if now == resource.RLIM_INFINITY else min(now, most)
    resource.setrlimit(limit, (most, most))


def _reap(module: int, guard: int) -> NoReturn:
    """Wait until the module ends, and leave with its exit code."""
    while True:
        process, status = os.wait()
        if process in (module, guard):
            leave(os.WEXITSTATUS(status) if os.WIFEXITED(status) else _SIGNAL_BASE + os.WTERMSIG(status))


def _guard(init: int, told: int) -> NoReturn:
    """Connect to the runner, say so, and keep the connection until the end."""
    try:
        _connection = _connect(f"{RUNNER_FOLDER}/{SOCKET_NAME}")
    except OSError as error:
        sys.stderr.write(f"the runner has ended: {error}\n")
        leave(1)
    # Where that is refused, init sees the guard's end by itself, unless it is stopped.
    number = ctypes.c_ulong
    _libc.ptrace(number(_PTRACE_SEIZE), number(init), number(0), number(_PTRACE_O_EXITKILL))
    _prctl(_PR_SET_DUMPABLE, 0)
    os.write(told, b".")
    while True:
        signal.pause()


def _connect(path: str) -> socket.socket:
    """Connect to the runner, and let the kernel kill this process when the other end is closed.

    Raises:
        OSError: If the runner has ended.
    """
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(path)
    fcntl.fcntl(connection, fcntl.F_SETOWN, os.getpid())
    fcntl.fcntl(connection, _F_SETSIG, signal.SIGKILL)
    fcntl.fcntl(connection, fcntl.F_SETFL, fcntl.fcntl(connection, fcntl.F_GETFL) | os.O_ASYNC)
    watch = select.poll()
    watch.register(connection, 0)  # errors and the end are always told
    if watch.poll(0):  # it was closed before this process asked for the signal
        raise ConnectionResetError(path)
    return connection


def _prctl(option: int, value: int) -> None:
    number = ctypes.c_ulong
    _libc.prctl(option, number(value), number(0), number(0), number(0))


if __name__ == "__main__":
    main(sys.argv[1:])
