"""Run cells, report progress to a listener, and keep a record per attempt."""

from __future__ import annotations

import hashlib
import json
import os
import secrets
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from kernel_matrix.api.fleet_plan import FleetPlan
from kernel_matrix.api.plan import RunPlan, every_cell, load_matrix, make_plan
from kernel_matrix.attempt.scratch import sweep_scratch
from kernel_matrix.config_files.config_text import config_bytes
from kernel_matrix.errors import (
    GpuBusyError,
    InfrastructureError,
    NothingSelectedError,
    StoreError,
    UsageError,
    suggestion,
)
from kernel_matrix.executors import EXECUTORS, Executor
from kernel_matrix.executors.engines import ENGINES
from kernel_matrix.executors.events import EventKind, RunEvent, RunMessage, RunStatus
from kernel_matrix.executors.fleet.fleet_run import FleetOrder, FleetRun, FleetSites
from kernel_matrix.executors.fleet.head import leading
from kernel_matrix.executors.fleet.site_run import WITHDRAWN_FILE
from kernel_matrix.executors.local import Rerun, UnitsLeft, longest_first, units_left
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.executors.unit_passes import UnitPasses
from kernel_matrix.hosts.identity import host_identity
from kernel_matrix.hosts.survey import AUTO, HostSurvey, survey
from kernel_matrix.lease import ResetState
from kernel_matrix.lease.repair import NOT_REPAIRED, sweep_gpus
from kernel_matrix.matrix import Matrix
from kernel_matrix.model.enums import Fault, Status, fault_of
from kernel_matrix.model.instants import parse_instant, utc_now
from kernel_matrix.nightly.deadline import next_time, on_monotonic_clock
from kernel_matrix.plan import Cell
from kernel_matrix.results.descriptions import printable
from kernel_matrix.results.judged import WorkloadJudgement, judge, times_of
from kernel_matrix.results.record import Record, record_to_json
from kernel_matrix.results.record_files import read_runs
from kernel_matrix.results.run_info import RunHost, RunInfo
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sandboxes import Sandbox
from kernel_matrix.untrusted_json import read_object
from kernel_matrix.version import __version__

if TYPE_CHECKING:
    from kernel_matrix.api.results import Results

__all__ = [
    "CellFile",
    "EventKind",
    "Listener",
    "Record",
    "Rerun",
    "ResetState",
    "RunEvent",
    "RunMessage",
    "RunProgress",
    "RunResult",
    "RunStarted",
    "RunStatus",
    "WorkloadJudgement",
    "judge_record",
    "next_time",
    "parse_rerun",
    "run",
    "run_cell_file",
]


_MOST_CELL_FILE_BYTES = 64 << 20
_MOST_UNREADABLE = 10
"""Unreadable files that a run names one by one; checkouts of benchmarks may have hundreds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStarted:
    """The first thing a listener gets of a run: its size."""

    host: HostSurvey
    cells: Sequence[Cell]
    """The cells to run, longest first."""
    done: int
    """Selected cells that have a record already."""
    skipped: Sequence[Cell]
    """Selected cells that cannot run here, each with its reason."""
    places: Sequence[str] = ()
    """Lines that describe the places of a fleet; empty for a run on this host."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunResult:
    """The end of a run; also the last thing its listener gets."""

    run_id: str
    folder: Path
    """The folder with ``records/``, ``traces/`` and ``runs/``."""
    planned: int
    left: int
    """Number of cells that this run did not finish."""
    counts: Counter[Status]
    """Status → cells that ended so."""
    quarantined: Mapping[str, str]
    """UUID → why nothing more ran on that GPU in this run."""

    @property
    def records(self) -> Path:
        """The folder of the records."""
        return self.folder / "records"

    @property
    def candidate_failed(self) -> bool:
        """``True`` if any cell failed because of its candidate."""
        return any(fault_of(status) is Fault.CANDIDATE for status in self.counts)

    @property
    def exit_code(self) -> int:
        """The exit code of ``kernel-matrix run``: 0, 4 for infrastructure or 75 for a busy GPU."""
        if self.quarantined:  # even if every cell found another GPU: this one needs attention
            return InfrastructureError.exit_code
        if not any(fault_of(status) is Fault.INFRA for status in self.counts):
            return 0
        return GpuBusyError.exit_code if set(self.counts) == {Status.GPU_BUSY} else InfrastructureError.exit_code

    def results(self) -> Results:
        """Open everything in the result folder, earlier runs included."""
        from kernel_matrix.api.results import Results  # noqa: PLC0415  # loads polars

        return Results(self.folder)


