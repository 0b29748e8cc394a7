"""First process of a container's role, which ends with the runner that started it, and the container with it.

Run as ``python -m kernel_matrix.inside.end_with_runner MODULE [ARGUMENT …]``. A daemon keeps the containers of a runner
that was killed. So this process connects to the runner's socket, starts the module as its child, and asks the kernel to
kill it once the other end of the connection is closed, as the kernel does when the runner ends in any way. A container
ends with its first process.

A candidate's process has the same user, so it can kill this process, which ends the container, or stop it, which does
not keep the kernel from killing it. It can neither trace it nor reach its connection, as it is not dumpable.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import runpy
import select
import signal
import socket
import sys
from typing import Sequence

from kernel_matrix.inside.hard_exit import leave

RUNNER_FOLDER = "/runner"  # as seen inside
SOCKET_NAME = "runner.sock"

_F_SETSIG = 10  # Linux's; Python's module has no name for it
_PR_SET_DUMPABLE = 4
_SIGNAL_BASE = 128  # as shells and daemons report death by a signal


def main(arguments: Sequence[str]) -> None:
    """Run a module with its arguments, and leave with its exit code; in the child, return when the module ends.

    Raises:
        OSError: If the runner has ended.
    """
    _set_dumpable(dumpable=False)  # before there is a child that could make use of it
    connection = _connect(f"{RUNNER_FOLDER}/{SOCKET_NAME}")
    child = os.fork()
    if child:
        _, status = os.waitpid(child, 0)
        leave(os.WEXITSTATUS(status) if os.WIFEXITED(status) else _SIGNAL_BASE + os.WTERMSIG(status))
    connection.close()
    _set_dumpable(dumpable=True)  # or the files of its own /proc/self would belong to root
    sys.argv[:] = arguments
    runpy.run_module(arguments[0], run_name="__main__", alter_sys=True)


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


def _set_dumpable(*, dumpable: bool) -> None:
    number = ctypes.c_ulong
    ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, number(dumpable), number(0), number(0), number(0))


if __name__ == "__main__":
    main(sys.argv[1:])
