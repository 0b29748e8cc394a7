"""Checking problems without a candidate, in processes without a GPU.

See :mod:`kernel_matrix.inside.judge.problem_check_pool` for the check itself. A problem is third-party code, so it is
confined like a baseline and its answers are checked for form. If a problem ends the process that checks it, the others
are checked again.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.contestants import BASELINE_UID, CANDIDATE, PROBLEM_FILE
from kernel_matrix.attempt.folders import accept, folders_for_all, listening_for_all, make_for_all, write_for_all
from kernel_matrix.attempt.outcome import how_it_ended
from kernel_matrix.attempt.probe_process import MAX_REASON as MAX_LAST_WORDS
from kernel_matrix.attempt.probe_process import last_words
from kernel_matrix.errors import SandboxError
from kernel_matrix.images import ResolvedImage
from kernel_matrix.inside.judge.problem_check_job import (
    MAX_REASON,
    ProblemCheckJob,
    ProblemCheckResult,
    ProblemCheckTask,
)
from kernel_matrix.inside.judge.problem_check_pool import (
    MAX_LINE,
    ORDERS_NAME,
    READY,
    SOCKET_NAME,
)
from kernel_matrix.model.enums import Dtype, Implementation, Role, Status
from kernel_matrix.model.messages import (
    ContestantSpec,
    JudgeJob,
    JudgeTimeouts,
    ProtocolSpec,
    WorkloadSpec,
    dumps,
    from_json,
)
from kernel_matrix.sandboxes import Mount, ProcessLabels, ResourceLimits, RoleSpec, RunningProcess
from kernel_matrix.sources import Problem, Workload

_WORK, _CHANNEL = "/checkup", "/channel"  # folders as seen inside

_START_S = 180.0  # importing torch takes a minute from a cold disk
_SILENCE_S = 30.0  # an answer may arrive this long after the problem's own limit
_POLL_S = 0.1
_LAST_MOMENTS_S = 10.0

_OWN_BYTES = 4 << 30  # memory of the process that imports torch, beside that of the problems
_OWN_PIDS, _PIDS_EACH = 64, 128

# Statuses that a check of a problem can end with.
_POSSIBLE = frozenset(
    {Status.PASSED, Status.INVALID_PROBLEM, Status.PROBLEM_ERROR, Status.UNSUPPORTED, Status.INFRA_ERROR}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCheckSubject:
    """A problem, and the workload and dtype to check it with."""

    problem: Problem
    workload: Workload
    dtype: Dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCheckLimits:
    """Limits of a check."""

    jobs: int
    """Problems checked at the same time."""
    limit_s: float
    """Seconds per problem."""
    memory_bytes: int
    """Address space per problem's process, beyond what torch takes."""


def try_problems(
    subjects: Sequence[ProblemCheckSubject],
    image: ResolvedImage | None,
    context: RunContext,
    allowance: ProblemCheckLimits,
) -> Generator[tuple[ProblemCheckSubject, ProblemCheckResult], None, None]:
    """Check each of ``subjects`` once, and yield the results in the order in which the checks end.

    ``file`` of a result is the path of the author's own file, or a name if there is no such file. The image must have
    torch; it is None for a sandbox without images.

    Raises:
        SandboxError: If nothing could be started, or torch could not be imported.
    """
    with folders_for_all(context.scratch, "checkup-", "work", "channel") as (work, channel):
        tasks, lost = staged(subjects, work)
        yield from ((subjects[tried.index], tried) for tried in lost)
        runner = _CheckRunner(work, channel, image, context, allowance)
        for tried in runner.run(tasks):
            subject = subjects[tried.index]
            yield subject, replace(tried, file=_shown_path(subject.problem, tried.file))