RunProgress = RunStarted | RunEvent | RunMessage | RunResult | RunStatus
"""Everything a listener may get: first messages and :class:`RunStarted`, then events, at last :class:`RunResult`."""
Listener = Callable[[RunProgress], None]
"""Called in the thread that called :func:`run`. What it raises ends the run, which is then cleaned up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFile:
    """A file that names cells; paths are relative to the file."""

    matrix: Path
    cell_ids: tuple[str, ...]
    sandbox: str = AUTO
    lock: Path | None = None
    engine: str = ""
    """The engine of a fleet that started this process: it says which GPUs are this process's to use."""
    not_on: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Cell id → UUIDs of devices that do not run it, since others have to."""
    deadline: str = ""
    """A UTC instant: no cell is begun that is expected to end later."""

    @staticmethod
    def read(path: Path) -> CellFile:
        """Read and check the file.

        Raises:
            UsageError: It is no such file.
        """
        try:
            document = dict(read_object(path, max_bytes=_MOST_CELL_FILE_BYTES, follow_links=True))
            ids = document.pop("cell_ids") if "cell_ids" in document else [document.pop("cell_id")]
            not_on = {id_: tuple(uuids) for id_, uuids in document.pop("not_on", {}).items()}
            spec = CellFile(**document, cell_ids=tuple(ids), not_on=not_on)
            on_monotonic_clock(parse_instant(spec.deadline or utc_now()))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            form = '{"matrix": "matrix.toml", "cell_ids": ["…"]}, and perhaps "sandbox", "lock", "engine" or "deadline"'
            raise UsageError(f"{path} is not a specification of cells: {error}", next_step=f"write {form}") from None
        texts = (*document.values(), *ids, *(uuid for uuids in not_on.values() for uuid in uuids))
        if not all(isinstance(value, str) for value in texts):
            raise UsageError(f"{path}: every value must be text")
        lock = path.parent / spec.lock if spec.lock else None
        return replace(spec, matrix=path.parent / spec.matrix, lock=lock)

    def host(self, matrix: Matrix) -> HostSurvey:
        """Find out what this process may use of this host; see :func:`~kernel_matrix.hosts.survey.survey`."""
        host = survey(matrix, sandbox=self.sandbox, lock_path=self.lock)
        if not self.engine:
            return host
        mine = ENGINES.load(self.engine).allocated(host.inventory.gpus)
        return replace(host, inventory=replace(host.inventory, gpus=mine))


def run(
    plan: RunPlan | Matrix | str | Path = "matrix.toml",
    results: str | Path = "results",
    *,
    rerun: str | Rerun = Rerun.NONE,
    deadline: datetime | None = None,
    fail_fast: bool = False,
    executor: str = "local",
    listener: Listener | None = None,
    command: Sequence[str] = (),
) -> RunResult:
    """Run every cell of a plan that can run here and has no record yet.

    A run that was stopped goes on where it ended when it is started again.

    Args:
        plan: What :func:`kernel_matrix.make_plan` returned; a matrix or its file is planned first, with the defaults.
        results: Records go to ``<results>/<matrix name>/records/``.
        rerun: Which cells with a record run again: ``none``, ``failed``, ``stale`` or ``all``.
        deadline: No cell is begun that is expected to end after this time; local time where it has no zone.
        fail_fast: Stop at the first cell that does not pass.
        executor: Who runs the cells: ``local``, or what an installed package adds.
        listener: Called with everything that happens, in this thread.
        command: The command line that the run's own file shall show.

    Raises:
        NothingSelectedError: No selected cell can run here.
        PluginError: The executor is not known or cannot be used.
        StoreError: A record could not be written.
        KeyboardInterrupt: After everything was cleaned up; finished cells have their records.

    Examples:
        >>> import kernel_matrix
        >>> plan = kernel_matrix.make_plan("matrix.toml", sandbox="process", filters=["candidate=softmax/@reference"])
        >>> kernel_matrix.run(plan, "results").exit_code  # doctest: +SKIP
        0
    """
    rerun = parse_rerun(rerun)
    planned = plan if isinstance(plan, RunPlan) else make_plan(plan)
    planned.check_runnable()
    warn_of_unreadable(planned, listener)
    policy = RunPolicy(
        run_id=new_run_id(),
        fail_fast=fail_fast,
        deadline=None if deadline is None else on_monotonic_clock(deadline.astimezone()),
        build_workers=planned.matrix.policy.build_workers,
    )
    cells = selected_cells(planned, command=command, executor=executor)
    return cells.run(Path(results) / planned.matrix.name, policy=policy, rerun=rerun, listener=listener)


def selected_cells(plan: RunPlan, *, command: Sequence[str], executor: str = "local") -> CellSelection:
    """Return the cells of a plan, ready to run; those of a fleet run at its sites."""
    return CellSelection(
        matrix=plan.matrix,
        host=plan.host,
        runnable=plan.runnable,
        skipped=plan.skipped,
        command=command,
        executor=executor,
        order=plan.order if isinstance(plan, FleetPlan) else None,
        places=plan.place_lines() if isinstance(plan, FleetPlan) else (),
        engine=plan.engine,
    )


def warn_of_unreadable(plan: RunPlan, listener: Listener | None) -> None:
    """Tell the files that could not be read, of which nothing runs, in one message."""
    items = [printable(str(item)) for item in plan.plan.selection.unreadable]
    if not items or listener is None:
        return
    what = "1 file cannot be used, and nothing of what it defines runs"
    if len(items) > 1:
        what = f"{len(items)} files cannot be used, and nothing of what they define runs"
    lines = [what, *items[:_MOST_UNREADABLE]]
    if len(items) > _MOST_UNREADABLE:
        lines.append(f"… and {len(items) - _MOST_UNREADABLE} more, which `kernel-matrix plan` lists")
    hint = "→ kernel-matrix docs problems says what such files hold"
    listener(RunMessage(text="\n  ".join((*lines, hint)), is_warning=True))


def run_cell_file(
    path: str | Path, out: str | Path, *, listener: Listener | None = None, command: Sequence[str] = ()
) -> RunResult:
    """Run the cells that a file names, unless ``out`` has their records already.

    Args:
        path: A JSON file ``{"matrix": "matrix.toml", "cell_ids": ["…"]}``.
        out: Records go to ``<out>/records/``. A file ``<out>/withdrawn.json``, a list of ids that may grow meanwhile,
            names cells that are left out.
        listener: As for :func:`run`.
        command: As for :func:`run`.

    Raises:
        UsageError: It is no such file, or a cell is not in its matrix any more.
        NothingSelectedError: No cell can run here; where some can, the others are left out.
    """
    spec = CellFile.read(Path(path))
    matrix = load_matrix(spec.matrix)
    host = spec.host(matrix)
    cells = _named_cells(path, spec, matrix, host)
    deadline = on_monotonic_clock(parse_instant(spec.deadline)) if spec.deadline else None
    policy = RunPolicy(
        run_id=new_run_id(),
        deadline=deadline,
        withdrawn=partial(_read_withdrawn, Path(out) / WITHDRAWN_FILE),
        measured_on=spec.not_on,
    )
    return CellSelection(matrix=matrix, host=host, runnable=cells, command=command).run(
        Path(out), policy=policy, listener=listener
    )


def _named_cells(path: str | Path, spec: CellFile, matrix: Matrix, host: HostSurvey) -> tuple[Cell, ...]:
    wanted = set(spec.cell_ids)
    found = {cell.id: cell for cell in every_cell(matrix, host) if cell.id in wanted}
    absent = [id_ for id_ in spec.cell_ids if id_ not in found]
    if absent:
        what = f"{path}: cell {absent[0]} is not in {spec.matrix}"
        hint = "its sources or protocol changed, or GPUs are linked otherwise: kernel-matrix plan --json has the ids"
        raise UsageError(what, next_step=hint)
    cells = [found[id_] for id_ in spec.cell_ids]
    reasons = {cell.reason.text: None for cell in cells if cell.reason is not None}
    runnable = tuple(cell for cell in cells if cell.reason is None)
    if reasons and not runnable:
        raise NothingSelectedError(f"{path}: nothing of it can run here: {'; '.join(reasons)}")
    # Each of them once: how many boards measure a cell is up to who wrote the file.
    return tuple(replace(cell, gpu=replace(cell.gpu, units=1)) for cell in runnable)


def _read_withdrawn(path: Path) -> Collection[str]:
    try:
        return frozenset(json.loads(path.read_bytes()))
    # There is none, as usual; one that cannot be read costs a cell that runs twice.
    except (OSError, ValueError, TypeError, RecursionError):
        return frozenset()


def judge_record(record: Record) -> Mapping[str, WorkloadJudgement]:
    """Return the time, the comparison with eager and the grade of each workload of a record."""
    document = record_to_json(record)
    return judge(document, times_of(document))


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSelection:
    """Cells to run: what :func:`run`, a confirmation, a night and a reproduction have in common."""

    matrix: Matrix
    host: HostSurvey
    runnable: Sequence[Cell]
    skipped: Sequence[Cell] = ()
    command: Sequence[str] = ()
    executor: str = "local"
    order: FleetOrder | None = None
    """Set: the cells run over a fleet, and ``host`` is only where the run is led from."""
    places: Sequence[str] = ()
    engine: str = ""
    """The sandboxes of the sites of a fleet; empty: the host's own."""

    def run(
        self,
        folder: Path,
        *,
        policy: RunPolicy | None = None,
        rerun: Rerun = Rerun.NONE,
        listener: Listener | None = None,
    ) -> RunResult:
        """Remove what dead runs left, run the cells that ``rerun`` asks for, and keep the run's own file."""
        tell = listener or _ignore
        policy = policy or RunPolicy(run_id=new_run_id(), build_workers=self.matrix.policy.build_workers)
        for line in sweep_before_run(self.host.sandbox):
            failed = line.startswith(NOT_REPAIRED)
            tell(RunMessage(text=line if failed else f"swept: {line}", is_error=failed))
        store = RecordStore(folder)
        if self.order is not None:
            with leading(folder):
                sites = FleetSites(self.order, store)
                sites.recover()
                return self._run(store, partial(FleetRun, sites), policy, rerun, tell)
        earlier = _last_sandbox(store)
        if earlier not in (None, self.host.sandbox.name):
            what = f"the last run in {folder} used sandbox {earlier}; compare times of one sandbox only"
            choices = f"--sandbox {earlier} stays with it, --rerun stale measures the earlier cells again"
            tell(RunMessage(text=f"{what}: {choices}"))
        return self._run(store, EXECUTORS.load(self.executor), policy, rerun, tell)

    def _run(self, store: RecordStore, start: Executor, policy: RunPolicy, rerun: Rerun, tell: Listener) -> RunResult:
        attempts = store.attempts() if rerun is not Rerun.ALL else {}
        place = self.order or self.host
        units = {cell.id: units_left(cell, attempts.get(cell.id, ()), place, rerun) for cell in self.runnable}
        cells = longest_first([cell for cell in self.runnable if units[cell.id].count])
        for text in _absent_units(self.runnable, units):
            tell(RunMessage(text=text, is_warning=True))
        running = UnitPasses(start, cells, units, survey=self.host, store=store, policy=policy)
        done = len(self.runnable) - len(cells)
        tell(RunStarted(host=self.host, cells=running.cells, done=done, skipped=self.skipped, places=self.places))
        with self._run_file(store, policy.run_id, running):
            _report_events(running, tell)
        result = RunResult(
            run_id=policy.run_id,
            folder=store.root,
            planned=running.planned,
            left=running.left,
            counts=running.counts,
            quarantined=running.quarantined,
        )
        tell(result)
        return result

    @contextmanager
    def _run_file(self, store: RecordStore, run_id: str, running: UnitPasses) -> Iterator[None]:
        """Write the run's own file at the start, and again at the end however it ends."""
        engine = self.engine or self.host.sandbox.name
        info = run_info(self.matrix, run_id, engine=engine, command=self.command, planned=running.planned)
        store.save_run(info)
        try:
            yield
        except BaseException:
            with suppress(StoreError):  # the reader needs the error that ended the run, not this one
                store.save_run(_ended(info, running))
            raise
        store.save_run(_ended(info, running))


