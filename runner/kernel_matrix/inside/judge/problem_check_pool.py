"""Tries problems without a candidate: each is loaded and put through the controls that a judge begins with.

``python -m kernel_matrix.inside.judge.problem_check_pool --work DIR --channel DIR``. ``DIR/orders.json`` says what is
to be tried, and the folder
beside it that is called by a task's index holds the task's files. Each answer is one line of JSON on the host's socket,
in the order in which they come.

torch is imported once, and so is what more than one problem has imported of a few large packages. Each problem is tried
in a forked process of its own, a few at a time, so that no crash, no endless loop, no print, no setting of torch's and
no memory of one is noticed by another.
"""

from __future__ import annotations

import argparse
import faulthandler
import gc
import importlib
import json
import math
import os
import re
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
from typing import Callable, Deque, Dict, Iterator, List, NoReturn, Optional, Sequence, Tuple

from kernel_matrix.inside.exception_kinds import tells_of_host_memory
from kernel_matrix.inside.hard_exit import leave
from kernel_matrix.inside.wire import short_name
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import JudgeJob, dumps, from_json

ORDERS_NAME = "orders.json"
"""Name of the orders in the working folder."""
SOCKET_NAME = "checkup.sock"
"""Name of the host's socket."""
READY = b"ready\n"
"""First line: torch is imported, and trying begins."""
MAX_LINE = 8 << 10
"""Longest answer, bytes."""
MAX_REASON = 500
"""Longest reason, characters."""

_GRACE_S = 2.0
"""How much longer than its limit a problem's processes live: to say where they are, one after the other."""
_MAX_TAIL = 16 << 10
"""How much is kept of what a problem prints, bytes."""
_GIB = 1 << 30

_OFTEN_NEEDED = ("numpy.random", "torch.utils._device")
"""What nearly every problem has imported before its first input is there; imported once, it takes no time of theirs."""

LARGE = ("numpy", "scipy", "sympy", "einops", "torch.fx")
"""What is imported ahead when problems are seen to need it: packages that take long to import, start no threads, and
set nothing of torch's (``torch.testing`` does)."""
MOST_IMPORTED = 40
"""How many modules a problem's process names at most: the first ones import the rest."""
_NEEDED_BY = 2
"""Problems that have imported a module before it is imported for all."""

_ASKED_FOR = re.compile(r"allocate (?P<bytes>\d+) bytes")


@dataclass(frozen=True)
class ProblemCheckTask:
    """One problem to try, on the first workload of its job."""

    index: int
    """Names its folder, and its answer."""
    job: JudgeJob
    """As for a cell; its contestants' files are in the task's folder."""


@dataclass(frozen=True)
class ProblemCheckJob:
    """What is to be tried, and what each problem may use."""

    tasks: Tuple[ProblemCheckTask, ...]
    jobs: int
    """How many are tried at the same time; they are begun in the order of ``tasks``."""
    limit_s: float
    """Seconds until one is given up."""
    memory_bytes: int
    """Address space that each process may take beyond what torch has taken."""


@dataclass(frozen=True)
class ProblemCheckResult:
    """What came of one problem."""

    index: int
    status: Status
    """``passed``, or what a cell of this problem would end as, whatever its candidate is."""
    reason: str = ""
    """Why it did not pass; of one that did, what is odd about it."""
    file: str = ""
    """Which of its files ``line`` is in; empty where no line is known."""
    line: Optional[int] = None
    labels: Tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class ProblemCheckReport:
    """What a problem's process says at its end."""

    tried: ProblemCheckResult
    imported: Tuple[str, ...] = ()
    """Modules of :data:`LARGE` that were imported meanwhile, in the order in which that began."""


@dataclass(frozen=True)
class SourceLine:
    """A line of a problem's own files."""

    file: str
    line: int
    function: str = ""


def places(text: str, folder: Path) -> List[SourceLine]:
    """The lines of files in ``folder`` that a traceback names, in its order."""
    frames = re.compile(
        rf'File "{re.escape(str(folder))}/(?P<file>[^"/]+)", line (?P<line>\d+)(?:,? in (?P<function>\S+))?'
    )
    return [SourceLine(f["file"], int(f["line"]), f["function"] or "") for f in frames.finditer(text)]


def out_of_memory(text: str, memory_bytes: int) -> str:
    """What to say where ``text`` tells that memory was refused, in words; empty where it does not."""
    if not tells_of_host_memory(text):
        return ""
    asked = _ASKED_FOR.search(text)
    wanted = f", and asks for {_gib(int(asked['bytes']))} at once" if asked else ""
    return f"wants more memory than the {_gib(memory_bytes)} it is given here{wanted}"


