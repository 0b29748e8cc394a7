"""One cell on this host, from start to record.

``run_cell`` is the whole path: lease → judge and contestants, session after session → health of the GPU → outcome →
record. Building comes before, off the lease, in :mod:`kernel_matrix.attempt.building`; ``compile_only``
is the path of a cell that is built and nothing more.
"""

from kernel_matrix.attempt.assignment import Assignment, AttemptResult, CellCancelledError, RunContext
from kernel_matrix.attempt.attempt import Attempt
from kernel_matrix.attempt.compileonly import absent_gpu, compile_only
from kernel_matrix.attempt.session_prefetch import SessionPrefetch

__all__ = [
    "Assignment",
    "AttemptResult",
    "CellCancelledError",
    "RunContext",
    "SessionPrefetch",
    "absent_gpu",
    "compile_only",
    "run_cell",
]


def run_cell(assignment: Assignment, bench: RunContext, ahead: SessionPrefetch | None = None) -> AttemptResult:
    """Run a cell and say what happened; neither record nor trace is stored here.

    :param ahead: what its lane starts before its turn, in a GPU's lane; null: everything starts in its turn.
    :raises CellCancelledError: when the bench's run was called off meanwhile.
    """
    return Attempt(assignment, bench, ahead).run()
