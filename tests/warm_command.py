"""``kernel-matrix`` in processes forked from one that has imported it: most of a short command's time is that import.

Each command has a process of its own, with its own working directory, environment and standard streams. Where the
environment names a folder of libraries, these are loaded at its start, so that they are found by name; where it names
libraries that are loaded before a program, it becomes a new Python. How a command starts and is stopped is not seen
here: tests of that start ``python -m kernel_matrix``.
"""

from __future__ import annotations

import atexit
import ctypes
import importlib
import json
import os
import pkgutil
import runpy
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parents[1]
REAL = ("-m", "kernel_matrix")
"""The command as users start it."""
RUN_LIMIT_S = 280
"""A run that has not ended by then never will; just below the limit of a test."""

_NUMBER = struct.Struct("<i")
_MOST_BYTES = 1 << 17
"""Largest order: program, arguments, folder and environment."""


def run_piped(
    arguments: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    *,
    program: Sequence[str] = REAL,
    limit_s: float = RUN_LIMIT_S,
    stdin: str = "",
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end in ``folder``, none of its standard streams a terminal."""
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        given.write(stdin)
        given.seek(0)
        streams = (given.fileno(), out.fileno(), err.fileno())
        code = run_command(arguments, streams, folder, environment, program=program, limit_s=limit_s)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess((*program, *arguments), code, out.read(), err.read())


def run_command(
    arguments: Sequence[str],
    streams: tuple[int, int, int],
    folder: Path,
    environment: Mapping[str, str],
    *,
    program: Sequence[str] = REAL,
    limit_s: float = RUN_LIMIT_S,
) -> int:
    """Run a command to its end; returns its exit code, negative for a signal.

    Args:
        arguments: What follows ``kernel-matrix``.
        streams: Descriptors of its standard input, output and error output.
        folder: Its working directory.
        environment: All its environment variables.
        program: What Python is started on.
        limit_s: Longest time until it ends.

    Raises:
        TimeoutExpired: It had not ended after ``limit_s``, and was killed.
    """
    order = json.dumps([list(program), list(arguments), str(folder), dict(environment)]).encode()
    assert len(order) < _MOST_BYTES
    server = _server()
    socket.send_fds(server, [order], streams)
    pid = _number(server)
    if not wait([server], limit_s):
        os.killpg(pid, signal.SIGKILL)
        _number(server)
        raise subprocess.TimeoutExpired((*program, *arguments), limit_s)
    return _number(server)


def needs_new_python(environment: Mapping[str, str]) -> bool:
    """Return whether ``environment`` names libraries, as ``LD_PRELOAD`` does: only a new process loads them."""
    return any(name.startswith("LD_") for name in environment)


def _load_libraries(environment: Mapping[str, str]) -> bool:
    """Load what a new process would find in ``LD_LIBRARY_PATH``; return whether that is all it would do."""
    variables = {name for name in environment if name.startswith("LD_")}
    known = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder not in ("", *known)]
    try:
        for library in (path for folder in folders for path in Path(folder).glob("lib*.so*")):
            ctypes.CDLL(str(library))
    except OSError:
        return False  # the command is to see this library as it is
    return variables == {"LD_LIBRARY_PATH"}


def _number(server: socket.socket) -> int:
    return int(_NUMBER.unpack(server.recv(_NUMBER.size))[0])


@cache
def _server() -> socket.socket:
    """Connect to the process that is forked from; it ends with this one."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with theirs:
        command = (sys.executable, "-m", "tests.warm_command", str(theirs.fileno()))
        environment = {**os.environ, "PYTHONPATH": f"{ROOT / 'runner'}:{ROOT}", "OPENBLAS_NUM_THREADS": "1"}
        process = subprocess.Popen(command, env=environment, pass_fds=(theirs.fileno(),), cwd=ROOT)
    atexit.register(process.wait)
    atexit.register(ours.close)
    return ours


def serve(orders: socket.socket) -> None:
    """Fork a process for each order, tell its number and then its exit code, until the connection is closed."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        order, streams, _, _ = socket.recv_fds(orders, _MOST_BYTES, 3)
        if not order:
            return
        child = os.fork()
        if child == 0:
            orders.close()
            _become(*json.loads(order), streams=streams)
        for descriptor in streams:
            os.close(descriptor)
        orders.sendall(_NUMBER.pack(child))
        orders.sendall(_NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))


def _become(
    program: Sequence[str],
    arguments: Sequence[str],
    folder: str,
    environment: Mapping[str, str],
    streams: Sequence[int],
) -> NoReturn:
    """Run in this process what Python would run in a new one."""
    code = 1
    try:
        # What packages of the parent would do at its end is the parent's: polars waits for a thread that is only there.
        atexit._clear()
        os.setsid()
        signal.signal(signal.SIGINT, signal.default_int_handler)
        for target, source in enumerate(streams):
            os.dup2(source, target)
            os.close(source)
        os.chdir(folder)
        if needs_new_python(environment) and not _load_libraries(environment):
            os.execve(sys.executable, [sys.executable, *program, *arguments], environment)
        os.environ.clear()
        os.environ.update(environment)
        sys.path[:1] = [folder, *environment.get("PYTHONPATH", "").split(":")]
        sys.argv = [program[-1], *arguments]
        sys.orig_argv = [sys.executable, *program, *arguments]
        if program[0] == "-m":
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        else:
            sys.path[0] = str(Path(program[0]).parent)
            runpy.run_path(program[0], run_name="__main__")
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001  # as the interpreter does
        sys.excepthook(*sys.exc_info())
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def import_host_side() -> int:
    """Import every module of the host side, and none that needs torch; returns how many there are."""
    import kernel_matrix  # noqa: PLC0415  # only the process that is forked from needs it

    names = [module.name for module in pkgutil.walk_packages(kernel_matrix.__path__, "kernel_matrix.")]
    texts = ("kernel_matrix.__main__", ".adapter")  # adapters are texts, copied beside a candidate
    host = [name for name in names if "inside" not in name.split(".") and not name.endswith(texts)]
    for name in host:
        importlib.import_module(name)
    return len(host)


if __name__ == "__main__":
    import_host_side()
    serve(socket.socket(fileno=int(sys.argv[1])))
