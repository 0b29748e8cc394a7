"""The start of a night: a lock, a folder of its own, and the cells that are due first."""

from __future__ import annotations

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date
from itertools import count

from kernel_matrix.errors import GpuBusyError, StoreError
from kernel_matrix.executors.local import Rerun, cells_to_run
from kernel_matrix.hosts.survey import HostSurvey
from kernel_matrix.nightly.paths import NightPaths
from kernel_matrix.nightly.state import NightState
from kernel_matrix.plan import Cell
from kernel_matrix.results.store import RecordStore


@dataclass(frozen=True, slots=True, kw_only=True)
class NightAgenda:
    """The order of a night's cells: every cell once, first those that the last night did not come to."""

    due: Sequence[Cell]
    """Not measured in the last night; none where it came to its end, or where there was none."""
    others: Sequence[Cell]


@contextmanager
def one_at_a_time(places: NightPaths) -> Iterator[None]:
    """Hold the lock on nights of this matrix in this results folder.

    Raises:
        GpuBusyError: Another night holds it.
        StoreError: The folder cannot be written to.
    """
    try:
        places.lock.parent.mkdir(parents=True, exist_ok=True)
        file = places.lock.open("a")
    except OSError as error:
        raise StoreError(f"{places.lock} cannot be written: {error.strerror}") from None
    with file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise GpuBusyError(
                f"another night of {places.matrix} goes on in {places.results}", next_step="Let it end, then try again."
            ) from None
        yield


def agenda(cells: Sequence[Cell], last: NightState | None, places: NightPaths, survey: HostSurvey) -> NightAgenda:
    """Return which of ``cells`` are due, and which come after them.

    A cell that changed since has another id, and is due as well. Where the last night came to its end, and where its
    folder is gone, no cell goes before another.
    """
    folder = places.nights / last.night if last is not None else None
    if folder is None or not folder.is_dir():
        return NightAgenda(due=(), others=tuple(cells))
    due = cells_to_run(cells, RecordStore(folder), survey, Rerun.NONE)
    first = {cell.id for cell in due}
    return NightAgenda(due=due, others=tuple(cell for cell in cells if cell.id not in first))


def new_night(places: NightPaths, today: date) -> str:
    """Make the folder of a new night and return its name.

    Raises:
        StoreError: It cannot be made.
    """
    for number in count(1):
        name = today.isoformat() + (f".{number}" if number > 1 else "")
        try:
            (places.nights / name).mkdir(parents=True)
        except FileExistsError:
            continue
        except OSError as error:
            raise StoreError(f"{places.nights / name} cannot be made: {error.strerror}") from None
        return name
    raise AssertionError("there is always a next number")