def one_line(text: str) -> str:
    """``text`` without line breaks, at most :data:`MAX_REASON` characters."""
    return " ".join(text.split())[:MAX_REASON]


def _gib(count: int) -> str:
    return f"{count / _GIB:.4g} GiB"


# ---- a problem's process, as its parent sees it


@dataclass(eq=False)
class ProblemCheckProcess:
    """One problem in a forked process, which is the leader of a process group."""

    task: ProblemCheckTask
    pid: int
    answer_fd: int
    output_fd: int
    scratch: Path
    deadline: float
    """Monotonic time to kill it at; infinite once that was done."""
    started: float
    answer: bytearray = field(default_factory=bytearray)
    output: bytearray = field(default_factory=bytearray)
    late: bool = False

    def hear_answer(self) -> bool:
        """Take what it has answered by now; false when no more can come."""
        return _take(self.answer_fd, self.answer, MAX_LINE + 1)

    def hear_output(self) -> bool:
        """Take what it has printed by now; false when no more can come."""
        return _take(self.output_fd, self.output, _MAX_TAIL)

    def kill_late(self) -> None:
        """Kill it, for its time is over."""
        self.late, self.deadline = True, math.inf
        self.kill()

    def kill(self) -> None:
        """End it and all that it started and that did not hide."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def judged(self, status: int, orders: ProblemCheckJob, folder: Path) -> ProblemCheckReport:
        """What came of it, by its own answer or by how it ended.

        :param status: as ``os.waitpid`` gives it.
        """
        answer = self._answered() or ProblemCheckReport(self._without_answer(status, orders, folder))
        seconds = round(time.monotonic() - self.started, 3)
        return replace(answer, tried=replace(answer.tried, index=self.task.index, seconds=seconds))

    def _without_answer(self, status: int, orders: ProblemCheckJob, folder: Path) -> ProblemCheckResult:
        text = self.output.decode("utf-8", "replace")
        # Of a traceback by faulthandler, the first line is the innermost.
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
            why = ", most likely for want of memory" if number == signal.SIGKILL else ""
            return f"its process was ended by {signal.Signals(number).name}{why}"
        return f"its process ended with code {os.WEXITSTATUS(status)} and no answer"


def _take(descriptor: int, kept: bytearray, most: int) -> bool:
    """Append what can be read now, and forget all but the last ``most`` bytes; false at the end."""
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
    """Tries all tasks, a few at a time."""

    def __init__(
        self, orders: ProblemCheckJob, work: Path, try_out: TryOut, tell: Callable[[ProblemCheckResult], None]
    ) -> None:
        """:param try_out: what to do in a problem's process; imported already, with all it needs."""
        self._orders = orders
        self._work = work
        self._try_out = try_out
        self._tell = tell
        self._waiting: Deque[ProblemCheckTask] = deque(orders.tasks)
        self._running: Dict[int, ProblemCheckProcess] = {}
        self._needed: Counter[str] = Counter()

    def run(self) -> None:
        """Everything; each answer is told when it is there."""
        with selectors.DefaultSelector() as selector, _woken_by_children(selector):
            try:
                while self._waiting or self._running:
                    while self._waiting and len(self._running) < self._orders.jobs:
                        self._start(selector, self._waiting.popleft())
                    self._wait(selector)
                    self._take_away(selector)
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
            self._be_child(task, answer, output, scratch)
        with suppress(OSError):  # it does so too, and may be further
            os.setpgid(pid, pid)
        for descriptor in (answer, output):
            os.close(descriptor)
        for descriptor in (answers, outputs):
            os.set_blocking(descriptor, False)
        deadline = started + self._orders.limit_s + _GRACE_S
        attempt = ProblemCheckProcess(task, pid, answers, outputs, scratch, deadline, started)
        selector.register(answers, selectors.EVENT_READ, attempt.hear_answer)
        selector.register(outputs, selectors.EVENT_READ, attempt.hear_output)
        self._running[pid] = attempt

    def _wait(self, selector: selectors.BaseSelector) -> None:
        """Until a process ends, prints, or has used its time up."""
        soonest = min(attempt.deadline for attempt in self._running.values())
        timeout_s = None if soonest == math.inf else max(0.0, soonest - time.monotonic())
        for key, _ in selector.select(timeout_s):
            if not key.data():
                selector.unregister(key.fileobj)

    def _take_away(self, selector: selectors.BaseSelector) -> None:
        """Kill what has used its time up, and tell of what has ended."""
        now = time.monotonic()
        for attempt in list(self._running.values()):
            if now >= attempt.deadline:
                attempt.kill_late()
            ended, status = os.waitpid(attempt.pid, os.WNOHANG)
            if ended:
                del self._running[attempt.pid]
                self._finish(selector, attempt, status)

    def _finish(self, selector: selectors.BaseSelector, attempt: ProblemCheckProcess, status: int) -> None:
        attempt.kill()  # what it left behind
        for descriptor, hear in ((attempt.answer_fd, attempt.hear_answer), (attempt.output_fd, attempt.hear_output)):
            if descriptor in selector.get_map():
                selector.unregister(descriptor)
                hear()
            os.close(descriptor)
        shutil.rmtree(attempt.scratch, ignore_errors=True)
        answer = attempt.judged(status, self._orders, self._work / str(attempt.task.index))
        self._tell(answer.tried)
        self._import_for_all(answer.imported)

    def _import_for_all(self, names: Sequence[str]) -> None:
        """Import what is needed again and again: what a process imports by itself is gone with it."""
        self._needed.update(names)
        wanted = [name for name in names if self._needed[name] == _NEEDED_BY and is_large(name)]
        if wanted and self._waiting:
            import_ahead(wanted)

    def _be_child(self, task: ProblemCheckTask, answer: int, output: int, scratch: Path) -> NoReturn:
        """Try ``task``, write the answer, and end, whatever happens."""
        try:
            os.setpgid(0, 0)
            _shut_out(answer, output)
            os.environ["TMPDIR"] = str(scratch)
            tempfile.tempdir = None
            _limit_memory(self._orders.memory_bytes)
            answer_ = self._try_out(task, self._work / str(task.index), self._orders)
            os.write(_ANSWER_FD, f"{dumps(answer_)}\n".encode())
        except BaseException:  # noqa: BLE001  # whatever it is, this copy of the parent must not go on as one
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)


