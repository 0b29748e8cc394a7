"""Start, watch and kill a role's process under :mod:`kernel_matrix.inside.confine`, and keep the end of its output."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Collection, Iterator
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from pathlib import Path
from selectors import EVENT_READ, DefaultSelector
from typing import IO, Any

from kernel_matrix.errors import SandboxError
from kernel_matrix.inside.confine import ConfineRequest
from kernel_matrix.inside.exception_kinds import tells_of_host_memory
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import ProcessExit
from kernel_matrix.sandboxes.memory_groups import MemoryGroup
from kernel_matrix.sandboxes.memory_watch import MemoryWatch
from kernel_matrix.sandboxes.process_tree import processes_below, processes_in, resume, stop
from kernel_matrix.sandboxes.role_environment import PACKAGE_FOLDER, LogTail

_log = logging.getLogger(__name__)

START_TIMEOUT_S = 30.0  # a start takes milliseconds; an overloaded machine may need seconds
_KILL_TIMEOUT_S = 2.0  # after this the launcher itself is killed
_LAST_OUTPUT_S = 0.5
"""Time for which output is read after the end: a process that escaped may hold the pipe open for ever."""
_CHUNK_BYTES = 64 << 10  # capacity of a pipe on Linux

_NICE = 10
"""Priority of a session that gives way: the one that :mod:`kernel_matrix.inside.build.builder` has among processes.
With 19, the lowest, builds beside other programs do not end in time."""
_PRIORITY_TRIES = 30
_PRIORITY_PAUSE_S = 0.1  # Linux lets users without rights change the priority of one session in this time


def launcher() -> tuple[str, ...]:
    """Return the command line of the launcher, which is isolated from the role's environment."""
    return (sys.executable, "-I", "-S", "-B", str(PACKAGE_FOLDER / "inside" / "confine.py"))


def give_way(leader: int) -> None:
    """Give the session that ``leader`` leads a low priority among sessions, where Linux has one.

    With ``sched_autogroup`` the kernel shares a core equally among sessions, and `nice` counts only within each: a
    compiler takes half of the core of a judge, which then wakes up milliseconds late.
    """
    priority = Path(f"/proc/{leader}/autogroup")
    with contextlib.suppress(OSError):  # a kernel without it shares cores among processes, where `nice` counts
        for _ in range(_PRIORITY_TRIES):
            with contextlib.suppress(BlockingIOError):
                priority.write_text(str(_NICE), encoding="ascii")
                return
            time.sleep(_PRIORITY_PAUSE_S)
        _log.warning("builds may disturb timed cells: the priority of session %d cannot be lowered", leader)


