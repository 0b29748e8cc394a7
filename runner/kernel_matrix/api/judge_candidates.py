"""Judge candidates that are sent as texts, for the problems, GPUs and toolchains of a matrix."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from weakref import WeakSet

from kernel_matrix.errors import StoreError, UsageError, suggestion
from kernel_matrix.executors.events import EventKind
from kernel_matrix.executors.local import Run
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.hosts.survey import AUTO, survey
from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.matrix import Matrix
from kernel_matrix.model.evaluation import WORKLOAD_COLUMNS, EvaluationResult
from kernel_matrix.model.messages import to_json
from kernel_matrix.plan import Cell, SelectedProblem, Selection, load_selection, make_plan
from kernel_matrix.results.record import Record, record_to_json
from kernel_matrix.results.rows import cell_rows, host_row
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sources import Candidate, load_candidates
from kernel_matrix.sources.folder import SUFFIXES

_FOLDER: Final = "candidates"
_NAME_LENGTH: Final = 16
_EMPTY: Final[tuple[Any, ...]] = (None, "", [], {})


@dataclass(frozen=True, slots=True, kw_only=True)
class SentCandidate:
    """A candidate's source and what it is for. Empty names mean the matrix's first."""

    problem: str
    source: str
    suffix: str = ".py"
    """``.py`` for a module with ``ModelNew``, ``.cu`` or ``.cpp`` for native code."""
    dtype: str = ""
    gpu: str = ""
    toolchain: str = ""


class CandidateJudge:
    """The problems and devices of a matrix on this host; they are read once.

    Args:
        matrix: The matrix; its candidates play no part.
        folder: Where sources and records are kept.
        sandbox: As for :func:`kernel_matrix.make_plan`.
        lock: As for :func:`kernel_matrix.make_plan`.
    """

    def __init__(self, matrix: Matrix, folder: Path, *, sandbox: str = AUTO, lock: Path | None = None) -> None:
        self.matrix = matrix
        self.host = survey(matrix, sandbox=sandbox, lock_path=lock)
        self.problems = {chosen.problem.id: chosen for chosen in load_selection(matrix).problems}
        self._by_id = {id_: chosen.problem for id_, chosen in self.problems.items()}
        self._sources = folder / _FOLDER
        self.store = RecordStore(folder)
        self._running: WeakSet[Run] = WeakSet()
        self._is_stopped = False

    def cell_of(self, sent: SentCandidate) -> Cell:
        """Return the cell in which a candidate is judged; its source is kept.

        Raises:
            UsageError: A name is unknown, the source cannot be used, or the cell cannot run here.
        """
        chosen = self.problems[_known("problem", sent.problem, self.problems)]
        dtypes = [dtype.value for dtype in self.matrix.dtypes if dtype in chosen.problem.dtypes]
        wanted = (
            _known("gpu", sent.gpu, [gpu.name for gpu in self.matrix.gpus]),
            _known("toolchain", sent.toolchain, [one.name for one in self.matrix.toolchains]),
            _known("dtype", sent.dtype, dtypes),
        )
        of_one = SelectedProblem(problem=chosen.problem, workloads=chosen.workloads, candidates=(self._read(sent),))
        cells = make_plan(self.matrix, Selection(problems=(of_one,)), self.host.inventory).cells()
        for cell in cells:
            if (cell.gpu.name, cell.toolchain.name, cell.dtype.value) == wanted:
                if cell.reason is not None:
                    raise UsageError(f"it cannot run here: {cell.reason.text}")
                return cell
        raise UsageError(f"the matrix leaves out {', '.join(wanted)} for {chosen.problem.id}")

    def judge(self, cells: Sequence[Cell], policy: RunPolicy) -> Iterator[Record]:
        """Run cells and yield the last record of each as it ends; fewer if :meth:`stop` is called."""
        run = Run(cells, self.host, self.store, policy)
        self._running.add(run)
        with run.running() as events:
            if self._is_stopped:
                run.stop()
            for event in events:
                if event.happening is EventKind.CELL_ENDED and event.record is not None:
                    yield event.record

    def stop(self) -> None:
        """End what is being judged, now and from now on; cells that have not ended leave no record."""
        self._is_stopped = True
        for run in tuple(self._running):
            run.stop()

    def _read(self, sent: SentCandidate) -> Candidate:
        """Keep the source under a name made of its content, and read it as a file of a candidate."""
        if sent.suffix not in SUFFIXES:
            raise UsageError(f"no candidate is a {sent.suffix} file", next_step=f"choose one of {', '.join(SUFFIXES)}")
        name = hashlib.sha256(sent.suffix.encode() + sent.source.encode()).hexdigest()[:_NAME_LENGTH]
        # A folder for each, since the files of a folder are read together.
        folder = self._sources / name
        file = folder / sent.problem / f"{name}{sent.suffix}"
        try:
            if not file.exists():
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, sent.source)
        except OSError as error:
            raise StoreError(f"the source cannot be kept: {error.strerror}") from None
        found, refused = load_candidates("folder", folder, self._by_id)
        for candidate in found:
            if candidate.problem_id == sent.problem:
                return candidate
        raise UsageError(refused[0].reason)


def result_of(record: Record) -> EvaluationResult:
    """Return what a record says of its candidate, with the values that tables have of it."""
    document, outcome = record_to_json(record), record.outcome
    rows = cell_rows(document, key=0, host=host_row(document), run=None)
    return EvaluationResult(
        status=outcome.status.value,
        fault=outcome.fault.value,
        stage=outcome.stage.value,
        evidence={key: value for key, value in to_json(outcome.evidence).items() if value not in _EMPTY},
        workloads={
            row["workload"]: {name: row[name] for name in WORKLOAD_COLUMNS if row.get(name) is not None}
            for row in rows
            if "workload" in row
        },
        record=record.stem,
    )


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
