"""What ``kernel-matrix problems try`` does: every problem through its own controls, a few at a time, and a summary."""

from __future__ import annotations

import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from kernel_matrix.attempt.assignment import RunContext
from kernel_matrix.attempt.problem_checks import ProblemCheckLimits, ProblemCheckSubject, try_problems
from kernel_matrix.attempt.scratch import scratch_folder
from kernel_matrix.cli.collection import MATRIX_FILE, plain, unreadable_documents
from kernel_matrix.cli.output import console, print_json
from kernel_matrix.cli.run_request import new_run_id
from kernel_matrix.errors import InfrastructureError, NothingSelectedError, UsageError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.hosts.survey import AUTO, HostSurvey, check_engine, survey
from kernel_matrix.images import ResolvedImage
from kernel_matrix.inside.judge.problem_check_pool import ProblemCheckResult
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.model.enums import Dtype, Status, fault_of
from kernel_matrix.sandboxes import Sandbox, SandboxStatus, open_engine
from kernel_matrix.sources import LoadedSource, Problem, Workload

_PREFERRED = "smoke"
"""The workload that is tried unless another is named; of a problem without it, its first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCheckOptions:
    """The options of ``problems try``."""

    workload: str
    """Empty: :data:`_PREFERRED`."""
    dtype: str
    """Empty: each problem's first."""
    jobs: int
    """0: as many as there are cores."""
    limit_s: float
    memory_gib: float
    engine: str
    toolchain: str
    """Empty: the one for the CPU, else the first that is here."""
    lock: Path | None
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemCheckContext:
    """What problems are tried with on this host."""

    engine: Sandbox
    status: SandboxStatus
    image: ResolvedImage | None
    """Null for an engine without images."""

    @property
    def words(self) -> str:
        """For people."""
        where = f" in {self.image.reference}" if self.image is not None else ""
        return f"engine {self.engine.name} {self.status.version}{where}"


@dataclass(slots=True)
class ProblemCheckSummary:
    """What came of all of them so far."""

    ended: list[tuple[ProblemCheckSubject, ProblemCheckResult]] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def by_id(self) -> list[tuple[ProblemCheckSubject, ProblemCheckResult]]:
        """All, in the order of their ids."""
        return sorted(self.ended, key=lambda one: one[0].problem.id)

    @property
    def failed(self) -> list[tuple[ProblemCheckSubject, ProblemCheckResult]]:
        """Those that this machine, or this program, failed to try."""
        return [(subject, tried) for subject, tried in self.by_id if tried.status is Status.INFRA_ERROR]

    @property
    def refused(self) -> int:
        """How many cannot be used."""
        return sum(tried.status is not Status.PASSED for _, tried in self.ended)


def try_collection(loaded: LoadedSource, problems: Sequence[Problem], request: ProblemCheckOptions) -> None:
    """Try ``problems``, tell of each that cannot be used, and sum up.

    :param loaded: where they are from; what could not be read of it is told too.
    :raises UsageError: when one cannot be used, or the request makes no sense.
    :raises NothingSelectedError: when none has the workload or dtype asked for, or no image is here.
    :raises InfrastructureError: when it was this machine that failed.
    """
    subjects, left_out = _chosen(problems, request)
    workshop = _workshop(request)
    allowance = ProblemCheckLimits(
        jobs=min(request.jobs or len(os.sched_getaffinity(0)), len(subjects)),
        limit_s=request.limit_s,
        memory_bytes=int(request.memory_gib * (1 << 30)),
    )
    outcome = _tried(subjects, workshop, allowance, _teller(as_json=request.json))
    if request.json:
        print_json(_document(outcome, workshop, loaded, left_out))
    else:
        _print_summary(outcome, left_out)
    _complain(outcome, loaded)


# ---- what is tried, and with what


def _chosen(
    problems: Sequence[Problem], request: ProblemCheckOptions
) -> tuple[list[ProblemCheckSubject], dict[str, str]]:
    """What to try; and, by id, why not the rest."""
    dtype = _dtype(request.dtype)
    subjects, left_out = [], {}
    for problem in problems:
        workload = _workload(problem, request.workload)
        if workload is None:
            left_out[problem.id] = f"has no workload {request.workload!r}"
        elif dtype is not None and dtype not in problem.dtypes:
            left_out[problem.id] = f"does not offer {dtype.value}"
        else:
            subjects.append(ProblemCheckSubject(problem=problem, workload=workload, dtype=dtype or problem.dtypes[0]))
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


