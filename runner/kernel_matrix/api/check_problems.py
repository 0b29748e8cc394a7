"""Check references by running them."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path

from kernel_matrix.api.problems import MATRIX_FILE, LoadedSource, Problem, Workload
from kernel_matrix.api.run_cells import new_run_id
from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.problem_checks import ProblemCheckSubject, check_in_sandbox
from kernel_matrix.attempt.scratch import scratch_folder
from kernel_matrix.errors import InfrastructureError, NothingSelectedError, UsageError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.hosts.survey import AUTO, HostSurvey, check_sandbox, survey, why_no_torch
from kernel_matrix.images import ResolvedImage
from kernel_matrix.inside.problem_check.job import ProblemCheckLimits, ProblemCheckResult
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.model.enums import Dtype, Status
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.sandboxes import Sandbox, SandboxStatus, open_sandbox

_PREFERRED_WORKLOAD = "smoke"


@dataclass(frozen=True, slots=True)
class CheckedProblem:
    """A problem that was checked."""

    subject: ProblemCheckSubject
    result: ProblemCheckResult

    def __str__(self) -> str:
        """Return ``softmax: problem_error: problems/softmax/reference.py:12: …``."""
        place = f"{self.result.file}:{self.result.line}: " if self.result.line is not None else ""
        return f"{self.subject.problem.id}: {self.result.status.value}: {place}{self.result.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCheckStarted:
    """The first thing a listener gets of a check."""

    count: int
    where: str
    """The sandbox, its version and the image."""


@dataclass(slots=True, kw_only=True)
class ProblemCheckSummary:
    """The results of all problems."""

    sandbox: str
    image: str | None
    """Id of the image; ``None`` for a sandbox without images."""
    left_out: dict[str, str]
    """Problem id → reason why it was not checked."""
    checked: list[CheckedProblem] = field(default_factory=list)
    """Ordered by problem id."""
    seconds: float = 0.0

    @property
    def failed(self) -> list[CheckedProblem]:
        """Those that this machine failed to check."""
        return [one for one in self.checked if one.result.status is Status.INFRA_ERROR]

    @property
    def refused(self) -> list[CheckedProblem]:
        """Those that cannot be used, or were not shown to be usable."""
        return [one for one in self.checked if one.result.status is not Status.PASSED]

    def require_usable(self, loaded: LoadedSource) -> None:
        """Check that every problem can be used and every file was read.

        Raises:
            InfrastructureError: This machine failed to check some.
            UsageError: Some cannot be used.
        """
        if self.failed:
            lines = ["not every problem could be tried", *map(str, self.failed)]
            raise InfrastructureError("\n  ".join(lines), next_step="kernel-matrix doctor looks for the cause")
        counted = {"problem": len(self.refused), "file": len(loaded.unreadable)}
        parts = [f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counted.items() if number]
        if parts:
            lines = [f"{' and '.join(parts)} cannot be used", *map(str, loaded.unreadable)]
            raise UsageError("\n  ".join(lines), next_step="kernel-matrix docs problems says what is asked of problems")


ProblemCheckListener = Callable[[ProblemCheckStarted | CheckedProblem], None]


def check_problems(
    problems: Sequence[Problem],
    *,
    workload: str = "",
    dtype: str = "",
    jobs: int = 0,
    limit_s: float = 20.0,
    memory_gib: float = 8.0,
    sandbox: str = AUTO,
    toolchain: str = "",
    lock: str | Path | None = None,
    listener: ProblemCheckListener | None = None,
) -> ProblemCheckSummary:
    """Run each reference on the CPU, confined, through the controls of a judge.

    Args:
        problems: From :func:`load_problems`.
        workload: Name of the shapes; ``smoke`` where a problem has it, else its first.
        dtype: By default each problem's first.
        jobs: Problems at the same time; 0: as many as there are cores.
        limit_s: Seconds until a problem is given up.
        memory_gib: Memory that each process of a problem may take.
        sandbox: ``auto``, ``docker``, ``unpacked`` or ``process``.
        toolchain: The one whose image is used; by default the matrix's for the CPU, else the first that is here.
        lock: The images lock; the matrix's own by default.
        listener: Called first with the number of problems, then with each that was checked.

    Raises:
        UsageError: An option makes no sense.
        NothingSelectedError: No problem has the workload and dtype, or no image is here.
        InfrastructureError: The sandbox cannot be used.
    """
    tell = listener or (lambda _: None)
    subjects, left_out = _select_subjects(problems, workload, dtype)
    place = _find_place(sandbox, toolchain, Path(lock) if lock else None)
    jobs = min(jobs or len(os.sched_getaffinity(0)), len(subjects))
    limits = ProblemCheckLimits(jobs=jobs, limit_s=limit_s, memory_bytes=int(memory_gib * (1 << 30)))
    image = place.image.id if place.image is not None else None
    summary = ProblemCheckSummary(sandbox=place.sandbox.name, image=image, left_out=left_out)
    started = time.monotonic()
    tell(ProblemCheckStarted(count=len(subjects), where=str(place)))
    with (
        scratch_folder() as scratch,
        closing(check_in_sandbox(subjects, place.image, place.context(scratch), limits)) as results,
    ):
        for one in (CheckedProblem(*result) for result in results):
            summary.checked.append(one)
            tell(one)
    summary.checked.sort(key=lambda one: one.subject.problem.id)
    summary.seconds = time.monotonic() - started
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The sandbox and the image that problems are checked in."""

    sandbox: Sandbox
    status: SandboxStatus
    image: ResolvedImage | None = None

    def __str__(self) -> str:
        where = f" in {self.image.reference}" if self.image is not None else ""
        return f"sandbox {self.sandbox.name} {self.status.version}{where}"

    def context(self, scratch: Path) -> RunContext:
        """Return the context of a run here."""
        return RunContext(
            run_id=new_run_id(),
            sandbox=self.sandbox,
            sandbox_status=self.status,
            owner=owner_token(),
            scratch=scratch,
        )


