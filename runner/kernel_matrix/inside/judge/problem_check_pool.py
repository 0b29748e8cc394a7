"""Checks problems without a candidate: each is loaded and put through the controls that a judge begins with.

Run as ``python -m kernel_matrix.inside.judge.problem_check_pool --work DIR --channel DIR``. ``DIR/orders.json`` lists
the tasks, and the folder named by a task's index holds its files. Each answer is one line of JSON on the host's socket,
sent when it is ready.

torch is imported once, and so are modules of a few large packages that several problems need. Each problem runs in a
forked process of its own, a few at a time. So crashes, endless loops, output, settings of torch and memory of one
problem do not affect another.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import math
import os
import resource
import selectors
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter, deque
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable, Deque, Dict, Iterator, NoReturn, Optional, Sequence

from kernel_matrix.inside.hard_exit import leave
from kernel_matrix.inside.judge.problem_check_job import (
    ProblemCheckJob,
    ProblemCheckReport,
    ProblemCheckResult,
    ProblemCheckTask,
    is_large,
    out_of_memory,
    places,
)
from kernel_matrix.inside.wire import short_name
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import dumps, from_json

ORDERS_NAME = "orders.json"  # name of the job file in the working folder
SOCKET_NAME = "checkup.sock"  # name of the host's socket
READY = b"ready\n"  # first line: torch is imported, and checks begin
MAX_LINE = 8 << 10  # bytes of an answer

_GRACE_S = 2.0  # a problem's processes live this much longer than their limit, to dump their stacks one by one
_MAX_TAIL = 16 << 10  # bytes kept of a problem's output

_OFTEN_NEEDED = ("numpy.random", "torch.utils._device")  # imported by nearly every problem, so imported once for all

_NEEDED_BY = 2  # problems that must have imported a module before it is imported for all


# ---- a problem's process, as its parent sees it


@dataclass(eq=False)
class ProblemCheckProcess:
    """One problem in a forked process, which leads a process group."""

    task: ProblemCheckTask
    pid: int
    answer_fd: int
    output_fd: int
    scratch: Path
    deadline: float
    """Monotonic time at which to kill it; infinite after that."""
    started: float
    answer: bytearray = field(default_factory=bytearray)
    output: bytearray = field(default_factory=bytearray)
    late: bool = False

    def read_answer(self) -> bool:
        """Read its answer as far as it is written; return False at the end."""
        return _read_available(self.answer_fd, self.answer, MAX_LINE + 1)

    def read_output(self) -> bool:
        """Read its output as far as it is written; return False at the end."""
        return _read_available(self.output_fd, self.output, _MAX_TAIL)

    def kill_late(self) -> None:
        """Kill it because its time is over."""
        self.late, self.deadline = True, math.inf
        self.kill()

    def kill(self) -> None:
        """Kill it and all processes of its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def judged(self, status: int, orders: ProblemCheckJob, folder: Path) -> ProblemCheckReport:
        """Return the result, from its answer or from its wait ``status``."""
        answer = self._answered() or ProblemCheckReport(self._without_answer(status, orders, folder))
        seconds = round(time.monotonic() - self.started, 3)
        return replace(answer, tried=replace(answer.tried, index=self.task.index, seconds=seconds))

    def _without_answer(self, status: int, orders: ProblemCheckJob, folder: Path) -> ProblemCheckResult:
        text = self.output.decode("utf-8", "replace")
        # In faulthandler's tracebacks the first line is the innermost.
        place = next(iter(places(text, folder)), None)
        return ProblemCheckResult(
            index=self.task.index,
            status=Status.PROBLEM_ERROR,
            reason=self._why_no_answer(status, orders, text) + (f", in {place.function}" if place else ""),
            file=place.file if place else "",
            line=place.line if place else None,
        )

    def _answered(self) -> Optional[ProblemCheckReport]:
        if self.late or not self.answer.endswith(b"\n") or len(self.answer) > MAX_LINE:
            return None
        try:
            return from_json(ProblemCheckReport, json.loads(bytes(self.answer)))
        except ValueError:
            return None

    def _why_no_answer(self, status: int, orders: ProblemCheckJob, text: str) -> str:
        if self.late:
            return f"did not end within {orders.limit_s:g} s"
        refused = out_of_memory(text, orders.memory_bytes)
        if refused:
            return refused
        if os.WIFSIGNALED(status):
            number = os.WTERMSIG(status)
            why = ", most likely because memory ran out" if number == signal.SIGKILL else ""
            return f"its process was ended by {signal.Signals(number).name}{why}"
        return f"its process ended with code {os.WEXITSTATUS(status)} and no answer"


