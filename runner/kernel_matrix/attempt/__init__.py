"""One attempt at one cell on this host, from the lease to the record.

:func:`run_cell` takes the lease, runs the judge and the contestants session by session, checks the health of the GPU,
decides the outcome and returns the record. Candidates are built earlier, without a lease, in
:mod:`kernel_matrix.attempt.building`; :func:`compile_only` handles cells that are only built.
"""

from kernel_matrix.attempt.assignment import Assignment, AttemptResult, CellCancelledError, RunContext
from kernel_matrix.attempt.attempt import Attempt
from kernel_matrix.attempt.compileonly import absent_gpu, compile_only
from kernel_matrix.attempt.session_prefetch import DEPTH, SessionPrefetch

__all__ = [
    "DEPTH",
    "Assignment",
    "AttemptResult",
    "CellCancelledError",
    "RunContext",
    "SessionPrefetch",
    "absent_gpu",
    "compile_only",
    "run_cell",
]


def run_cell(assignment: Assignment, context: RunContext, ahead: SessionPrefetch | None = None) -> AttemptResult:
    """Run a cell and return its record and telemetry trace, neither of which is stored here.

    ``ahead`` starts the processes of later sessions early, and keeps a judge for several cells.

    Raises:
        CellCancelledError: If the run was cancelled meanwhile.
    """
    return Attempt(assignment, context, ahead).run()