TryOut = Callable[[ProblemCheckTask, Path, ProblemCheckJob], ProblemCheckReport]

_ANSWER_FD = 3
"""Where a problem's process writes its answer."""


def say_where_after(seconds: float) -> None:
    """Print where every thread of this process is after so many seconds; its parent ends it then.

    Not before a fork: the thread that waits is not in the new process, which would wait for it for ever.
    """
    faulthandler.enable(2)
    faulthandler.dump_traceback_later(seconds, file=2)


def _shut_out(answer: int, output: int) -> None:
    """Keep nothing of the parent's open: no input, both outputs into the pipe, the answer's pipe, and no more."""
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    nothing = os.open(os.devnull, os.O_RDONLY)
    high = os.dup(answer)
    for source, target in ((nothing, 0), (output, 1), (output, 2), (high, _ANSWER_FD)):
        os.dup2(source, target)
    for entry in list(Path("/proc/self/fd").iterdir()):
        if int(entry.name) > _ANSWER_FD:
            with suppress(OSError):  # that of the listing itself
                os.close(int(entry.name))


def _limit_memory(more_bytes: int) -> None:
    """Let this process take so much address space beyond what it has, and no more."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + more_bytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


@contextmanager
def _woken_by_children(selector: selectors.BaseSelector) -> Iterator[None]:
    """Let ``selector`` notice that a child has ended."""
    come, give = os.pipe()
    for descriptor in (come, give):
        os.set_blocking(descriptor, False)
    woken = bytearray()
    selector.register(come, selectors.EVENT_READ, lambda: _take(come, woken, 1))
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


def is_large(module: str) -> bool:
    """Whether it is one of :data:`LARGE`, or a part of it."""
    return any(module == name or module.startswith(f"{name}.") for name in LARGE)


def import_ahead(names: Sequence[str]) -> None:
    """Import modules for the processes to come; one that cannot be imported is left to whoever needs it."""
    for name in names:
        with suppress(Exception, SystemExit):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # what is not looked at again is not copied for a process that only forks


def _with_torch() -> TryOut:
    """What to do with a task, once all is imported that takes time; the processes to come share it."""
    from kernel_matrix.inside.judge.problem_check import try_out  # noqa: PLC0415  # torch comes with it

    import_ahead(_OFTEN_NEEDED)
    return try_out


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Try everything that is ordered; the exit code is 0 when each task has its answer."""
    parser = argparse.ArgumentParser(prog="checkup")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--channel", type=Path, required=True)
    arguments = parser.parse_args(argv)
    orders = from_json(ProblemCheckJob, json.loads((arguments.work / ORDERS_NAME).read_text(encoding="utf-8")))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
        with short_name(arguments.channel / SOCKET_NAME) as name:
            host.connect(name)
        try_out = _with_torch()
        host.sendall(READY)
        ProblemCheckPool(
            orders, arguments.work, try_out, lambda tried: host.sendall(f"{dumps(tried)}\n".encode())
        ).run()
    return 0


if __name__ == "__main__":
    leave(main())