def _read_available(descriptor: int, kept: bytearray, most: int) -> bool:
    """Append what can be read now, and keep only the last ``most`` bytes; return False at the end."""
    while True:
        try:
            piece = os.read(descriptor, 64 << 10)
        except BlockingIOError:
            return True
        if not piece:
            return False
        kept += piece
        del kept[:-most]


class ProblemCheckPool:
    """Checks all tasks, a few at a time."""

    def __init__(
        self, orders: ProblemCheckJob, work: Path, try_out: TryOut, tell: Callable[[ProblemCheckResult], None]
    ) -> None:
        """Create the pool; ``try_out`` checks one problem in its process, and ``tell`` is called with each result."""
        self._orders = orders
        self._work = work
        self._try_out = try_out
        self._tell = tell
        self._waiting: Deque[ProblemCheckTask] = deque(orders.tasks)
        self._running: Dict[int, ProblemCheckProcess] = {}
        self._needed: Counter[str] = Counter()

    def run(self) -> None:
        """Check all tasks, and report each result when it is ready."""
        with selectors.DefaultSelector() as selector, _woken_by_children(selector):
            try:
                while self._waiting or self._running:
                    while self._waiting and len(self._running) < self._orders.jobs:
                        self._start(selector, self._waiting.popleft())
                    self._wait(selector)
                    self._reap(selector)
            finally:
                for attempt in self._running.values():
                    attempt.kill()

    def _start(self, selector: selectors.BaseSelector, task: ProblemCheckTask) -> None:
        answers, answer = os.pipe()
        outputs, output = os.pipe()
        scratch = Path(tempfile.mkdtemp(prefix="problem-"))
        started = time.monotonic()
        pid = os.fork()
        if pid == 0:
            self._run_child(task, answer, output, scratch)
        with suppress(OSError):  # the child does the same, and may have exited
            os.setpgid(pid, pid)
        for descriptor in (answer, output):
            os.close(descriptor)
        for descriptor in (answers, outputs):
            os.set_blocking(descriptor, False)
        deadline = started + self._orders.limit_s + _GRACE_S
        attempt = ProblemCheckProcess(task, pid, answers, outputs, scratch, deadline, started)
        selector.register(answers, selectors.EVENT_READ, attempt.read_answer)
        selector.register(outputs, selectors.EVENT_READ, attempt.read_output)
        self._running[pid] = attempt

    def _wait(self, selector: selectors.BaseSelector) -> None:
        """Wait until a process ends, writes, or reaches its deadline."""
        soonest = min(attempt.deadline for attempt in self._running.values())
        timeout_s = None if soonest == math.inf else max(0.0, soonest - time.monotonic())
        for key, _ in selector.select(timeout_s):
            if not key.data():
                selector.unregister(key.fileobj)

    def _reap(self, selector: selectors.BaseSelector) -> None:
        """Kill processes that have reached their deadline, and report those that have ended."""
        now = time.monotonic()
        for attempt in list(self._running.values()):
            if now >= attempt.deadline:
                attempt.kill_late()
            ended, status = os.waitpid(attempt.pid, os.WNOHANG)
            if ended:
                del self._running[attempt.pid]
                self._finish(selector, attempt, status)

    def _finish(self, selector: selectors.BaseSelector, attempt: ProblemCheckProcess, status: int) -> None:
        attempt.kill()  # descendants that it left behind
        for descriptor, hear in ((attempt.answer_fd, attempt.read_answer), (attempt.output_fd, attempt.read_output)):
            if descriptor in selector.get_map():
                selector.unregister(descriptor)
                hear()
            os.close(descriptor)
        shutil.rmtree(attempt.scratch, ignore_errors=True)
        answer = attempt.judged(status, self._orders, self._work / str(attempt.task.index))
        self._tell(answer.tried)
        self._import_for_all(answer.imported)

    def _import_for_all(self, names: Sequence[str]) -> None:
        """Import modules that several problems needed; a problem's own import is gone with its process."""
        self._needed.update(names)
        wanted = [name for name in names if self._needed[name] == _NEEDED_BY and is_large(name)]
        if wanted and self._waiting:
            import_ahead(wanted)

    def _run_child(self, task: ProblemCheckTask, answer: int, output: int, scratch: Path) -> NoReturn:
        """Check ``task``, write the answer, and exit in any case."""
        try:
            os.setpgid(0, 0)
            _close_descriptors(answer, output)
            os.environ["TMPDIR"] = str(scratch)
            tempfile.tempdir = None
            _limit_memory(self._orders.memory_bytes)
            answer_ = self._try_out(task, self._work / str(task.index), self._orders)
            os.write(_ANSWER_FD, f"{dumps(answer_)}\n".encode())
        except BaseException:  # noqa: BLE001  # this copy of the parent must not go on running the pool
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)


