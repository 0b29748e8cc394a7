"""One cell on this host, from start to record.

``run_cell`` is the whole path: lease → judge and contestants, session after session → health of the GPU → outcome →
record. Building comes before, off the lease, in :mod:`runner.cell.building`; ``compile_only``
is the path of a cell that is built and nothing more.
"""

from runner.cell.ahead import Ahead
from runner.cell.assignment import Assignment, Bench, CellCancelledError, Ran
from runner.cell.attempt import Attempt
from runner.cell.compileonly import absent_gpu, compile_only

__all__ = ["Ahead", "Assignment", "Bench", "CellCancelledError", "Ran", "absent_gpu", "compile_only", "run_cell"]


def run_cell(assignment: Assignment, bench: Bench, ahead: Ahead | None = None) -> Ran:
    """Run a cell and say what happened; neither record nor trace is stored here.

    :param ahead: what its lane starts before its turn, in a GPU's lane; null: everything starts in its turn.
    :raises CellCancelledError: when the bench's run was called off meanwhile.
    """
    return Attempt(assignment, bench, ahead).run()