def _select_subjects(
    problems: Sequence[Problem], workload: str, dtype_name: str
) -> tuple[list[ProblemCheckSubject], dict[str, str]]:
    """Return the problems to check and, by id, why not the rest."""
    dtype = _parse_dtype(dtype_name)
    subjects, left_out = [], {}
    for problem in problems:
        chosen = _choose_workload(problem, workload)
        if chosen is None:
            left_out[problem.id] = f"has no workload {workload!r}"
        elif dtype is not None and dtype not in problem.dtypes:
            left_out[problem.id] = f"does not offer {dtype.value}"
        else:
            subjects.append(ProblemCheckSubject(problem=problem, workload=chosen, dtype=dtype or problem.dtypes[0]))
    if not subjects:
        why = ", ".join(f"{count} {reason}" for reason, count in Counter(left_out.values()).items())
        raise NothingSelectedError(f"nothing to try: {why or 'there is no problem'}", next_step="problems show ID")
    return subjects, left_out


def _parse_dtype(name: str) -> Dtype | None:
    try:
        return Dtype(name) if name else None
    except ValueError:
        raise UsageError(f"--dtype {name}: allowed are {', '.join(d.value for d in Dtype)}") from None


def _choose_workload(problem: Problem, name: str) -> Workload | None:
    offered = problem.workloads if name else problem.shown_workloads
    named = {workload.name: workload for workload in offered}
    return named.get(name) if name else named.get(_PREFERRED_WORKLOAD, offered[0])


def _find_place(sandbox: str, toolchain: str, lock: Path | None) -> _Place:
    """Return a sandbox with an image of ``./matrix.toml``; without a matrix, local processes."""
    check_sandbox(sandbox)
    if MATRIX_FILE.is_file():
        matrix = load_matrix(MATRIX_FILE)
        host = survey(matrix, sandbox=sandbox, lock_path=lock)
        image = _find_image(matrix, host, toolchain) if host.sandbox.uses_images else None
        place = _Place(sandbox=host.sandbox, status=host.status, image=image)
    else:
        opened = open_sandbox("process" if sandbox == AUTO else sandbox)
        if opened.uses_images or toolchain:
            what = f"there is no {MATRIX_FILE} here, whose toolchain's image could be started"
            next_step = "go where one is, or try without --sandbox and --toolchain: as local processes"
            raise UsageError(what, next_step=next_step)
        place = _Place(sandbox=opened, status=opened.status())
    reason = place.status.reason or ("" if place.sandbox.uses_images else why_no_torch())
    if reason:
        raise InfrastructureError(f"sandbox {place.sandbox.name} cannot be used: {reason}")
    return place


def _find_image(matrix: Matrix, host: HostSurvey, wanted: str) -> ResolvedImage:
    """Return the image of the toolchain of that name; without one, that for the CPU, or else the first that is here."""
    toolchains = [t for t in matrix.toolchains if wanted in ("", t.name)]
    if not toolchains:
        known = ", ".join(t.name for t in matrix.toolchains)
        raise UsageError(f"{matrix.path} has no toolchain {wanted!r}", next_step=f"it has: {known}")
    here = [t for t in toolchains if t.name in host.images]
    if not here:
        why = "".join(f"\n  {t.name}: {host.inventory.images.get(t.name, 'not here')}" for t in toolchains)
        raise NothingSelectedError(
            f"no image to try problems in is here:{why}", next_step="--sandbox process needs none"
        )
    return host.images[min(here, key=lambda t: get_platform(t.platform).IS_ACCELERATOR).name]
