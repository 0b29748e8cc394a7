"""What ``kernel-matrix run`` does, and how it tells of it."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

from kernel_matrix import __version__
from kernel_matrix.attempt.attempt_log import utc_now
from kernel_matrix.attempt.compileonly import absent_gpu
from kernel_matrix.attempt.scratch import sweep_scratch
from kernel_matrix.cli.output import print_json, print_json_line
from kernel_matrix.cli.progress import EventLines, LiveView, PlainLines, RunView
from kernel_matrix.cli.run_conditions import RunConditions
from kernel_matrix.errors import (
    GpuBusyError,
    ImageError,
    InfrastructureError,
    NothingSelectedError,
    StoreError,
    UsageError,
)
from kernel_matrix.executors.local import EventKind, Rerun, Run, RunPolicy, cells_to_run
from kernel_matrix.hosts.identity import host_identity
from kernel_matrix.hosts.survey import AUTO, HostSurvey, survey
from kernel_matrix.lease.repair import NOT_REPAIRED, sweep_gpus
from kernel_matrix.matrix import Matrix
from kernel_matrix.matrix.load import load_matrix
from kernel_matrix.model.enums import Fault, Status, fault_of
from kernel_matrix.plan import Cell, devices_matching, load_selection, make_plan, parse_filter, parse_shard, shard
from kernel_matrix.platforms import Gpu
from kernel_matrix.results.run_info import RunHost, RunInfo
from kernel_matrix.results.store import RecordStore


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanScope:
    """Which cells of a matrix are worked on, and with what: all that surveying it asks for."""

    engine: str
    lock: Path | None
    filters: tuple[str, ...]
    shard: str | None = None
    allow_unpinned: bool
    build: bool
    compile_only: bool = False
    """Build for every GPU axis with a compute capability, and run nothing."""
    json: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of ``run``."""

    matrix: Path
    results: Path
    scope: PlanScope
    rerun: str
    deadline: str | None
    fail_fast: bool
    fail_on: str | None
    dry_run: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFile:
    """A file that names one cell; paths are relative to the file."""

    matrix: Path
    cell_id: str
    engine: str = AUTO
    lock: Path | None = None

    @staticmethod
    def read(path: Path) -> CellFile:
        """Read and check the file.

        :raises UsageError: when it is not such a file.
        """
        try:
            document = json.loads(path.read_text(encoding="utf-8"))
            spec = CellFile(**document)
        except OSError as error:
            raise UsageError(f"{path}: {error.strerror}") from None
        except (ValueError, TypeError) as error:
            form = '{"matrix": "matrix.toml", "cell_id": "…"}, and perhaps "engine" and "lock"'
            raise UsageError(f"{path} is not a cell's specification: {error}", next_step=f"write {form}") from None
        if not all(isinstance(value, str) for value in document.values()):
            raise UsageError(f"{path}: every value must be text")
        lock = path.parent / spec.lock if spec.lock else None
        return replace(spec, matrix=path.parent / spec.matrix, lock=lock)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedRun:
    """What a request comes to on this host."""

    matrix: Matrix
    survey: HostSurvey
    runnable: tuple[Cell, ...]
    skipped: tuple[Cell, ...]
    """Cells of the selection that cannot run here, each with its reason."""


def run_matrix(request: RunOptions) -> int:
    """Run what was asked for; returns the exit code."""
    rerun, deadline = _rerun(request.rerun), _deadline(request.deadline)
    if request.fail_on not in (None, "candidate"):
        raise UsageError(f"--fail-on {request.fail_on}: allowed is 'candidate'")
    matrix = load_matrix(request.matrix)
    work = survey_work(matrix, request.scope)
    if request.dry_run:
        _print_dry_run(work)
        return 0
    orders = RunPolicy(
        run_id=new_run_id(),
        fail_fast=request.fail_fast,
        deadline=deadline,
        build_workers=matrix.policy.build_workers,
    )
    session = run_work(work, RecordStore(request.results / matrix.name), orders, rerun, as_json=request.scope.json)
    return exit_code_of(session, fail_on_candidate=request.fail_on == "candidate")


