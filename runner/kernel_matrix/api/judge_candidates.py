"""Judge candidates that are sent as texts, for the problems, GPUs and toolchains of a matrix."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from kernel_matrix.api.problems import Problem, write_problem
from kernel_matrix.api.run_cells import new_run_id, run_info, sweep_before_run
from kernel_matrix.errors import StoreError, UsageError, suggestion
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.fleet.open_run import FleetOpenRun
from kernel_matrix.executors.local import Run
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.inside.atomic_write import publish_file, replace_file
from kernel_matrix.matrix import GpuAxis, Matrix
from kernel_matrix.matrix.tiers import TIERS, with_protocol
from kernel_matrix.model.enums import Status, Tier
from kernel_matrix.model.evaluation import WORKLOAD_COLUMNS, EvaluationResult, source_name
from kernel_matrix.model.instants import utc_now
from kernel_matrix.model.messages import to_json
from kernel_matrix.plan import Cell, SelectedProblem, Selection, devices_matching, load_selection, make_plan
from kernel_matrix.plan.host_inventory import HostInventory
from kernel_matrix.results.judged import times_of
from kernel_matrix.results.record import Record, record_to_json
from kernel_matrix.results.rows import cell_rows, host_row
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sources import Candidate, Origin, load_source
from kernel_matrix.sources.document import UnreadableFileError
from kernel_matrix.sources.folder import PROBLEM_FILE, SUFFIXES, read_candidate, side_file_text

COMPILE: Final = "compile"
"""The tier that only builds a candidate."""
_CANDIDATES: Final = "candidates"
_REFERENCES: Final = "references"
_KEEPS_JUDGE_S: Final = 60.0
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCandidate:
    """A candidate's source and what it is for. Empty names mean the matrix's first."""

    problem: str
    source: str
    suffix: str = ".py"
    """``.py`` for a module with ``ModelNew``, ``.cu`` or ``.hip`` for native code."""
    language: str = ""
    """Language that it must have a kernel in; empty: whatever its source shows."""
    dtype: str = ""
    gpu: str = ""
    toolchain: str = ""
    tier: str = ""
    """``compile``, or a :class:`~kernel_matrix.model.enums.Tier`; empty: what the matrix asks for."""
    file: Path | None = None
    """File that has the source, with metadata beside it, in a folder of the problem; None: the source is kept here."""
    reference: str = ""
    """Source of a module with ``Model`` and ``get_inputs``, in place of ``problem``."""
    origin: Mapping[str, Any] | None = None
    """Known fields of its :class:`~kernel_matrix.sources.Origin`; the first that is sent is kept beside the source."""


@dataclass(frozen=True, slots=True)
class OpenRun:
    """A run that candidates are added to while it goes on."""

    run: Run | FleetOpenRun
    add: Callable[[Sequence[tuple[Cell, SentCandidate]]], None]
    """Judges further candidates in these cells; called before :meth:`end`."""

    @property
    def planned(self) -> int:
        """Number of candidates that were added."""
        return self.run.planned

    def end(self) -> None:
        """Say that no more candidates come; the run ends when all have been judged."""
        self.run.end()

    def stop(self) -> None:
        """End the run now; cells that have not ended leave no record."""
        self.run.stop()


class CandidateJudge(ABC):
    """The problems of a matrix and the devices that judge candidates for them; they are read once.

    Args:
        matrix: The matrix; its candidates play no part.
        folder: Where sources and records are kept.
        inventories: What each machine has that may judge.
    """

    most_in_run: float = math.inf
    """Cells that one run is given; a run on this host remembers all of them."""

    def __init__(self, matrix: Matrix, folder: Path, inventories: Sequence[HostInventory]) -> None:
        self.matrix = matrix
        self.inventories = inventories
        self.problems = {chosen.problem.id: chosen for chosen in load_selection(matrix).problems}
        self._of_tier = {"": matrix, COMPILE: matrix} | {tier.value: _with_tier(matrix, tier) for tier in Tier}
        self._sources = folder / _CANDIDATES
        self._references = folder / _REFERENCES
        self.store = RecordStore(folder)
        self._running: WeakSet[Run | FleetOpenRun] = WeakSet()
        self.is_stopped = False
        """True once :meth:`stop` was called."""

    def cell_of(self, sent: SentCandidate) -> Cell:
        """Return the cell in which a candidate is judged; its source is kept.

        Raises:
            UsageError: A name is unknown, the source cannot be used, or the cell cannot run anywhere.
        """
        cells = self.cells_of(sent)
        for cell in cells:
            if cell.reason is None:
                return cell
        assert cells[0].reason is not None  # noqa: S101  # for the type checker
        raise UsageError(f"it cannot run here: {cells[0].reason.text}")

    def cells_of(self, sent: SentCandidate) -> list[Cell]:
        """Return the cell as each of the inventories has it, with a reason where it cannot run; its source is kept.

        Raises:
            UsageError: A name is unknown, or the source cannot be used.
        """
        matrix = self._of_tier[_known("tier", sent.tier, self._of_tier)]
        chosen = self._problem_of(sent)
        if chosen.problem.ranks > 1:
            what = f"{chosen.problem.id} needs {chosen.problem.ranks} ranks; candidates that are sent have one"
            raise UsageError(what, next_step="run it from a matrix: kernel-matrix run")
        dtypes = [dtype.value for dtype in self.matrix.dtypes if dtype in chosen.problem.dtypes]
        wanted = (
            _known("gpu", sent.gpu, [gpu.name for gpu in self.matrix.gpus]),
            _known("toolchain", sent.toolchain, [one.name for one in self.matrix.toolchains]),
            _known("dtype", sent.dtype, dtypes),
        )
        candidate = self._read(sent, chosen.problem)
        of_one = SelectedProblem(problem=chosen.problem, workloads=chosen.workloads, candidates=(candidate,))
        selection, found = Selection(problems=(of_one,)), []
        for inventory in self.inventories:
            plan = make_plan(matrix, selection, inventory, compile_only=sent.tier == COMPILE)
            found += [it for it in plan.cells() if (it.gpu.name, it.toolchain.name, it.dtype.value) == wanted]
        if not found:
            raise UsageError(f"the matrix leaves out {', '.join(wanted)} for {chosen.problem.id}")
        return found

    def open_policy(self) -> RunPolicy:
        """Return the rules of a run that is open, under a new name."""
        workers = self.matrix.policy.build_workers
        return RunPolicy(run_id=new_run_id(), build_workers=workers, keeps_judge_s=_KEEPS_JUDGE_S)

    @abstractmethod
    def devices_of(self, gpu: GpuAxis) -> list[str]:
        """Return the names of the devices that judge for a GPU of the matrix."""

    @abstractmethod
    def opened(self, policy: RunPolicy) -> AbstractContextManager[tuple[OpenRun, Iterator[RunEvent]]]:
        """Open a run that candidates are added to while it goes on, and provide it with its events."""

    @abstractmethod
    def prepared(self) -> AbstractContextManager[tuple[str, ...]]:
        """Make ready to judge, and provide a line for each thing that dead runs had left, and that was removed."""

    @abstractmethod
    def sandbox_name(self) -> str:
        """Return the name of the sandbox for the description of a run."""

    @contextmanager
    def described(
        self, run_id: str, counts: Mapping[Status, int], *, command: Sequence[str] = ()
    ) -> Iterator[tuple[str, ...]]:
        """Prepare to judge, keep the description of what is judged under ``run_id``, and complete it at the end.

        Args:
            run_id: Name of the run in records.
            counts: Status → cells that ended so, as it is at the end.
            command: Words of the command line.
        """
        with self.prepared() as removed:
            info = run_info(self.matrix, run_id, engine=self.sandbox_name(), command=command, planned=0)
            self.store.save_run(info)
            try:
                yield removed
            finally:
                ended = dict(counts)
                self.store.save_run(replace(info, ended_at=utc_now(), planned=sum(ended.values()), counts=ended))

    def stop(self) -> None:
        """End what is being judged, now and from now on; cells that have not ended leave no record."""
        self.is_stopped = True
        for run in tuple(self._running):
            run.stop()

    @contextmanager
    def started(self, run: Run | FleetOpenRun) -> Iterator[Iterator[RunEvent]]:
        """Start a run that :meth:`stop` ends, and provide its events."""
        self._running.add(run)
        with run.running() as events:
            if self.is_stopped:
                run.stop()
            yield events

    def _problem_of(self, sent: SentCandidate) -> SelectedProblem:
        if not sent.reference:
            return self.problems[_known("problem", sent.problem, self.problems)]
        if sent.problem:
            raise UsageError("a problem and a reference are named", next_step="name one of them")
        name = source_name(sent.reference)
        folder = self._references / name
        made = folder / f"reference-{name}"
        with _keeping():
            if not (made / PROBLEM_FILE).exists():
                dtypes = [dtype.value for dtype in self.matrix.dtypes]
                write_problem(made, sent.reference.encode(), dtypes, description="A reference that was sent.")
        loaded = load_source("folder", folder)
        for problem in loaded.problems:
            return SelectedProblem(problem=problem, workloads=problem.shown_workloads, candidates=())
        raise UsageError(loaded.unreadable[0].reason)

    def _read(self, sent: SentCandidate, problem: Problem) -> Candidate:
        """Read the candidate's file, or the one in which its source is kept."""
        try:
            return read_candidate(sent.file or self._keep(sent, problem.id), problem.id)
        except UnreadableFileError as error:
            raise UsageError(error.unreadable.reason) from None

    def _keep(self, sent: SentCandidate, problem_id: str) -> Path:
        """Keep a source under a name made of its content, and return its file."""
        if sent.suffix not in SUFFIXES:
            raise UsageError(f"no candidate is a {sent.suffix} file", next_step=f"choose one of {', '.join(SUFFIXES)}")
        name = source_name(sent.source, sent.suffix, sent.language)
        file = self._sources / name / problem_id / f"{name}{sent.suffix}"
        with _keeping():
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, sent.source)
            side = file.with_suffix(".toml")
            if (sent.origin or sent.language) and not side.exists():
                with suppress(FileExistsError):  # of a request at the same time
                    publish_file(side, side_file_text(Origin(**(sent.origin or {})), sent.language))
        return file