def parse_rerun(word: str | Rerun) -> Rerun:
    """Return the :class:`Rerun` of that name.

    Raises:
        UsageError: There is none.
    """
    try:
        return Rerun(word)
    except ValueError:
        allowed = [rerun.value for rerun in Rerun]
        what = f"--rerun {word} is not known{suggestion(word, allowed)}"
        raise UsageError(what, next_step=f"allowed: {', '.join(allowed)}") from None


def sweep_before_run(sandbox: Sandbox) -> tuple[str, ...]:
    """Remove what dead runs left here, and give back GPU settings that they changed; return one line for each."""
    return (*sandbox.sweep(), *sweep_scratch(), *sweep_gpus())


def run_info(matrix: Matrix, run_id: str, *, engine: str, command: Sequence[str], planned: int) -> RunInfo:
    """Describe a run that begins now on this host."""
    identity = host_identity()
    return RunInfo(
        run_id=run_id,
        matrix=matrix.name,
        matrix_sha256=hashlib.sha256(config_bytes(matrix.path)).hexdigest(),
        matrix_path=os.path.relpath(matrix.path),
        argv=tuple(command),
        version=__version__,
        engine=engine,
        host=RunHost(
            hostname=identity.hostname,
            machine=identity.machine,
            platform=identity.platform,
            cpu=identity.cpu,
            cores=identity.cores,
        ),
        started_at=utc_now(),
        ended_at=None,
        planned=planned,
        counts={},
        interrupted=False,
    )


