"""Judge candidates that are sent as texts at the sites of a fleet; and what its jobs do for that."""

from __future__ import annotations

import logging
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Final

from kernel_matrix.api.fleet_plan import resolved_lock, usable_nodes
from kernel_matrix.api.judge_candidates import CandidateJudge, HostJudge, OpenRun, SentCandidate
from kernel_matrix.api.plan import load_matrix
from kernel_matrix.api.run_cells import CellFile
from kernel_matrix.errors import KernelMatrixError
from kernel_matrix.executors.engines import EngineError
from kernel_matrix.executors.events import EventKind, RunEvent
from kernel_matrix.executors.fleet.fleet_run import FleetOrder, FleetSites
from kernel_matrix.executors.fleet.head import leading
from kernel_matrix.executors.fleet.open_run import FleetOpenRun, SentCell
from kernel_matrix.executors.fleet.sent_files import SentFiles
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.fleet import Fleet
from kernel_matrix.matrix import GpuAxis, Matrix
from kernel_matrix.model.enums import Status
from kernel_matrix.plan import Cell, devices_matching

_LOOK_EVERY_S: Final = 0.2
"""Between two looks of a job for candidates."""
_log = logging.getLogger(__name__)


class FleetJudge(CandidateJudge):
    """The problems of a matrix, and the devices of a fleet that judge candidates for them.

    Args:
        matrix: The matrix; its candidates play no part.
        fleet: The fleet.
        results: Sources and records are kept in ``<results>/<matrix name>/``.
        lock: The images lock; the matrix's own by default.
        release_after_s: How long a job that has nothing to do keeps its GPU.

    Raises:
        InfrastructureError: No site has a node that can run anything, or one has another version of what measures.
    """

    def __init__(
        self, matrix: Matrix, fleet: Fleet, results: Path, *, lock: Path | None, release_after_s: float
    ) -> None:
        pinned = resolved_lock(lock)
        checked = usable_nodes(fleet, matrix, results, pinned)
        for place, why in checked.faults.items():
            _log.warning("%s: nothing runs there: %s", place, why)
        self._slots = tuple(checked.reports)
        super().__init__(matrix, results / matrix.name, [one.inventory for one in checked.reports.values()])
        order = FleetOrder(fleet=fleet, matrix=matrix.path, lock=pinned, reports=checked.reports)
        self._sites = FleetSites(order, self.store)
        self._release_after_s = release_after_s

    def devices_of(self, gpu: GpuAxis) -> list[str]:
        """See :class:`CandidateJudge`; one name for each kind of GPU and site."""
        found = zip(self._slots, self.inventories, strict=True)
        return [
            f"{slot.site}: {devices[0].name}"
            for slot, inventory in found
            if (devices := devices_matching(gpu, inventory.gpus))
            for _ in range(self._sites.units.get(slot, 1))
        ]

    @contextmanager
    def opened(self, policy: RunPolicy) -> Iterator[tuple[OpenRun, Iterator[RunEvent]]]:
        """See :class:`CandidateJudge`."""
        run = FleetOpenRun(self._sites, policy.run_id, release_after_s=self._release_after_s)
        with self.started(run) as events:
            yield OpenRun(run, lambda sent: run.add([self._sent_cell(*one) for one in sent])), events

    @contextmanager
    def prepared(self) -> Iterator[tuple[str, ...]]:
        """Lead the fleet of the store; jobs that an earlier service left are ended, and their records come home."""
        with leading(self.store.root):
            self._sites.recover()
            for site in self._sites.runs.values():
                try:
                    site.cancel()
                except EngineError as error:  # noqa: PERF203  # its jobs end by themselves, since their head is gone
                    self._sites.complain(site, str(error))
            self._sites.left.clear()
            yield ()

    def sandbox_name(self) -> str:
        """See :class:`CandidateJudge`."""
        return ", ".join(sorted({run.site.sandbox for run in self._sites.runs.values()}))

    def _sent_cell(self, cell: Cell, sent: SentCandidate) -> SentCell:
        """Return what the sites need to judge a candidate."""
        found = zip(self._slots, self.cells_of(sent), strict=True)
        slots = frozenset(slot for slot, at_site in found if at_site.reason is None)
        return SentCell(cell, asdict(sent), slots)


def judge_sent_candidates(path: str | Path, out: str | Path) -> None:
    """Judge what the head of a fleet sends to this job, until it sends no more or is gone.

    Args:
        path: The file of the job, as for :func:`kernel_matrix.api.run_cells.run_cell_file`, without cells.
        out: Folder of the job. Records go to ``<out>/records/``.

    Raises:
        UsageError: It is no such file, or its matrix cannot be used.
        InfrastructureError: Nothing can be judged here.
    """
    spec, folder = CellFile.read(Path(path)), Path(out)
    matrix = load_matrix(spec.matrix)
    judge = HostJudge(matrix, folder, spec.host(matrix))
    files, counts = SentFiles(folder), Counter[Status]()
    policy = judge.open_policy()
    with judge.described(policy.run_id, counts), judge.opened(policy) as (run, events):
        feeder = threading.Thread(target=_feed, args=(judge, run, files), name="feeding")
        feeder.start()
        try:
            for event in events:
                if event.happening is EventKind.CELL_ENDED and event.record is not None:
                    counts[event.record.outcome.status] += 1
                    files.tell_ended(event.cell.id)
        finally:
            judge.stop()
            feeder.join()


def _feed(judge: HostJudge, run: OpenRun, files: SentFiles) -> None:
    """Give a run what is sent, until nothing more is."""
    try:
        while not (files.is_last or files.is_head_gone or judge.is_stopped):
            run.add([*_new_cells(judge, files)])
            time.sleep(_LOOK_EVERY_S)
        run.add([*_new_cells(judge, files)])
        run.end()
    except Exception:  # noqa: BLE001  # ends the job, and the head sends what it had to another
        _log.exception("what is sent cannot be read")
        run.stop()


def _new_cells(judge: HostJudge, files: SentFiles) -> Iterator[tuple[Cell, SentCandidate]]:
    for cell_id, request in files.take():
        try:
            sent = SentCandidate(**request)
            cell = judge.cell_of(sent)
        except (KernelMatrixError, TypeError) as error:  # one must not end the others
            files.tell_ended(cell_id, str(error))
            continue
        if cell.id == cell_id:
            yield cell, sent
        else:
            files.tell_ended(cell_id, "the matrix or its problems are others at its node")