class HostJudge(CandidateJudge):
    """The problems and devices of a matrix on this host.

    Args:
        matrix: The matrix; its candidates play no part.
        folder: Where sources and records are kept.
        host: What this host has.
    """

    most_in_run = 2000

    def __init__(self, matrix: Matrix, folder: Path, host: HostSurvey) -> None:
        self._host = _with_devices_of(matrix, host)
        super().__init__(matrix, folder, (self._host.inventory,))

    def devices_of(self, gpu: GpuAxis) -> list[str]:
        """See :class:`CandidateJudge`."""
        return [device.name for device in devices_matching(gpu, self._host.inventory.gpus)]

    def judge(self, cells: Sequence[Cell], policy: RunPolicy) -> Iterator[Record]:
        """Run cells and yield the last record of each as it ends; fewer if :meth:`stop` is called."""
        with self.started(Run(cells, self._host, self.store, policy)) as events:
            for event in events:
                if event.happening is EventKind.CELL_ENDED and event.record is not None:
                    yield event.record

    @contextmanager
    def opened(self, policy: RunPolicy) -> Iterator[tuple[OpenRun, Iterator[RunEvent]]]:
        """See :class:`CandidateJudge`."""
        run = Run((), self._host, self.store, policy, is_open=True)
        with self.started(run) as events:
            yield OpenRun(run, lambda sent: run.add([cell for cell, _ in sent])), events

    @contextmanager
    def prepared(self) -> Iterator[tuple[str, ...]]:
        """See :class:`CandidateJudge`."""
        yield sweep_before_run(self._host.sandbox)

    def sandbox_name(self) -> str:
        """See :class:`CandidateJudge`."""
        return self._host.sandbox.name