def new_run_id() -> str:
    """Return the time and six hex digits, so that runs sort by when they began."""
    return datetime.now(timezone.utc).strftime("%Y%m%dT%H%M%S") + "-" + secrets.token_hex(3)


def _last_sandbox(store: RecordStore) -> str | None:
    """Return the sandbox of the store's latest run; the automatic choice changes when a daemon comes or goes."""
    runs, _ = read_runs(map(str, store.runs.glob("*.json")))
    # Not by the names of the files: those of one second are in no order.
    latest = max(runs.values(), key=lambda run: str(run["started_at"]), default=None)
    return None if latest is None else str(latest["engine"])


def _absent_units(cells: Sequence[Cell], units: Mapping[str, UnitsLeft]) -> Iterator[str]:
    """Yield a sentence for each GPU model of which this place has fewer boards than the matrix wants."""
    for axis in {cell.gpu.name: cell.gpu for cell in cells}.values():
        absent = max(units[cell.id].absent for cell in cells if cell.gpu.name == axis.name)
        if absent:
            yield f"{axis.name}: units = {axis.units}, of which {absent} have to measure on another machine"


def _report_events(running: UnitPasses, tell: Listener) -> None:
    try:
        with running.running() as events:
            for event in events:
                tell(event)
    except BaseException:
        tell(RunMessage(text=f"stopped: {running.left} of {running.planned} cells are left; run again to go on"))
        raise


def _ended(info: RunInfo, running: UnitPasses) -> RunInfo:
    info = replace(info, ended_at=utc_now(), counts=dict(running.counts), interrupted=running.left > 0)
    clocks = [run.clocks_ahead_s for run in running.runs if isinstance(run, FleetRun)]
    return replace(info, clocks_ahead_s={node: ahead_s for one in clocks for node, ahead_s in one.items()})


def _ignore(_: RunProgress) -> None:
    """Listen to nothing."""
