"""One cell on this host, from start to record.

``run_cell`` is the whole path: lease → judge and candidate, session after session → health of the GPU → outcome →
record. Building comes before, off the lease, in :mod:`runner.cell.building`.
"""

from runner.cell.assignment import Assignment, Bench, CellCancelledError, Ran
from runner.cell.attempt import Attempt

__all__ = ["Assignment", "Bench", "CellCancelledError", "Ran", "run_cell"]


def run_cell(assignment: Assignment, bench: Bench) -> Ran:
    """Run a cell and say what happened; neither record nor trace is stored here.

    :raises CellCancelledError: when the bench's run was called off meanwhile.
    """
    return Attempt(assignment, bench).run()