def checkup_spec(
    image: ResolvedImage | None, labels: ProcessLabels, work: Mount, channel: Mount, allowance: ProblemCheckLimits
) -> RoleSpec:
    """Describe the process that checks problems: confined like a baseline, no GPU, and no writable folder is kept."""
    return RoleSpec(
        role=Role.BASELINE,
        labels=labels,
        image=image.id if image is not None else None,
        module="kernel_matrix.inside.judge.problem_check_pool",
        args=("--work", work.target, "--channel", channel.target),
        mounts=(work, channel),
        # One core each: problems run side by side, and a process with threads must not be forked.
        env={"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
        limits=ResourceLimits(
            memory_bytes=_OWN_BYTES + allowance.jobs * allowance.memory_bytes,
            pids=_OWN_PIDS + allowance.jobs * _PIDS_EACH,
        ),
        uid=BASELINE_UID,
        contestant="checkup",
    )


class _CheckRunner:
    """Checks problems in a process, and starts a new process whenever one ends early."""

    def __init__(
        self, work: Path, channel: Path, image: ResolvedImage | None, context: RunContext, allowance: ProblemCheckLimits
    ) -> None:
        self._work = work
        self._channel = channel
        self._image = image
        self._context = context
        self._allowance = allowance
        self._started = 0
        self._last_end = ""

    def run(self, tasks: Sequence[ProblemCheckTask]) -> Iterator[ProblemCheckResult]:
        """Yield each task's answer. If the process ends early, the tasks it was at are run alone, one per process."""
        left = {task.index: task for task in tasks}
        while left:
            for tried in self._together(list(left.values()), self._allowance.jobs):
                del left[tried.index]
                yield tried
            # Tasks begin in order, so the one that ended the process is among the first without an answer.
            for task in list(left.values())[: self._allowance.jobs]:
                del left[task.index]
                yield self._alone(task)

    def _alone(self, task: ProblemCheckTask) -> ProblemCheckResult:
        answers = list(self._together([task], 1))
        if answers:
            return answers[0]
        return ProblemCheckResult(
            task.index, Status.PROBLEM_ERROR, f"it ended the process that checked it: {self._last_end}"
        )

    def _together(self, tasks: Sequence[ProblemCheckTask], jobs: int) -> Iterator[ProblemCheckResult]:
        """Yield the answers of one process, as far as it gets.

        Raises:
            SandboxError: If the process does not get as far as the first task.
        """
        orders = ProblemCheckJob(tuple(tasks), jobs, self._allowance.limit_s, self._allowance.memory_bytes)
        (self._work / ORDERS_NAME).write_text(dumps(orders), encoding="utf-8")
        expected = {task.index for task in tasks}
        path = self._channel / SOCKET_NAME
        with listening_for_all(path) as listener, self._context.sandbox.launch(self._spec()) as running:
            deadline = time.monotonic() + _START_S
            connection = accept(listener, running, lambda: time.monotonic() > deadline)
            lines = self._lines(connection, running) if connection is not None else iter(())
            if next(lines, b"") != READY.strip():
                what = f"no problem could be checked: {_ending(running)}"
                raise SandboxError(what, next_step="kernel-matrix doctor looks for the cause")
            for line in lines:
                tried = _read(line, expected)
                if tried is None:
                    running.kill()
                    break
                expected.discard(tried.index)
                yield tried
                if not expected:
                    break
            self._last_end = _ending(running)

    def _spec(self) -> RoleSpec:
        context, number = self._context, self._started
        self._started += 1
        labels = ProcessLabels(
            run_id=context.run_id, cell_id="checkup", session=number, gpu_uuid="cpu", owner=context.owner
        )
        work, channel = Mount(source=self._work, target=_WORK), Mount(source=self._channel, target=_CHANNEL)
        return checkup_spec(self._image, labels, work, channel, self._allowance)

    def _lines(self, connection: socket.socket, running: RunningProcess) -> Iterator[bytes]:
        """Yield the process's lines until it ends; kill it if it is silent for too long."""
        patience_s = _START_S
        with connection:
            connection.settimeout(_POLL_S)
            pending, heard = b"", time.monotonic()
            while len(pending) <= MAX_LINE:
                try:
                    piece = connection.recv(64 << 10)
                except TimeoutError:
                    if time.monotonic() - heard > patience_s:
                        break
                    continue
                except ConnectionResetError:
                    return
                if not piece:
                    return
                *lines, pending = (pending + piece).split(b"\n")
                yield from lines
                patience_s, heard = self._allowance.limit_s + _SILENCE_S, time.monotonic()
        running.kill()


def _ending(running: RunningProcess) -> str:
    """Describe the end of the process, for which it is given a moment."""
    ended = running.wait(_LAST_MOMENTS_S)
    if ended is None:
        running.kill()
        return "it did not end, and was killed"
    if ended.lost:
        return "the sandbox lost sight of it"
    if ended.oom_killed:
        return "it used more memory than there is for it"
    words = last_words(ended)[:MAX_LAST_WORDS]
    return f"{how_it_ended(ended)}{f': {words}' if words else ''}"


def _read(line: bytes, expected: set[int]) -> ProblemCheckResult | None:
    """Parse the answer on ``line``; return None if it is invalid or answers no pending task."""
    try:
        tried = from_json(ProblemCheckResult, json.loads(line))
    except (ValueError, RecursionError):
        return None
    fits = tried.status in _POSSIBLE and len(tried.reason) <= MAX_REASON and 0 <= tried.seconds < float("inf")
    return tried if fits and tried.index in expected else None


def staged(
    subjects: Sequence[ProblemCheckSubject], work: Path
) -> tuple[list[ProblemCheckTask], list[ProblemCheckResult]]:
    """Make a folder with files for each subject; return the tasks, and results for files that cannot be read."""
    tasks, lost = [], []
    for index, subject in enumerate(subjects):
        try:
            code = subject.problem.code
            files = {PROBLEM_FILE: code.module(), **code.contents()}
        except OSError as error:
            lost.append(ProblemCheckResult(index, Status.PROBLEM_ERROR, f"cannot be read: {error}"[:MAX_REASON]))
            continue
        make_for_all(work / str(index))
        write_for_all(files, work / str(index))
        tasks.append(ProblemCheckTask(index, _job(subject)))
    return tasks, lost


def _job(subject: ProblemCheckSubject) -> JudgeJob:
    """Make the job of a cell in which the reference is its own candidate."""
    problem, workload = subject.problem, subject.workload
    spec = ContestantSpec(Implementation.EAGER.value, Role.BASELINE, PROBLEM_FILE, "Model")
    return JudgeJob(
        cell_id="checkup",
        session=0,
        device="cpu",
        dtype=subject.dtype,
        # A fixed seed: no contestant has to be kept from it, and findings must be reproducible.
        seed=hashlib.sha256(problem.digest.encode()).hexdigest()[:32],
        workloads=(WorkloadSpec(workload.name, dict(workload.values)),),
        protocol=ProtocolSpec(),
        timeouts=JudgeTimeouts(),
        contestants=(replace(spec, name=CANDIDATE, role=Role.CANDIDATE), spec),
        problem_file=PROBLEM_FILE,
        tolerance=dict(problem.tolerance),
        outliers=problem.outliers,
        mutates_inputs=problem.mutates_inputs,
        contract=problem.contract,
        random=problem.random,
    )


def _shown_path(problem: Problem, file: str) -> str:
    """Return the author's path of the file staged as ``file``, or the staged name if it was generated."""
    if file == PROBLEM_FILE and not problem.adapter:
        return str(problem.path)
    beside = problem.beside.get(file)
    return str(beside) if isinstance(beside, Path) else file