def run_spec(path: Path, out: Path, *, as_json: bool) -> int:
    """Run the one cell that the file at ``path`` names; returns the exit code.

    :raises UsageError: when the file is not a cell's specification, or its cell is not in its matrix any more.
    """
    spec = CellFile.read(path)
    matrix = load_matrix(spec.matrix)
    found = survey(matrix, engine=spec.engine, lock_path=spec.lock)
    cell = next((cell for cell in every_cell(matrix, found) if cell.id == spec.cell_id), None)
    if cell is None:
        what = f"{path}: cell {spec.cell_id} is not in {spec.matrix}"
        raise UsageError(what, next_step="its sources or protocol changed since: kernel-matrix plan --json has the ids")
    if cell.reason is not None:
        raise NothingSelectedError(f"{path}: the cell cannot run here: {cell.reason.text}")
    work = PlannedRun(matrix=matrix, survey=found, runnable=(cell,), skipped=())
    session = run_work(work, RecordStore(out), RunPolicy(run_id=new_run_id()), Rerun.NONE, as_json=as_json)
    return exit_code_of(session, fail_on_candidate=False)


def every_cell(matrix: Matrix, found: HostSurvey) -> Iterator[Cell]:
    """Every cell, runnable here or not: those of ``run``, then those of ``run --compile-only``.

    :raises kernel_matrix.errors.MatrixError: when the matrix selects what is not there.
    """
    selection = load_selection(matrix)
    for only in (False, True):
        yield from make_plan(matrix, selection, found.facts, compile_only=only).cells()


def run_work(work: PlannedRun, store: RecordStore, orders: RunPolicy, rerun: Rerun, *, as_json: bool) -> Run:
    """Sweep, run what has no record, tell of it, and keep the run's own file."""
    watcher = _watcher(as_json=as_json)
    for line in (*work.survey.engine.sweep(), *sweep_scratch(), *sweep_gpus()):
        if line.startswith(NOT_REPAIRED):
            watcher.complain(line)
        else:
            watcher.say(f"swept: {line}")
    cells = cells_to_run(work.runnable, store, work.survey, rerun)
    watcher.begin(work.survey, cells, done=len(work.runnable) - len(cells), skipped=work.skipped)
    session = Run(cells, work.survey, store, orders)
    with _run_file(store, work.matrix, work.survey, orders, session):
        conditions = _watch(session, watcher)
    watcher.end(session, store, conditions)
    return session


def exit_code_of(session: Run, *, fail_on_candidate: bool) -> int:
    """What a run ends with: quarantine before all else, then what kept cells from running, then candidates."""
    if session.quarantined:  # also where every cell has found another GPU: somebody has to look at this one
        return InfrastructureError.exit_code
    faults = {fault_of(status) for status in session.counts}
    if Fault.INFRA in faults:
        return GpuBusyError.exit_code if set(session.counts) == {Status.GPU_BUSY} else InfrastructureError.exit_code
    return 1 if fail_on_candidate and Fault.CANDIDATE in faults else 0


def survey_work(matrix: Matrix, scope: PlanScope) -> PlannedRun:
    """Plan the matrix on this host, after building images where asked to; keep what the filters and the shard leave.

    :raises NothingSelectedError: when that is nothing that can run.
    """
    if scope.build:
        _build_missing(matrix, scope, _watcher(as_json=scope.json).say)
    found = survey(matrix, engine=scope.engine, lock_path=scope.lock, allow_unpinned=scope.allow_unpinned)
    plan = make_plan(matrix, load_selection(matrix), found.facts, compile_only=scope.compile_only)
    wanted = parse_filter(scope.filters)
    chosen = [cell for cell in plan.cells() if wanted(cell)]
    if scope.shard is not None:
        chosen = list(shard(chosen, *parse_shard(scope.shard)))
    runnable = tuple(cell for cell in chosen if cell.reason is None)
    skipped = tuple(cell for cell in chosen if cell.reason is not None)
    if not runnable:
        raise NothingSelectedError(_why_nothing(skipped), next_step="kernel-matrix plan --all says why for each cell")
    return PlannedRun(matrix=matrix, survey=found, runnable=runnable, skipped=skipped)


def _why_nothing(skipped: Sequence[Cell]) -> str:
    """That nothing can run, with the most frequent reasons."""
    if not skipped:
        return "no cell is selected"
    counts = Counter(cell.reason.text for cell in skipped if cell.reason is not None)
    reasons = [f"\n  {number} × {text}" for text, number in counts.most_common(3)]
    return f"{len(skipped)} cells selected, none of which can run here:{''.join(reasons)}"


