"""A trial: one reference is imported and run in the sandbox that would run cells."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.problem_checks import ProblemCheckSubject, check_in_sandbox
from kernel_matrix.attempt.scratch import scratch_folder
from kernel_matrix.errors import KernelMatrixError
from kernel_matrix.hosts.doctor.host import Host
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.hosts.survey import survey, why_no_torch
from kernel_matrix.images import ResolvedImage
from kernel_matrix.inside.problem_check.job import ProblemCheckLimits, ProblemCheckResult
from kernel_matrix.model.enums import Status
from kernel_matrix.platforms.check_result import CheckResult, fail, ok
from kernel_matrix.sandboxes import Sandbox, SandboxStatus, open_sandbox
from kernel_matrix.sources import load_source

_SUBJECT = "trial"
_PROBLEM, _WORKLOAD = "vector_add", "smoke"
_LIMITS = ProblemCheckLimits(jobs=1, limit_s=60.0, memory_bytes=4 << 30)
_ADVICE = f"`kernel-matrix problems try {_PROBLEM}` shows it again; look first at what the message names"


def check(host: Host) -> Iterator[CheckResult]:
    """Check that torch can be imported inside, on the CPU, by the user that candidates run as."""
    if not host.trial:
        return
    found = _place(host)
    if found is None:
        return  # another check says what is missing
    sandbox, status, image = found
    where = f"sandbox {sandbox.name}{f' in {image.toolchain}' if image is not None else ''}"
    try:
        result = _run(sandbox, status, image)
    except KernelMatrixError as error:
        yield fail(_SUBJECT, f"{where} cannot run a reference: {error.what}", _ADVICE)
        return
    if result.status is Status.PASSED:
        yield ok(_SUBJECT, f"{where} imports torch and runs a reference ({_PROBLEM})")
    else:
        yield fail(_SUBJECT, f"{where} cannot run a reference: {result.reason}", _ADVICE)


def _place(host: Host) -> tuple[Sandbox, SandboxStatus, ResolvedImage | None] | None:
    """Return the sandbox that cells of the matrix would run in, and an image or environment if it needs one."""
    if host.matrix is not None:
        found = survey(host.matrix, sandbox=host.sandbox, lock_path=host.lock_path)
        if found.sandbox.uses_images:
            return (found.sandbox, found.status, next(iter(found.images.values()))) if found.images else None
    sandbox = open_sandbox("process")
    status = sandbox.status()
    return (sandbox, status, None) if status.available and not why_no_torch() else None


def _run(sandbox: Sandbox, status: SandboxStatus, image: ResolvedImage | None) -> ProblemCheckResult:
    problem = next(one for one in load_source("folder", None).problems if one.id == _PROBLEM)
    workload = next(one for one in problem.workloads if one.name == _WORKLOAD)
    subject = ProblemCheckSubject(problem=problem, workload=workload, dtype=problem.dtypes[0])
    with scratch_folder() as scratch:
        context = RunContext(
            run_id="doctor", sandbox=sandbox, sandbox_status=status, owner=owner_token(), scratch=scratch
        )
        with closing(check_in_sandbox([subject], image, context, _LIMITS)) as results:
            _subject, result = next(results)
    return result
