"""Checking problems without a candidate, in processes without a GPU.

See :mod:`kernel_matrix.inside.problem_check.pool` for the check itself. A problem is third-party code, so it is
confined like a baseline and its results are checked for form. If a problem ends the process that checks it, the others
are checked again.
"""

from __future__ import annotations

import hashlib
import json
import socket
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.contestants import BASELINE_UID, CANDIDATE, PROBLEM_FILE
from kernel_matrix.attempt.folders import accept, folders_for_all, make_for_all, write_for_all
from kernel_matrix.attempt.outcome import how_it_ended
from kernel_matrix.attempt.probe_process import last_words
from kernel_matrix.errors import SandboxError
from kernel_matrix.images import ResolvedImage
from kernel_matrix.inside.problem_check.job import (
    MAX_REASON,
    ProblemCheckJob,
    ProblemCheckLimits,
    ProblemCheckResult,
)
from kernel_matrix.inside.problem_check.pool import JOB_NAME, MAX_LINE, READY, SOCKET_NAME
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
from kernel_matrix.sandboxes.open_socket import listening_for_all
from kernel_matrix.sources import Problem, Workload

_WORK, _CHANNEL = "/problems", "/channel"  # folders as seen inside
_NAME = "problem_check"  # of the process, where a session has a contestant and a cell

_START_S = 180.0  # importing torch takes a minute from a cold disk
_SILENCE_S = 30.0  # a result may arrive this long after the problem's own limit
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


def check_in_sandbox(
    subjects: Sequence[ProblemCheckSubject],
    image: ResolvedImage | None,
    context: RunContext,
    limits: ProblemCheckLimits,
) -> Generator[tuple[ProblemCheckSubject, ProblemCheckResult], None, None]:
    """Check each of ``subjects`` once, and yield the results in the order in which the checks end.

    ``file`` of a result is the path of the author's own file, or a name if there is no such file. The image must have
    torch; it is None for a sandbox without images.

    Raises:
        SandboxError: If nothing could be started, or torch could not be imported.
    """
    of_cell = {str(index): subject for index, subject in enumerate(subjects)}
    with folders_for_all(context.scratch, "check-", "work", "channel") as (work, channel):
        problems = []
        for cell_id, subject in of_cell.items():
            try:
                problems.append(stage_problem(cell_id, subject, work))
            except OSError as error:  # noqa: PERF203  # a file is read in each turn anyway
                reason = f"cannot be read: {error}"[:MAX_REASON]
                yield subject, ProblemCheckResult(cell_id, Status.PROBLEM_ERROR, reason)
        for result in _CheckRunner(work, channel, image, context, limits).run(problems):
            subject = of_cell[result.cell_id]
            yield subject, replace(result, file=_authors_file(subject.problem, result.file))


def stage_problem(cell_id: str, subject: ProblemCheckSubject, work: Path) -> JudgeJob:
    """Write the files of a problem into a folder below ``work``, and return the job of its check.

    Raises:
        OSError: If a file cannot be read.
    """
    code = subject.problem.code
    files = {PROBLEM_FILE: code.module(), **code.contents()}
    make_for_all(work / cell_id)
    write_for_all(files, work / cell_id)
    return _make_job(cell_id, subject)


