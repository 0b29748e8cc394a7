"""Read problems and candidates, and check references by running them."""

from __future__ import annotations

import difflib
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Protocol, TypeVar

from kernel_matrix.api.run_cells import new_run_id
from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.problem_checks import ProblemCheckLimits, ProblemCheckSubject, try_problems
from kernel_matrix.attempt.scratch import scratch_folder
from kernel_matrix.errors import InfrastructureError, NothingSelectedError, UsageError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.hosts.survey import AUTO, HostSurvey, check_sandbox, survey
from kernel_matrix.images import ResolvedImage
from kernel_matrix.inside.judge.problem_check_job import ProblemCheckResult
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.model.enums import Dtype, Status
from kernel_matrix.platforms.registry import get_platform
from kernel_matrix.sandboxes import Sandbox, SandboxStatus, open_sandbox
from kernel_matrix.sources import (
    SOURCES,
    Candidate,
    LoadedSource,
    Problem,
    Workload,
    load_candidates,
    load_source,
)

__all__ = [
    "Candidate",
    "CheckedProblem",
    "LoadedSource",
    "Problem",
    "ProblemCheckStarted",
    "ProblemCheckSummary",
    "check_problems",
    "find_one",
    "load_problems",
    "matching",
    "refuse_unreadable",
]

MATRIX_FILE = Path("matrix.toml")
PROBLEM_FOLDER = Path("problems")
_PREFERRED = "smoke"
"""The workload that is checked unless another is named; of a problem without it, its first."""


class Listed(Protocol):
    """A problem or a candidate."""

    @property
    def id(self) -> str:
        """Its id."""
        ...


T = TypeVar("T", bound=Listed)


def load_problems(source: str = "", path: str | Path | None = None) -> LoadedSource:
    """Read problems and their candidates, selected by a matrix or not; nothing of theirs is run.

    Args:
        source: What reads them: ``folder``, ``kernelbench``, ``aten``, …; ``folder`` where only a path is given.
        path: What is read; without a source and a path, all that ``./matrix.toml`` names, or ``./problems``.

    Returns:
        Problems, candidates, and what could not be read.

    Raises:
        UsageError: The source is not known, needs a path, or cannot read the folder.

    Examples:
        >>> import kernel_matrix
        >>> loaded = kernel_matrix.load_problems(path="problems")
        >>> "softmax" in {problem.id for problem in loaded.problems}
        True
    """
    if source and source not in SOURCES:
        what = f"--source {source} is not known; known: {', '.join(SOURCES)}"
        raise UsageError(what, next_step="name one of these")
    if source or path is not None:
        return load_source(source or "folder", Path(path) if path is not None else None)
    return _load_matrix_folders() if MATRIX_FILE.is_file() else load_source("folder", PROBLEM_FOLDER)


def matching(items: Iterable[T], glob: str) -> tuple[T, ...]:
    """Return the items whose id matches ``glob``.

    Raises:
        NothingSelectedError: None does.
    """
    everything = tuple(items)
    found = tuple(item for item in everything if fnmatchcase(item.id, glob))
    if not found:
        raise NothingSelectedError(
            f"none of {len(everything)} ids matches {glob!r}{_hint(glob, everything)}",
            next_step="without a glob, all are listed",
        )
    return found


def find_one(items: Sequence[T], id_: str, kind: str) -> T:
    """Return the item with the id ``id_``.

    Raises:
        UsageError: There is none; the error names the closest.
    """
    for item in items:
        if item.id == id_:
            return item
    what = f"there is no {kind} {id_!r}{_hint(id_, items)}"
    raise UsageError(what, next_step=f"kernel-matrix {kind}s list names all {len(items)}")


def refuse_unreadable(loaded: LoadedSource) -> None:
    """Check that every file could be read.

    Raises:
        UsageError: Some could not; the error names each.
    """
    if loaded.unreadable:
        count = len(loaded.unreadable)
        lines = [f"{count} {'file' if count == 1 else 'files'} cannot be used", *map(str, loaded.unreadable)]
        raise UsageError("\n  ".join(lines), next_step="docs/problems.md says what such files hold")


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
    """What came of all problems."""

    sandbox: str
    image: str | None
    """Id of the image; ``None`` for a sandbox without images."""
    left_out: dict[str, str]
    """Problem id → why it was not checked."""
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
            raise UsageError("\n  ".join(lines), next_step="docs/problems.md says what is asked of problems")


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
    """Run each reference on the CPU, confined, through what a judge asks of it.

    Args:
        problems: From :func:`load_problems`.
        workload: Which shapes; ``smoke`` where a problem has it, else its first.
        dtype: By default each problem's first.
        jobs: How many at the same time; 0: as many as there are cores.
        limit_s: When a problem is given up.
        memory_gib: What each process of a problem may take.
        sandbox: ``auto``, ``docker`` or ``process``.
        toolchain: In whose image; by default the matrix's for the CPU, else the first that is here.
        lock: The images lock; the matrix's own by default.
        listener: Called first with the number of problems, then with each that was checked.

    Raises:
        UsageError: An option makes no sense.
        NothingSelectedError: No problem has the workload and dtype, or no image is here.
        InfrastructureError: The sandbox cannot be used.
    """
    tell = listener or _ignore
    subjects, left_out = _subjects(problems, workload, dtype)
    place = _place(sandbox, toolchain, Path(lock) if lock else None)
    limits = ProblemCheckLimits(
        jobs=min(jobs or len(os.sched_getaffinity(0)), len(subjects)),
        limit_s=limit_s,
        memory_bytes=int(memory_gib * (1 << 30)),
    )
    summary = ProblemCheckSummary(
        sandbox=place.sandbox.name, image=place.image.id if place.image is not None else None, left_out=left_out
    )
    started = time.monotonic()
    tell(ProblemCheckStarted(count=len(subjects), where=str(place)))
    with scratch_folder() as scratch:
        context = RunContext(
            run_id=new_run_id(),
            sandbox=place.sandbox,
            sandbox_status=place.status,
            owner=owner_token(),
            scratch=scratch,
        )
        with closing(try_problems(subjects, place.image, context, limits)) as answers:
            for subject, result in answers:
                one = CheckedProblem(subject, result)
                summary.checked.append(one)
                tell(one)
    summary.checked.sort(key=lambda one: one.subject.problem.id)
    summary.seconds = time.monotonic() - started
    return summary


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """What problems are checked with on this host."""

    sandbox: Sandbox
    status: SandboxStatus
    image: ResolvedImage | None = None

    def __str__(self) -> str:
        where = f" in {self.image.reference}" if self.image is not None else ""
        return f"sandbox {self.sandbox.name} {self.status.version}{where}"