def _workshop(request: ProblemCheckOptions) -> ProblemCheckContext:
    """The engine, and the image it starts: one of ``./matrix.toml``; without a matrix, local processes."""
    check_engine(request.engine)
    if MATRIX_FILE.is_file():
        matrix = load_matrix(MATRIX_FILE)
        found = survey(matrix, engine=request.engine, lock_path=request.lock)
        image = _image(matrix, found, request.toolchain) if found.engine.uses_images else None
        return _usable(ProblemCheckContext(engine=found.engine, status=found.status, image=image))
    engine = open_engine("process" if request.engine == AUTO else request.engine)
    if engine.uses_images or request.toolchain:
        what = f"there is no {MATRIX_FILE} here, whose toolchain's image could be started"
        raise UsageError(what, next_step="go where one is, or try without --engine and --toolchain: as local processes")
    return _usable(ProblemCheckContext(engine=engine, status=engine.status(), image=None))


def _usable(workshop: ProblemCheckContext) -> ProblemCheckContext:
    if not workshop.status.available:
        raise InfrastructureError(f"engine {workshop.engine.name} cannot be used: {workshop.status.reason}")
    return workshop


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
            f"no image to try problems in is here:{why}", next_step="--engine process needs none"
        )
    return found.images[min(here, key=lambda t: t.cuda is not None).name]


# ---- trying, and telling


class ProblemCheckView(Protocol):
    """Tells of problems while they are tried."""

    def begin(self, count: int, words: str) -> None:
        """So many, with that."""
        ...

    def tell(self, subject: ProblemCheckSubject, tried: ProblemCheckResult) -> None:
        """One has ended."""
        ...

    def say(self, text: str) -> None:
        """Anything else."""
        ...

    def watching(self) -> Any:
        """A context to be in meanwhile."""
        ...


def _tried(
    subjects: Sequence[ProblemCheckSubject],
    workshop: ProblemCheckContext,
    allowance: ProblemCheckLimits,
    teller: ProblemCheckView,
) -> ProblemCheckSummary:
    outcome, started = ProblemCheckSummary(), time.monotonic()
    try:
        teller.begin(len(subjects), workshop.words)
        with scratch_folder() as scratch, teller.watching():
            bench = RunContext(
                run_id=new_run_id(),
                engine=workshop.engine,
                engine_status=workshop.status,
                owner=owner_token(),
                scratch=scratch,
            )
            with closing(try_problems(subjects, workshop.image, bench, allowance)) as answers:
                for subject, tried in answers:
                    outcome.ended.append((subject, tried))
                    teller.tell(subject, tried)
    except BaseException:
        teller.say(f"stopped: {len(subjects) - len(outcome.ended)} of {len(subjects)} problems were not tried")
        raise
    outcome.seconds = time.monotonic() - started
    return outcome


def _teller(*, as_json: bool) -> ProblemCheckView:
    if as_json:
        return _Silence()
    return _Bar() if sys.stdout.isatty() else _Lines()


class _Silence:
    """Says nothing: one document follows."""

    def begin(self, count: int, words: str) -> None:
        """Nothing."""

    def tell(self, subject: ProblemCheckSubject, tried: ProblemCheckResult) -> None:
        """Nothing."""

    def say(self, text: str) -> None:
        """To standard error."""
        sys.stderr.write(f"{text}\n")

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Nothing."""
        yield


class _Lines:
    """A line for each problem that cannot be used, and for nothing else."""

    def begin(self, count: int, words: str) -> None:
        """The first line."""
        self.say(f"{count} problems to try; {words}")

    def tell(self, subject: ProblemCheckSubject, tried: ProblemCheckResult) -> None:
        """A line, if there is anything to say."""
        if tried.status is not Status.PASSED:
            self.say(_line(subject, tried))

    def say(self, text: str) -> None:
        """A line."""
        sys.stdout.write(f"{plain(text)}\n")
        sys.stdout.flush()

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Nothing needs keeping."""
        yield