class SupervisedProcess:
    """Process of one role. A thread reads the role's output and the launcher's report until both end."""

    def __init__(
        self,
        role: Role,
        memory: MemoryGroup | MemoryWatch | None = None,
        *,
        may_leave_group: bool = False,
        gives_way: bool = False,
    ) -> None:
        """Create the process of ``role``.

        Args:
            role: The role.
            memory: What limits the memory of everything that it starts together.
            may_leave_group: True if its processes have the right to leave their control group.
            gives_way: True if other sessions go before its own.
        """
        self._role = role
        self._gives_way = gives_way
        self._group = memory if isinstance(memory, MemoryGroup) else None
        self._may_leave_group = may_leave_group
        self._watch = memory if isinstance(memory, MemoryWatch) else None
        self._first: int | None = None
        self._next_look = 0.0
        self._beyond_memory = False
        self._process: subprocess.Popen[bytes] | None = None
        self._started: Future[None] = Future()
        self._ended: Future[ProcessExit] = Future()
        self._killed = False
        self._stopped: list[int] | None = None
        self._tail = LogTail()
        self._report = bytearray()
        self._oom_kills = 0

    def start(self, request: ConfineRequest) -> None:
        """Start the launcher, send it the request and wait until the role's module runs.

        Raises:
            SandboxError: if the launcher cannot be started, or cannot confine as requested.
        """
        self._oom_kills = _count_oom_kills()
        read_end, write_end = os.pipe()
        report = os.fdopen(read_end, "rb", buffering=0)
        joining_fd = -1 if self._group is None else self._group.joining_fd
        try:
            self._process = self._popen([fd for fd in (write_end, joining_fd) if fd >= 0])
            if self._group is not None:
                self._group.take_launcher(self._process.pid)  # it waits for the request
            if self._gives_way:
                give_way(self._process.pid)
        except OSError as error:
            report.close()
            raise SandboxError(f"cannot start {sys.executable}: {error}") from error
        finally:
            os.close(write_end)
        threading.Thread(target=self._follow, args=(self._process, report), daemon=True).start()
        _send(self._process, request._replace(report_fd=write_end, memory_group_fd=joining_fd).to_json())
        self._await_start()

    def root_pid(self) -> int | None:
        """Return the host PID of the launcher; ``None`` before the start."""
        return None if self._process is None else self._process.pid

    def pause(self) -> None:
        """Stop the role and everything that it started, but not its launcher, which must be able to kill them."""
        if self._process is not None and not self._ended.done():
            self._stopped = None  # if not all of them stop, they are looked for again
            self._stopped = stop(self._processes)

    def resume(self) -> None:
        """Let the role and everything that it started run on."""
        if self._process is not None and not self._ended.done():
            resume(self._processes, self._stopped)
            self._stopped = None

    def _processes(self) -> Iterator[tuple[int, str]]:
        """Yield process id and state of all in the control group, if they cannot leave it, else below the launcher."""
        if self._group is not None and not self._may_leave_group:
            yield from processes_in(self._group.folder)
        elif self._process is not None:
            yield from processes_below(self._process.pid)

    def wait(self, timeout_s: float) -> ProcessExit | None:
        """Return how the role ended, or ``None`` if it still runs after ``timeout_s``."""
        try:
            return self._ended.result(timeout_s)
        except FutureTimeoutError:
            return None

    def kill(self) -> None:
        """Kill the role and everything that it started."""
        if self._process is None or self._ended.done():
            return
        self._killed = True
        self._process.terminate()  # the launcher kills what it started, then ends
        if self.wait(_KILL_TIMEOUT_S) is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)

    def close(self) -> None:
        """Kill the role if it still runs, and wait until it has ended."""
        self.kill()
        if self._process is not None and self.wait(_KILL_TIMEOUT_S) is None:
            _log.warning("process %d of the %s does not end", self._process.pid, self._role.value)

    @staticmethod
    def _popen(open_files: Collection[int]) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            launcher(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env={},
            cwd="/",
            pass_fds=tuple(open_files),
            start_new_session=True,
        )

    def _await_start(self) -> None:
        try:
            self._started.result(START_TIMEOUT_S)
        except FutureTimeoutError:
            raise SandboxError(
                f"the launcher of the {self._role.value} did not report within {START_TIMEOUT_S:.0f} s",
                next_step="check whether the machine is overloaded, then run again",
            ) from None

    def _follow(self, process: subprocess.Popen[bytes], report: IO[bytes]) -> None:
        """Read until the launcher's report ends, then reap the launcher and publish how the role ended."""
        output = process.stdout
        if output is None:
            raise AssertionError("the launcher is always started with a pipe")
        with report, output, DefaultSelector() as selector:
            selector.register(output, EVENT_READ, self._tail.add)
            selector.register(report, EVENT_READ, self._add_report)
            while report in [key.fileobj for key in selector.get_map().values()]:
                _read_ready(selector, self._look_at_memory(process))
            process.wait()
            deadline = time.monotonic() + _LAST_OUTPUT_S
            while selector.get_map() and (remaining_s := deadline - time.monotonic()) > 0:
                _read_ready(selector, remaining_s)
        if not self._started.done():
            self._started.set_exception(self._start_error())
        self._ended.set_result(self._make_exit())

    def _add_report(self, chunk: bytes) -> None:
        """Append a piece of the launcher's report."""
        self._report += chunk
        if not self._started.done():
            for message in self._messages():
                if "started" in message:
                    self._first = message["started"]
                    self._started.set_result(None)

    def _look_at_memory(self, process: subprocess.Popen[bytes]) -> float | None:
        """Kill the role if it uses too much memory; return the time until the next look, ``None`` without a watch."""
        if self._watch is None or self._beyond_memory:
            return None
        if self._first is None:
            return START_TIMEOUT_S
        if time.monotonic() >= self._next_look:
            used_bytes = self._watch.used_bytes(process.pid, self._first)
            if used_bytes > self._watch.limit_bytes:
                self._beyond_memory = True
                process.terminate()
                return None
            self._next_look = time.monotonic() + self._watch.next_look_s(used_bytes)
        return max(self._next_look - time.monotonic(), 0.0)

    def _messages(self) -> Iterator[dict[str, Any]]:
        """Return the messages in the report so far, one for each complete line."""
        return (json.loads(line) for line in bytes(self._report).split(b"\n")[:-1])

    def _start_error(self) -> SandboxError:
        """Make the error that says why the role was not started."""
        errors = [message["error"] for message in self._messages() if "error" in message]
        what = errors[0] if errors else self._tail.text().strip() or "the launcher ended without a message"
        return SandboxError(
            f"cannot start the {self._role.value} as a confined process: {what}",
            next_step="use the docker sandbox here; kernel-matrix docs isolation says what each sandbox enforces",
        )

    def _make_exit(self) -> ProcessExit:
        """Translate the launcher's report; without a status the role is lost, unless this runner killed it."""
        statuses = [message["status"] for message in self._messages() if "status" in message]
        status = statuses[0] if statuses else None
        log_tail = self._tail.text()
        if status is None:
            end_signal = int(signal.SIGKILL) if self._killed else None
            return ProcessExit(
                role=self._role,
                code=None,
                signal=end_signal,
                killed=self._killed,
                lost=not self._killed,
                log_tail=log_tail,
            )
        end_signal = os.WTERMSIG(status) if os.WIFSIGNALED(status) else None
        killed = self._killed and end_signal == signal.SIGKILL
        return ProcessExit(
            role=self._role,
            code=os.WEXITSTATUS(status) if end_signal is None else None,
            signal=end_signal,
            oom_killed=status != 0 and not killed and self._ran_out_of_memory(end_signal, log_tail),
            killed=killed,
            log_tail=log_tail,
        )

    def _ran_out_of_memory(self, end_signal: int | None, log_tail: str) -> bool:
        """Return whether a memory limit explains a failure.

        Either this runner or the kernel killed a process of the role, or the role's last line says that it got no more.
        """
        if self._beyond_memory or (self._group is not None and self._group.oom_kills() > 0):
            return True
        if end_signal == signal.SIGKILL:
            # Without a group, the role may be taken for another victim of this machine's lack of memory.
            return self._group is None and _count_oom_kills() > self._oom_kills
        return tells_of_host_memory(log_tail.rstrip().rpartition("\n")[2])


def _send(process: subprocess.Popen[bytes], request: str) -> None:
    """Send the launcher its request; the thread that follows the launcher notices if it has ended."""
    if process.stdin is None:
        raise AssertionError("the launcher is always started with a pipe")
    with contextlib.suppress(BrokenPipeError), process.stdin as channel:
        channel.write(request.encode())


def _read_ready(selector: DefaultSelector, timeout_s: float | None) -> None:
    """Pass the data of each readable stream to its callback, and unregister streams that have ended."""
    for key, _ in selector.select(timeout_s):
        chunk = os.read(key.fd, _CHUNK_BYTES)
        if chunk:
            key.data(chunk)
        else:
            selector.unregister(key.fileobj)


def _count_oom_kills() -> int:
    """Return the number of processes that this machine's kernel has killed for lack of memory since it booted."""
    for line in Path("/proc/vmstat").read_text(encoding="ascii").splitlines():
        if line.startswith("oom_kill "):
            return int(line.split()[1])
    return 0