TryOut = Callable[[ProblemCheckTask, Path, ProblemCheckJob], ProblemCheckReport]

_ANSWER_FD = 3  # a problem's process writes its answer there


def _close_descriptors(answer: int, output: int) -> None:
    """Close the parent's descriptors: empty input, both outputs into the pipe, the answer's pipe, and no others."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    high = os.dup(answer)
    for source, target in ((nothing, 0), (output, 1), (output, 2), (high, _ANSWER_FD)):
        os.dup2(source, target)
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > _ANSWER_FD:
            with suppress(OSError):  # the listing's own descriptor
                os.close(int(entry.name))


def _limit_memory(more_bytes: int) -> None:
    """Limit this process's address space to its current size plus ``more_bytes``."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + more_bytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


@contextmanager
def _woken_by_children(selector: selectors.BaseSelector) -> Iterator[None]:
    """Wake up ``selector`` when a child has ended."""
    come, give = os.pipe()
    for descriptor in (come, give):
        os.set_blocking(descriptor, False)
    woken = bytearray()
    selector.register(come, selectors.EVENT_READ, lambda: _read_available(come, woken, 1))
    before = signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(give)
    try:
        yield
    finally:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, before)
        selector.unregister(come)
        for descriptor in (come, give):
            os.close(descriptor)


def import_ahead(names: Sequence[str]) -> None:
    """Import modules for later processes; errors are left to the problems that need them."""
    for name in names:
        with suppress(Exception, SystemExit):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # memory that the collector does not touch is not copied in forked processes


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Check all tasks; the exit code is 0 when each task has its answer."""
    parser = argparse.ArgumentParser(prog="checkup")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--channel", type=Path, required=True)
    arguments = parser.parse_args(argv)
    orders = from_json(ProblemCheckJob, json.loads((arguments.work / ORDERS_NAME).read_text(encoding="utf-8")))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
        with short_name(arguments.channel / SOCKET_NAME) as name:
            host.connect(name)
        from kernel_matrix.inside.judge.problem_check import try_out  # noqa: PLC0415  # imports torch

        import_ahead(_OFTEN_NEEDED)
        host.sendall(READY)
        pool = ProblemCheckPool(
            orders, arguments.work, try_out, lambda tried: host.sendall(f"{dumps(tried)}\n".encode())
        )
        pool.run()
    return 0


if __name__ == "__main__":
    leave(main())