def kept_candidates(folder: Path, names: Iterable[tuple[str, str]]) -> Iterator[Candidate]:
    """Yield the candidates that a :class:`CandidateJudge` kept in ``folder``.

    Args:
        folder: Its folder.
        names: Problem and name of the candidates that are wanted; those that are not there are left out.
    """
    for problem, candidate in names:
        name = candidate.removeprefix(f"{problem}/")
        for file in (folder / _CANDIDATES / name / problem / f"{name}{suffix}" for suffix in SUFFIXES):
            with suppress(UnreadableFileError):
                if file.is_file():
                    yield read_candidate(file, problem)


def result_of(record: Record) -> EvaluationResult:
    """Return what a record says of its candidate, with the values of tables, and nothing of held-out shapes."""
    document, outcome, evidence = record_to_json(record), record.outcome, to_json(record.shown_evidence)
    rows = cell_rows(document, times_of(document), key=0, host=host_row(document), run=None)
    return EvaluationResult(
        status=outcome.status.value,
        fault=outcome.fault.value,
        stage=outcome.stage.value,
        evidence={key: value for key, value in evidence.items() if value not in _EMPTY},
        workloads={
            row["workload"]: {name: row[name] for name in WORKLOAD_COLUMNS if row.get(name) is not None}
            for row in rows
            if "workload" in row and not row["held_out"]
        },
        record=record.stem,
    )


def _with_tier(matrix: Matrix, tier: Tier) -> Matrix:
    return replace(matrix, protocol=with_protocol(matrix.protocol, {"tier": tier, **TIERS[tier]}))


def _with_devices_of(matrix: Matrix, host: HostSurvey) -> HostSurvey:
    """Return the survey without the devices that are of no GPU of the matrix."""
    inventory = host.inventory
    mine = {device.uuid: device for gpu in matrix.gpus for device in devices_matching(gpu, inventory.gpus)}
    return replace(host, inventory=replace(inventory, gpus=tuple(mine.values())))


@contextmanager
def _keeping() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StoreError(f"the source cannot be kept: {error.strerror}") from None


def _known(what: str, name: str, names: Collection[str]) -> str:
    """Return ``name``, or the first of ``names`` if it is empty.

    Raises:
        UsageError: There is no such name.
    """
    if not name and names:
        return next(iter(names))
    if name not in names:
        raise UsageError(f"there is no {what} {name!r}{suggestion(name, list(names))}")
    return name