class _Bar(_Lines):
    """A progress bar, and those lines above it."""

    def __init__(self) -> None:
        columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
        self._progress = Progress(*columns, console=console(), transient=True)
        self._bar = self._progress.add_task("problems", total=None)

    def begin(self, count: int, words: str) -> None:
        """The first line."""
        super().begin(count, words)
        self._progress.update(self._bar, total=count)

    def tell(self, subject: ProblemCheckSubject, tried: ProblemCheckResult) -> None:
        """Move the bar."""
        super().tell(subject, tried)
        self._progress.advance(self._bar)

    def say(self, text: str) -> None:
        """A line above the bar."""
        self._progress.console.print(plain(text))

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Show the bar."""
        with self._progress:
            yield


def _line(subject: ProblemCheckSubject, tried: ProblemCheckResult) -> str:
    """``softmax: problem_error: problems/softmax/reference.py:12: …``."""
    place = f"{tried.file}:{tried.line}: " if tried.line is not None else ""
    return f"{subject.problem.id}: {tried.status.value}: {place}{tried.reason}"


def _document(
    outcome: ProblemCheckSummary, workshop: ProblemCheckContext, loaded: LoadedSource, left_out: dict[str, str]
) -> dict[str, Any]:
    return {
        "problems": [_of_one(*one) for one in outcome.by_id],
        "counts": dict(Counter(tried.status.value for _, tried in outcome.ended)),
        "left_out": left_out,
        "unreadable": unreadable_documents(loaded),
        "engine": workshop.engine.name,
        "image": workshop.image.id if workshop.image is not None else None,
        "seconds": round(outcome.seconds, 3),
    }


def _of_one(subject: ProblemCheckSubject, tried: ProblemCheckResult) -> dict[str, Any]:
    return {
        "id": subject.problem.id,
        "workload": subject.workload.name,
        "dtype": subject.dtype.value,
        "status": tried.status.value,
        "fault": fault_of(tried.status).value,
        "reason": tried.reason,
        "path": tried.file or None,
        "line": tried.line,
        "labels": list(tried.labels),
        "seconds": tried.seconds,
    }


def _print_summary(outcome: ProblemCheckSummary, left_out: dict[str, str]) -> None:
    screen = console()
    table = Table("status", "problems", box=None)
    for status, number in Counter(tried.status for _, tried in outcome.ended).most_common():
        table.add_row(status.value, str(number))
    screen.print(table)
    labelled: dict[str, list[str]] = {}
    for subject, tried in outcome.by_id:
        for label in tried.labels:
            labelled.setdefault(label, []).append(subject.problem.id)
    for label, ids in sorted(labelled.items()):
        screen.print(plain(f"labelled {label}: {', '.join(ids)}"))
    for reason, number in Counter(left_out.values()).items():
        screen.print(plain(f"not tried: {number}, each of which {reason}"))
    screen.print(f"{len(outcome.ended)} problems tried in {outcome.seconds:.1f} s")


def _complain(outcome: ProblemCheckSummary, loaded: LoadedSource) -> None:
    """End with the exit code that belongs to what was found.

    :raises InfrastructureError: when one could not be judged for a fault of this machine.
    :raises UsageError: when one cannot be used.
    """
    if outcome.failed:
        lines = ["not every problem could be tried", *(_line(*one) for one in outcome.failed)]
        raise InfrastructureError("\n  ".join(lines), next_step="kernel-matrix doctor looks for the cause")
    if not outcome.refused and not loaded.unreadable:
        return
    # What came of each problem was told when it ended, or is in the document.
    lines = [_what_is_wrong(outcome.refused, len(loaded.unreadable)), *map(str, loaded.unreadable)]
    raise UsageError("\n  ".join(lines), next_step="docs/problems.md says what is asked of problems")


def _what_is_wrong(refused: int, unreadable: int) -> str:
    """``2 problems and 1 file cannot be used``."""
    counted = {"problem": refused, "file": unreadable}
    parts = [f"{number} {noun}{'' if number == 1 else 's'}" for noun, number in counted.items() if number]
    return f"{' and '.join(parts)} cannot be used"
