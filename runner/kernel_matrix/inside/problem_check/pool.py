"""Checks problems without a candidate: each is loaded and put through the controls that a judge begins with.

Run as ``python -m kernel_matrix.inside.problem_check.pool --work DIR --channel DIR``. ``DIR/job.json`` lists the
problems. Each result is one line of JSON on the host's socket, sent when it is ready.

torch is imported once. Each problem runs in a forked process of its own, a few at a time. So crashes, endless loops,
output, settings of torch and memory of one problem do not affect another.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import resource
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import deque
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, Callable, List, Optional, Sequence

from kernel_matrix.inside.confine import refuse_connections
from kernel_matrix.inside.hard_exit import leave
from kernel_matrix.inside.problem_check.job import (
    ProblemCheckJob,
    ProblemCheckLimits,
    ProblemCheckResult,
    describe_refused_memory,
    find_source_lines,
)
from kernel_matrix.inside.wire import short_name
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import JudgeJob, dumps, from_json

JOB_NAME = "job.json"  # name of the job file in the working folder
SOCKET_NAME = "check.sock"  # name of the host's socket
READY = b"ready\n"  # first line: torch is imported, and checks begin
MAX_LINE = 8 << 10  # bytes of a result; less than a pipe holds, so it is read after the process has ended

_LOOK_S = 0.01  # interval of looking for processes that ended
_GRACE_S = 2.0  # a problem's processes live this much longer than their limit, to dump their stacks one by one
_MAX_TAIL = 16 << 10  # bytes of a problem's output that are searched for the reason of its end
_RESULT_FD = 3  # a problem's process writes its result there

# Slow to import and needed by many problems, so imported once for all. They start no threads, and change no setting of
# torch (``torch.testing`` does).
_OFTEN_NEEDED = (
    *("numpy.random", "torch.fx", "torch.utils._device"),
    *("einops", "scipy.ndimage", "scipy.signal", "scipy.stats", "sympy"),
)

CheckProblem = Callable[[JudgeJob, Path, ProblemCheckLimits], ProblemCheckResult]


@dataclass(eq=False)
class ProblemCheckProcess:
    """One problem in a forked process, which leads a process group."""

    problem: JudgeJob
    pid: int
    result_fd: int
    output: IO[bytes]
    scratch: Path
    started: float
    late: bool = False
    status: int = 0
    """Its wait status, once it has ended."""

    def has_ended(self, limits: ProblemCheckLimits) -> bool:
        """Return True if it has ended; kill it if its time is over."""
        if not self.late and time.monotonic() >= self.started + limits.limit_s + _GRACE_S:
            self.late = True
            self.kill()
        ended, self.status = os.waitpid(self.pid, os.WNOHANG)
        return bool(ended)

    def kill(self) -> None:
        """Kill it and all processes of its group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)

    def take_result(self, limits: ProblemCheckLimits, folder: Path) -> ProblemCheckResult:
        """Return the result of the ended process, and remove what it left behind."""
        seconds = round(time.monotonic() - self.started, 3)
        self.kill()  # descendants that it left behind
        shutil.rmtree(self.scratch, ignore_errors=True)
        with self.output:
            result = self._read_result() or self._explain(limits, folder)
        return replace(result, cell_id=self.problem.cell_id, seconds=seconds)

    def _read_result(self) -> Optional[ProblemCheckResult]:
        line = b""
        with open(self.result_fd, "rb", buffering=0) as pipe:  # noqa: PTH123  # a descriptor, not a path
            os.set_blocking(self.result_fd, False)  # a process that left its group may still hold the other end
            line = pipe.read(MAX_LINE + 1) or b""
        if self.late or not line.endswith(b"\n") or len(line) > MAX_LINE:
            return None
        try:
            return from_json(ProblemCheckResult, json.loads(line))
        except ValueError:
            return None

    def _explain(self, limits: ProblemCheckLimits, folder: Path) -> ProblemCheckResult:
        """Return the result of a process that gave none: the reason, and the innermost line of the dumped stacks."""
        size = os.fstat(self.output.fileno()).st_size
        text = os.pread(self.output.fileno(), _MAX_TAIL, max(0, size - _MAX_TAIL)).decode("utf-8", "replace")
        reason = self._why_no_result(limits, text)
        result = ProblemCheckResult(self.problem.cell_id, Status.PROBLEM_ERROR, reason)
        for place in find_source_lines(text, folder)[:1]:
            result = replace(result, reason=f"{reason}, in {place.function}", file=place.file, line=place.line)
        return result

    def _why_no_result(self, limits: ProblemCheckLimits, text: str) -> str:
        if self.late:
            return f"did not end within {limits.limit_s:g} s"
        refused = describe_refused_memory(text, limits.memory_bytes)
        if refused:
            return refused
        if os.WIFSIGNALED(self.status):
            number = os.WTERMSIG(self.status)
            why = ", most likely because memory ran out" if number == signal.SIGKILL else ""
            return f"its process was ended by {signal.Signals(number).name}{why}"
        return f"its process ended with code {os.WEXITSTATUS(self.status)} and no answer"


