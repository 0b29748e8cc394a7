"""The process sandbox, with a process that has torch already and forks: most of a session's start is that import.

Everything else is the sandbox's own: orders, private tree, limits, user, teardown. Where the launcher would become a
new Python, the fork goes on as the module it was ordered to be. Used in place of ``process`` by
:mod:`tests.sim.launch_preloaded`, and by tests that start the judge and its workers themselves.
"""

from __future__ import annotations

import atexit
import faulthandler
import importlib
import os
import pkgutil
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import IO, NoReturn

from kernel_matrix.inside import confine
from kernel_matrix.sandboxes import process
from kernel_matrix.sandboxes.supervised_process import SupervisedProcess
from tests.warm_command import PACKAGES, serve_each, start_listening

ROOT = Path(__file__).resolve().parents[2]
LEFT_OUT = ("kernel_matrix.inside.confine",)
"""Not imported ahead: what a fork runs before it is confined."""

_SETTINGS = {"TRITON_INTERPRET": "1", "OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
"""Read when torch, Triton or a library of theirs is imported, and so before the forks."""

_WARM = "KERNEL_MATRIX_TESTS_WARM"
"""Environment variable of runs: path of the socket of a process that forks sources."""

_PID = struct.Struct("<i")


def open_sandbox() -> process.ProcessSandbox:
    """The process sandbox of this machine, its processes forked from one that is warm."""
    process.SupervisedProcess = Fork  # in this process only, which exists for nothing else
    return process.ProcessSandbox()


class Fork(SupervisedProcess):
    """One role's process, forked instead of started."""

    def _popen(self, open_files: Collection[int]) -> Forked:
        return _source().fork(open_files)


class Forked:
    """As much of :class:`subprocess.Popen` as the sandbox uses."""

    def __init__(self, pid: int, stdin: IO[bytes], stdout: IO[bytes]) -> None:
        self.pid, self.stdin, self.stdout = pid, stdin, stdout
        self._handle = os.pidfd_open(pid)

    def wait(self) -> None:
        """Until it has ended; who forked it reaps it."""
        waiting = select.poll()  # select() takes no descriptor above 1023
        waiting.register(self._handle, select.POLLIN)
        waiting.poll()
        os.close(self._handle)

    def terminate(self) -> None:
        """Tell it to end."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGTERM)


class Source:
    """The process that is forked from; it ends with this one."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair()
        self._one_at_a_time = threading.Lock()
        with theirs:
            self._process = None if _fork_source(theirs) else self._start(theirs)

    @staticmethod
    def _start(theirs: socket.socket) -> subprocess.Popen[bytes]:
        command, environment = _command("--requests")
        descriptor = theirs.fileno()
        return subprocess.Popen((*command, str(descriptor)), env=environment, pass_fds=(descriptor,), cwd=ROOT)

    def fork(self, open_files: Collection[int]) -> Forked:
        """A process whose standard streams are pipes, with the files of its report and its memory group, if any."""
        (orders, stdin), (stdout, output) = os.pipe(), os.pipe()
        with self._one_at_a_time:
            socket.send_fds(self._ours, [b"f"], [orders, output, *open_files])
            (pid,) = _PID.unpack(self._ours.recv(_PID.size))
        for descriptor in (orders, output):
            os.close(descriptor)
        return Forked(pid, os.fdopen(stdin, "wb"), os.fdopen(stdout, "rb", buffering=0))

    def close(self) -> None:
        """End it; what it has forked goes on."""
        self._ours.close()
        if self._process is not None:
            self._process.wait()


def _command(kind: str) -> tuple[Sequence[str], Mapping[str, str]]:
    """Return the command of a process that imports torch, its last argument left out, and its environment.

    That argument is the descriptor of the socket to serve.
    """
    # Without the folder of a run: a test that looks for what a run has left must not find this process.
    settings = {name: value for name, value in os.environ.items() if name != "TMPDIR"}
    environment = {**settings, **_SETTINGS, "PYTHONPATH": PACKAGES}
    return (sys.executable, "-s", "-B", "-m", "tests.sim.preloaded", kind), environment


@cache
def warm_sources() -> Mapping[str, str]:
    """Start a process that has torch and forks a source for each run; returns the variable that tells runs of it."""
    return {_WARM: start_listening(*_command("--sources"))}


def _fork_source(theirs: socket.socket) -> bool:
    """Ask the process of :func:`warm_sources` for a source that serves ``theirs``; return whether it could be asked."""
    path = os.environ.get(_WARM)
    if path is None or "LD_PRELOAD" in os.environ:  # only a new process loads what it names
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as asking:
        try:
            asking.connect(path)
        except OSError:
            return False
        socket.send_fds(asking, [b"s"], [theirs.fileno()])
    return True


def serve_source(asking: socket.socket) -> None:
    """Become the source that was asked for: serve the socket that is sent."""
    _, descriptors, _, _ = socket.recv_fds(asking, 1, 1)
    asking.close()
    if descriptors:
        serve(socket.socket(fileno=descriptors[0]))


@cache
def _source() -> Source:
    return Source()


def close_source() -> None:
    """End the process that is forked from, if one was started; the next fork starts another."""
    if _source.cache_info().currsize:
        _source().close()
        _source.cache_clear()


def serve(requests: socket.socket) -> None:
    """Fork a process for each request, until the connection is closed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks here: the kernel buries them
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        asked, descriptors, _, _ = socket.recv_fds(requests, 1, 4)
        if not asked:
            return
        child = os.fork()
        if child == 0:
            requests.close()
            _launch(*descriptors)
        requests.sendall(_PID.pack(child))
        for descriptor in descriptors:
            os.close(descriptor)


def _launch(orders_fd: int, output_fd: int, report_fd: int, memory_group_fd: int = -1) -> NoReturn:
    """Be the launcher: carry out the orders, and become no new Python on the way."""
    try:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_BLOCK, confine._WATCHED)
        for target, source in ((0, os.open(os.devnull, os.O_RDONLY)), (1, output_fd), (2, output_fd)):
            os.dup2(source, target)
        with os.fdopen(orders_fd, encoding="utf-8") as told:
            orders = confine.ConfineRequest.from_json(told.read())
        os.umask(0o022)
        os.execve = _become
        if memory_group_fd >= 0:
            os.set_inheritable(memory_group_fd, False)
        # All name what only this process knows: who forked it, and the numbers that the descriptors have here.
        confine.supervise(orders._replace(parent=os.getppid(), report_fd=report_fd, memory_group_fd=memory_group_fd))
    except BaseException:  # noqa: BLE001  # what goes wrong belongs into the output, and never back into the source
        traceback.print_exc()
    finally:
        os._exit(1)


_execve = os.execve


def _become(_program: str, argv: Sequence[str], environment: Mapping[str, str]) -> NoReturn:
    """Run in this process what ``python -s -B -m MODULE ARGUMENTS`` would run in a new one."""
    os.execve = _execve
    _close_private()
    os.environ.clear()
    os.environ.update(environment)
    module = argv[argv.index("-m") + 1]
    sys.argv = [module, *argv[argv.index("-m") + 2 :]]
    sys.orig_argv = list(argv)
    _find_core_in(environment["PYTHONPATH"])
    signal.signal(signal.SIGINT, signal.default_int_handler)
    faulthandler.enable()
    code = 1
    try:
        main = getattr(sys.modules[module], "main", None)  # a module without one is started to see whether it can be
        code = 0 if main is None else main(sys.argv[1:])
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else 1
    except BaseException:  # noqa: BLE001  # as the interpreter does
        traceback.print_exc()
    atexit._run_exitfuncs()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _close_private() -> None:
    """Close what starting a program closes."""
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  # no Path: this is done in a tree without most of a system
        descriptor = int(name)
        with suppress(OSError):
            if descriptor > 2 and not os.get_inheritable(descriptor):
                os.close(descriptor)


def _find_core_in(folder: str) -> None:
    """Import what is not yet imported of the core from where this process sees it; see nothing else of the project."""
    sys.path[:] = [folder, *(entry for entry in sys.path if entry not in ("", str(ROOT), str(ROOT / "runner")))]
    for name, package in list(sys.modules.items()):
        if name.partition(".")[0] == "kernel_matrix" and hasattr(package, "__path__"):
            package.__path__ = [f"{folder}/{name.replace('.', '/')}"]
    for name in [name for name in sys.modules if name.partition(".")[0] == "tests"]:
        del sys.modules[name]
    sys.modules["__main__"] = sys.modules[sys.argv[0]]


def _import_core() -> None:
    """Import torch and every module of the core, but no compiler: a role with one gets more time for a first call."""
    importlib.import_module("torch")
    import kernel_matrix.inside  # noqa: PLC0415  # found here, whoever imports this module

    for module in pkgutil.walk_packages(kernel_matrix.inside.__path__, "kernel_matrix.inside."):
        if module.name not in LEFT_OUT:
            importlib.import_module(module.name)


if __name__ == "__main__":
    _import_core()
    connection = socket.socket(fileno=int(sys.argv[2]))
    if sys.argv[1] == "--sources":
        serve_each(connection, serve_source)
    else:
        serve(connection)