class _CheckRunner:
    """Checks problems in a process, and starts a new process whenever one ends early."""

    def __init__(
        self, work: Path, channel: Path, image: ResolvedImage | None, context: RunContext, limits: ProblemCheckLimits
    ) -> None:
        self._work = work
        self._channel = channel
        self._image = image
        self._context = context
        self._limits = limits
        self._started = 0
        self._last_end = ""

    def run(self, problems: Sequence[JudgeJob]) -> Iterator[ProblemCheckResult]:
        """Yield each problem's result. If the process ends early, the problems it was at are run alone."""
        left = {problem.cell_id: problem for problem in problems}
        while left:
            for result in self._run_process(list(left.values()), self._limits):
                del left[result.cell_id]
                yield result
            # Checks begin in order, so the problem that ended the process is among the first without a result.
            for cell_id in list(left)[: self._limits.jobs]:
                results = list(self._run_process([left.pop(cell_id)], replace(self._limits, jobs=1)))
                reason = f"it ended the process that checked it: {self._last_end}"
                yield from results or [ProblemCheckResult(cell_id, Status.PROBLEM_ERROR, reason)]

    def _run_process(self, problems: Sequence[JudgeJob], limits: ProblemCheckLimits) -> Iterator[ProblemCheckResult]:
        """Yield the results of one process, as far as it gets.

        Raises:
            SandboxError: If the process does not get as far as the first problem.
        """
        (self._work / JOB_NAME).write_text(dumps(ProblemCheckJob(tuple(problems), limits)), encoding="utf-8")
        pending = {problem.cell_id for problem in problems}
        path = self._channel / SOCKET_NAME
        with listening_for_all(path) as listener, self._context.sandbox.launch(self._make_spec()) as running:
            deadline = time.monotonic() + _START_S
            connection = accept(listener, running, lambda: time.monotonic() > deadline)
            lines = self._read_lines(connection) if connection is not None else iter(())
            if next(lines, b"") != READY:
                what = f"no problem could be checked: {_describe_end(running)}"
                raise SandboxError(what, next_step="kernel-matrix doctor looks for the cause")
            while pending:
                line = next(lines, b"")
                result = _parse_result(line, pending)
                if result is None:
                    if line:
                        running.kill()
                    break
                pending.discard(result.cell_id)
                yield result
            self._last_end = _describe_end(running)

    def _make_spec(self) -> RoleSpec:
        """Describe the process: confined like a baseline, no GPU, and no writable folder is kept."""
        self._started += 1
        context, limits = self._context, self._limits
        work, channel = Mount(source=self._work, target=_WORK), Mount(source=self._channel, target=_CHANNEL)
        return RoleSpec(
            role=Role.BASELINE,
            labels=ProcessLabels(
                run_id=context.run_id, cell_id=_NAME, session=self._started, gpu_uuid="cpu", owner=context.owner
            ),
            image=self._image.id if self._image is not None else None,
            module="kernel_matrix.inside.problem_check.pool",
            args=("--work", work.target, "--channel", channel.target),
            mounts=(work, channel),
            # One core each: problems run side by side, and a process with threads must not be forked.
            env={"OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"},
            limits=ResourceLimits(
                memory_bytes=_OWN_BYTES + limits.jobs * limits.memory_bytes,
                pids=_OWN_PIDS + limits.jobs * _PIDS_EACH,
            ),
            lends_memory=True,
            has_ranks=True,  # some problems may
            uid=BASELINE_UID,
            contestant=_NAME,
        )

    def _read_lines(self, connection: socket.socket) -> Iterator[bytes]:
        """Yield the process's lines until it ends, is silent for too long, or writes one that is too long."""
        with connection, connection.makefile("rb") as stream:
            connection.settimeout(_START_S)
            with suppress(OSError):  # also a timeout
                while line := stream.readline(MAX_LINE + 1):
                    yield line
                    connection.settimeout(self._limits.limit_s + _SILENCE_S)


def _describe_end(running: RunningProcess) -> str:
    """Describe the end of the process, for which it is given a moment."""
    ended = running.wait(_LAST_MOMENTS_S)
    if ended is None:
        running.kill()
        return "it did not end, and was killed"
    if ended.lost:
        return "the sandbox lost sight of it"
    if ended.oom_killed:
        return "it used more memory than there is for it"
    words = last_words(ended)
    return f"{how_it_ended(ended)}{f': {words}' if words else ''}"


def _parse_result(line: bytes, pending: set[str]) -> ProblemCheckResult | None:
    """Return the result on ``line``; None if it is invalid or of no pending problem."""
    try:
        result = from_json(ProblemCheckResult, json.loads(line))
    except (ValueError, RecursionError):
        return None
    fits = result.status in _POSSIBLE and len(result.reason) <= MAX_REASON and 0 <= result.seconds < float("inf")
    return result if fits and result.cell_id in pending else None


def _make_job(cell_id: str, subject: ProblemCheckSubject) -> JudgeJob:
    """Make the job of a cell in which the reference is its own candidate."""
    problem, workload = subject.problem, subject.workload
    spec = ContestantSpec(Implementation.EAGER.value, Role.BASELINE, PROBLEM_FILE, "Model")
    return JudgeJob(
        cell_id=cell_id,
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
        ranks=problem.ranks,
    )


def _authors_file(problem: Problem, file: str) -> str:
    """Return the author's path of the file staged as ``file``, or the staged name if it was generated."""
    if file == PROBLEM_FILE and not problem.adapter:
        return str(problem.path)
    extra = problem.extra_files.get(file)
    return str(extra) if isinstance(extra, Path) else file