def check_all(
    job: ProblemCheckJob, work: Path, check: CheckProblem, report: Callable[[ProblemCheckResult], None]
) -> None:
    """Check all problems of a job, a few at a time.

    Args:
        job: The problems.
        work: Folder with a folder of each problem's files.
        check: Checks one problem in its process.
        report: Called with each result when it is ready.
    """
    waiting, limits = deque(job.problems), job.limits
    running: List[ProblemCheckProcess] = []
    try:
        while waiting or running:
            while waiting and len(running) < limits.jobs:
                running.append(_start(waiting.popleft(), work, check, limits))
            time.sleep(_LOOK_S)
            for process in [one for one in running if one.has_ended(limits)]:
                running.remove(process)
                report(process.take_result(limits, work / process.problem.cell_id))
    finally:
        for process in running:
            process.kill()


def _start(problem: JudgeJob, work: Path, check: CheckProblem, limits: ProblemCheckLimits) -> ProblemCheckProcess:
    read_fd, write_fd = os.pipe()
    output = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115  # closed when the process has ended
    scratch = Path(tempfile.mkdtemp(prefix="problem-"))
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        try:
            os.setpgid(0, 0)
            _keep_descriptors(write_fd, output.fileno())
            os.environ["TMPDIR"] = str(scratch)
            tempfile.tempdir = None
            _limit_memory(limits.memory_bytes)
            result = check(problem, work / problem.cell_id, limits)
            os.write(_RESULT_FD, f"{dumps(result)}\n".encode())
        except BaseException:  # noqa: BLE001  # this copy of the parent must not go on as one
            sys.excepthook(*sys.exc_info())
        finally:
            os._exit(1)
    with suppress(OSError):  # the child does the same, and may have exited
        os.setpgid(pid, pid)
    os.close(write_fd)
    return ProblemCheckProcess(problem, pid, read_fd, output, scratch, started)


def _keep_descriptors(result_fd: int, output_fd: int) -> None:
    """Keep empty input, the output for both outputs and the pipe for the result, and close the parent's descriptors."""
    high = os.dup(result_fd)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (output_fd, 1), (output_fd, 2), (high, _RESULT_FD)):
        os.dup2(source, target)
    os.closerange(_RESULT_FD + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])


def _limit_memory(more_bytes: int) -> None:
    """Limit this process's address space to its current size plus ``more_bytes``."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
    most = pages * os.sysconf("SC_PAGE_SIZE") + more_bytes
    hard = resource.getrlimit(resource.RLIMIT_AS)[1]
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource.RLIMIT_AS, (most, most))


def import_ahead(names: Sequence[str]) -> None:
    """Import modules for later processes; errors are left to the problems that need them."""
    for name in names:
        with suppress(Exception, SystemExit):
            importlib.import_module(name)
    gc.collect()
    gc.freeze()  # memory that the collector does not touch is not copied in forked processes


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Check all problems; the exit code is 0 when each has its result."""
    parser = argparse.ArgumentParser(prog="problem_check")
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--channel", type=Path, required=True)
    arguments = parser.parse_args(argv)
    job = from_json(ProblemCheckJob, json.loads((arguments.work / JOB_NAME).read_text(encoding="utf-8")))
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as host:
        with short_name(arguments.channel / SOCKET_NAME) as name:
            host.connect(name)
        refuse_connections()
        from kernel_matrix.inside.problem_check.one_problem import check_problem  # noqa: PLC0415  # imports torch

        import_ahead(_OFTEN_NEEDED if len(job.problems) > 1 else ())
        host.sendall(READY)
        check_all(job, arguments.work, check_problem, lambda result: host.sendall(f"{dumps(result)}\n".encode()))
    return 0


if __name__ == "__main__":
    leave(main())
