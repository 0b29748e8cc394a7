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
import select
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from multiprocessing.connection import wait
from pathlib import Path
from types import ModuleType
from typing import NoReturn

from tests import warm_client

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = f"{ROOT / 'runner'}:{ROOT}"
"""``PYTHONPATH`` of this checkout and of its tests."""
REAL = ("-m", "kernel_matrix")
"""The command as users start it."""
RUN_LIMIT_S = 280
"""A run that has not ended by then never will; just below the limit of a test."""

_TEMPORARY = tempfile.gettempdir()
"""Not a folder that a test sets for itself: it looks for what is left there, and the path of a socket must be short."""


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
    asking, pid = warm_client.start(
        _socket(), program, arguments, streams=streams, folder=str(folder), environment=environment
    )
    with asking:
        if not wait([asking], limit_s):
            os.killpg(pid, signal.SIGKILL)
            warm_client.read_number(asking)
            raise subprocess.TimeoutExpired((*program, *arguments), limit_s)
        return warm_client.read_number(asking)


def command_text(program: Sequence[str]) -> str:
    """Return the text of a shell script that runs ``program``, with its own arguments, in a process forked for it."""
    client = (sys.executable, "-IS", warm_client.__file__, _socket(), *program, "--")
    return f'#!/bin/sh\nexec {shlex.join(client)} "$@"\n'


def _load_libraries(environment: Mapping[str, str]) -> bool:
    """Load the libraries in ``LD_LIBRARY_PATH``, so that they are found by name.

    Returns:
        False if only a new process can do what ``environment`` asks for: a library cannot be loaded, or there are other
        variables of the dynamic linker, as ``LD_PRELOAD``.
    """
    known = os.environ.get("LD_LIBRARY_PATH", "").split(":")
    folders = [folder for folder in environment.get("LD_LIBRARY_PATH", "").split(":") if folder not in ("", *known)]
    try:
        for library in (path for folder in folders for path in Path(folder).glob("lib*.so*")):
            ctypes.CDLL(str(library))
    except OSError:
        return False
    return all(name == "LD_LIBRARY_PATH" for name in environment if name.startswith("LD_"))


@cache
def _socket() -> str:
    """Start the process that is forked from; it ends with this one."""
    environment = {**os.environ, "PYTHONPATH": PACKAGES, "OPENBLAS_NUM_THREADS": "1"}
    return start_listening((sys.executable, "-m", "tests.warm_command"), environment)


def start_listening(command: Sequence[str], environment: Mapping[str, str]) -> str:
    """Start ``command`` with the descriptor of a socket that listens; it ends with this process.

    Returns:
        The socket's path.
    """
    folder = tempfile.mkdtemp(prefix="km-warm-", dir=_TEMPORARY)
    atexit.register(shutil.rmtree, folder)
    path = f"{folder}/socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:  # open there alone
        listening.bind(path)
        listening.listen()
        process = subprocess.Popen(
            (*command, str(listening.fileno())),
            env=environment,
            pass_fds=(listening.fileno(),),
            cwd=ROOT,
            stdin=subprocess.PIPE,  # ends with this process, however this one ends
        )
    atexit.register(process.communicate)
    atexit.register(process.terminate)
    return path


def serve_each(listening: socket.socket, serve: Callable[[socket.socket], None]) -> None:
    """Fork a process that serves each that asks, until the process that started this one has ended."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while sys.stdin not in select.select([listening, sys.stdin], [], [])[0]:
        asking, _ = listening.accept()
        with asking:
            if os.fork() == 0:
                listening.close()
                try:
                    serve(asking)
                finally:
                    os._exit(0)


def serve(asking: socket.socket) -> None:
    """Fork a process for the command that is asked for, and tell its number and then its exit code."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    order, streams, _, _ = socket.recv_fds(asking, warm_client.MOST_BYTES, 3)
    if not order:
        return
    child = os.fork()
    if child == 0:
        asking.close()
        _become(*json.loads(order), streams=streams)
    for descriptor in streams:
        os.close(descriptor)
    with suppress(ConnectionError):  # who asked may have been killed
        asking.sendall(warm_client.NUMBER.pack(child))
        asking.sendall(warm_client.NUMBER.pack(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])))


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
        if not _load_libraries(environment):
            os.execve(sys.executable, [sys.executable, *program, *arguments], environment)
        os.environ.clear()
        os.environ.update(environment)
        tempfile.tempdir = None  # looked up again, in this environment
        sys.path[:1] = [folder, *environment.get("PYTHONPATH", "").split(":")]
        sys.argv = [program[-1], *arguments]
        sys.orig_argv = [sys.executable, *program, *arguments]
        if program[0] == "-m":
            runpy.run_module(program[1], run_name="__main__", alter_sys=True)
        elif program[0] == "-c":
            sys.argv[0] = "-c"
            sys.modules["__main__"] = ModuleType("__main__")
            exec(program[1], vars(sys.modules["__main__"]))  # the program of a test
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
    serve_each(socket.socket(fileno=int(sys.argv[1])), serve)
