"""Which cells of a plan still have to run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

from kernel_matrix.hosts.code_versions import measurement_version
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.model.enums import Fault, Status
from kernel_matrix.plan import Cell, devices_matching
from kernel_matrix.results.store import AttemptSummary, RecordStore


class Rerun(str, Enum):
    """Which cells that have a record run again."""

    NONE = "none"
    """Only those whose last attempt was the machine's fault, or the first to find a ``timing_mismatch``."""
    FAILED = "failed"
    """Also those whose last attempt did not pass."""
    STALE = "stale"
    """Also those that ran with another sandbox, image, driver or measurement version than this run would."""
    ALL = "all"
    """Every cell."""


def cells_to_run(cells: Sequence[Cell], store: RecordStore, survey: HostSurvey, rerun: Rerun) -> list[Cell]:
    """The cells that still have to run, longest first."""
    return cells_left(cells, store.attempts() if rerun is not Rerun.ALL else {}, survey, rerun)


def cells_left(
    cells: Sequence[Cell], attempts: Mapping[str, Sequence[AttemptSummary]], survey: HostSurvey, rerun: Rerun
) -> list[Cell]:
    """The cells that still have to run after ``attempts``, longest first.

    :param attempts: cell id → its attempts in order; whatever they are, :attr:`Rerun.ALL` leaves every cell.
    """
    wanted = [cell for cell in cells if not _is_done(cell, attempts.get(cell.id, ()), survey, rerun)]
    return sorted(wanted, key=lambda cell: -cell.expected_s)


def is_accused_once(statuses: Sequence[Status]) -> bool:
    """Whether the last of the attempts at a cell, which ended so, is the only one to find its claims contradicted.

    One such session says little: a process on a slow core leaves time unexplained for as long as it stays there.
    """
    return statuses[-1] is Status.TIMING_MISMATCH and statuses.count(Status.TIMING_MISMATCH) == 1


def _is_done(cell: Cell, attempts: Sequence[AttemptSummary], survey: HostSurvey, rerun: Rerun) -> bool:
    if rerun is Rerun.ALL or not attempts or attempts[-1].fault is Fault.INFRA:
        return False
    last = attempts[-1]
    if rerun is Rerun.FAILED:
        return last.fault is Fault.NONE
    if is_accused_once([attempt.status for attempt in attempts]):
        return False
    return rerun is not Rerun.STALE or not _is_stale(cell, last, survey)


def _is_stale(cell: Cell, last: AttemptSummary, survey: HostSurvey) -> bool:
    image = survey.images.get(cell.toolchain.name)
    drivers = {gpu.driver for gpu in devices_matching(cell.gpu, survey.facts.gpus)}
    now = (survey.sandbox.name, image.id if image is not None else None, measurement_version(cell.gpu.platform))
    if (last.engine, last.image_id, last.measurement_version) != now:
        return True
    return not cell.compile_only and last.driver not in drivers
