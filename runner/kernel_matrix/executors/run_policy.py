"""How a run goes about its cells."""

from __future__ import annotations

import time
from dataclasses import dataclass

from kernel_matrix.plan import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """How a run goes about its cells, whichever executor runs them."""

    run_id: str
    fail_fast: bool = False
    """Stop at the first cell that does not pass."""
    deadline: float | None = None
    """Monotonic time after which no cell is begun, and none that is expected to end later."""
    sandbox_wait_s: float = 300.0
    """How long a sandbox that has stopped answering is waited for: a daemon is upgraded within a minute or two."""
    build_workers: int = 0
    """Builds at once; 0: as :func:`~kernel_matrix.attempt.buildpool.builds_at_once` says."""

    def is_too_late(self, cell: Cell) -> bool:
        """Return whether ``cell``, begun now, is expected to end past the deadline."""
        return self.deadline is not None and time.monotonic() + cell.expected_s > self.deadline