def _subjects(
    problems: Sequence[Problem], workload: str, dtype_name: str
) -> tuple[list[ProblemCheckSubject], dict[str, str]]:
    """Return what to check and, by id, why not the rest."""
    dtype = _dtype(dtype_name)
    subjects, left_out = [], {}
    for problem in problems:
        chosen = _workload(problem, workload)
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


def _dtype(name: str) -> Dtype | None:
    try:
        return Dtype(name) if name else None
    except ValueError:
        raise UsageError(f"--dtype {name}: allowed are {', '.join(d.value for d in Dtype)}") from None


def _workload(problem: Problem, name: str) -> Workload | None:
    named = {workload.name: workload for workload in problem.workloads}
    return named.get(name) if name else named.get(_PREFERRED, problem.workloads[0])


def _place(sandbox: str, toolchain: str, lock: Path | None) -> _Place:
    """Return the sandbox and the image it starts: one of ``./matrix.toml``; without a matrix, local processes."""
    check_sandbox(sandbox)
    if MATRIX_FILE.is_file():
        matrix = load_matrix(MATRIX_FILE)
        host = survey(matrix, sandbox=sandbox, lock_path=lock)
        image = _image(matrix, host, toolchain) if host.sandbox.uses_images else None
        place = _Place(sandbox=host.sandbox, status=host.status, image=image)
    else:
        opened = open_sandbox("process" if sandbox == AUTO else sandbox)
        if opened.uses_images or toolchain:
            what = f"there is no {MATRIX_FILE} here, whose toolchain's image could be started"
            next_step = "go where one is, or try without --sandbox and --toolchain: as local processes"
            raise UsageError(what, next_step=next_step)
        place = _Place(sandbox=opened, status=opened.status())
    if not place.status.available:
        raise InfrastructureError(f"sandbox {place.sandbox.name} cannot be used: {place.status.reason}")
    return place


def _image(matrix: Matrix, found: HostSurvey, wanted: str) -> ResolvedImage:
    """The image of the toolchain of that name; of the one for the CPU, or else the first that is here."""
    toolchains = [t for t in matrix.toolchains if wanted in ("", t.name)]
    if not toolchains:
        known = ", ".join(t.name for t in matrix.toolchains)
        raise UsageError(f"{matrix.path} has no toolchain {wanted!r}", next_step=f"it has: {known}")
    here = [t for t in toolchains if t.name in found.images]
    if not here:
        why = "".join(f"\n  {t.name}: {found.facts.images.get(t.name, 'not here')}" for t in toolchains)
        raise NothingSelectedError(
            f"no image to try problems in is here:{why}", next_step="--sandbox process needs none"
        )
    return found.images[min(here, key=lambda t: get_platform(t.platform).IS_ACCELERATOR).name]


def _load_matrix_folders() -> LoadedSource:
    matrix = load_matrix(MATRIX_FILE)
    beside = [load_source(*place) for place in dict.fromkeys((p.source, p.path) for p in matrix.problems)]
    problems = tuple(problem for loaded in beside for problem in loaded.problems)
    known = {problem.id: problem for problem in problems}
    places = dict.fromkeys((c.source, c.path) for c in matrix.candidates if c.path is not None)
    apart = [load_candidates(*place, known) for place in places]
    return LoadedSource(
        problems=problems,
        candidates=tuple(c for part in (*(b.candidates for b in beside), *(a for a, _ in apart)) for c in part),
        unreadable=tuple(u for part in (*(b.unreadable for b in beside), *(a for _, a in apart)) for u in part),
    )


def _hint(word: str, items: Sequence[Listed]) -> str:
    close = difflib.get_close_matches(word, [item.id for item in items], n=1)
    return f"; did you mean {close[0]!r}?" if close else ""


def _ignore(_: ProblemCheckStarted | CheckedProblem) -> None:
    """Listen to nothing."""