def _watch(session: Run, watcher: RunView) -> RunConditions:
    """Run the session and tell of it; a signal stops it cleanly and says what is left.

    :return: what its timed cells had.
    """
    conditions = RunConditions()
    try:
        with watcher.watching(), session.running() as events:
            for event in events:
                if event.happening is EventKind.CELL_ENDED and event.record is not None:
                    conditions.note(event.record)
                watcher.tell(event)
    except BaseException:
        watcher.say(f"stopped: {session.left} of {session.planned} cells are left; run again to go on")
        raise
    return conditions


@contextmanager
def _run_file(store: RecordStore, matrix: Matrix, found: HostSurvey, orders: RunPolicy, session: Run) -> Iterator[None]:
    """Keep the run's own file up to date: written at the start, and again at the end however it ends."""
    identity = host_identity()
    info = RunInfo(
        run_id=orders.run_id,
        matrix=matrix.name,
        matrix_sha256=hashlib.sha256(matrix.path.read_bytes()).hexdigest(),
        matrix_path=os.path.relpath(matrix.path),
        argv=(Path(sys.argv[0]).name, *sys.argv[1:]),
        version=__version__,
        engine=found.engine.name,
        host=RunHost(
            hostname=identity.hostname,
            machine=identity.machine,
            platform=identity.platform,
            cpu=identity.cpu,
            cores=identity.cores,
        ),
        started_at=utc_now(),
        ended_at=None,
        planned=session.planned,
        counts={},
        interrupted=False,
    )
    store.save_run(info)
    try:
        yield
    except BaseException:
        with suppress(StoreError):  # what ended the run is what has to be told
            store.save_run(_ended(info, session))
        raise
    store.save_run(_ended(info, session))


def _ended(info: RunInfo, session: Run) -> RunInfo:
    return replace(info, ended_at=utc_now(), counts=dict(session.counts), interrupted=session.left > 0)


def _build_missing(matrix: Matrix, scope: PlanScope, say: Callable[[str], None]) -> None:
    """Build what is built on this machine and missing; without a daemon, or the right, say so and go on."""
    from kernel_matrix.images.image_build import ensure_local  # noqa: PLC0415  # same
    from kernel_matrix.sandboxes import open_engine  # noqa: PLC0415  # only with --build

    if scope.engine not in (AUTO, "docker") or not open_engine("docker").status().available:
        return
    images, lock = matrix.root / "images", scope.lock or matrix.lock_path
    for toolchain in matrix.toolchains:
        if toolchain.cuda is not None:
            continue
        try:
            ensure_local(toolchain.name, images_dir=images, lock_path=lock, say=say)
        except ImageError as error:
            say(f"{toolchain.name}: {error}")


def _print_dry_run(work: PlannedRun) -> None:
    from kernel_matrix.attempt.preview import preview  # noqa: PLC0415  # only with --dry-run

    found = work.survey
    print_json([preview(cell, _device_of(cell, found), found.engine, found.images) for cell in work.runnable])


def _device_of(cell: Cell, found: HostSurvey) -> Gpu:
    """The first device that ``cell`` would run on, or what it would be compiled for."""
    return absent_gpu(cell.gpu) if cell.compile_only else devices_matching(cell.gpu, found.facts.gpus)[0]


def _watcher(*, as_json: bool) -> RunView:
    if as_json:
        return EventLines(print_json_line)
    return LiveView() if sys.stdout.isatty() else PlainLines(_say, _complain)


def _rerun(text: str) -> Rerun:
    try:
        return Rerun(text)
    except ValueError:
        raise UsageError(f"--rerun {text}: allowed are {', '.join(r.value for r in Rerun)}") from None


def _deadline(text: str | None) -> float | None:
    """The next time a clock here shows ``HH:MM``, as monotonic time."""
    if text is None:
        return None
    try:
        wanted = datetime.strptime(text, "%H:%M")  # noqa: DTZ007  # a time of day, local by intention
    except ValueError:
        raise UsageError(f"--deadline {text}: give a local time as HH:MM, e.g. 05:30") from None
    now = datetime.now().astimezone()
    then = now.replace(hour=wanted.hour, minute=wanted.minute, second=0, microsecond=0)
    if then <= now:
        then += timedelta(days=1)
    return time.monotonic() + (then - now).total_seconds()


def new_run_id() -> str:
    """The time and six hex digits: runs are told apart, and sort by when they began."""
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S") + "-" + secrets.token_hex(3)


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def _complain(text: str) -> None:
    sys.stderr.write(f"error: {text}\n")
    sys.stderr.flush()
