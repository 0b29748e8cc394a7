"""Rules of a run, common to all executors."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from kernel_matrix.plan import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPolicy:
    """Rules of a run: when it stops, how long it waits, and how much it builds at once."""

    run_id: str
    fail_fast: bool = False
    """Stop at the first cell that does not pass."""
    deadline: float | None = None
    """Monotonic time after which no cell starts, nor any cell that is expected to end later."""
    sandbox_wait_s: float = 300.0
    """Longest wait for a sandbox that has stopped answering; upgrading a daemon takes a minute or two."""
    build_workers: int = 0
    """Concurrent builds; 0: the number given by :func:`~kernel_matrix.attempt.buildpool.builds_at_once`."""

    withdrawn: Callable[[], Collection[str]] = frozenset
    """Returns the ids of cells that others have taken over in the meantime; called before each cell."""

    measured_on: Mapping[str, Collection[str]] = field(default_factory=dict)
    """Cell id → UUIDs of devices that have measured it, where it has to run on another one."""

    keeps_judge_s: float = 0.0
    """How long a judge that others could be judged with waits for another cell, and keeps its device meanwhile."""

    def why_skipped(self, cell: Cell) -> str:
        """Return why ``cell`` is not to be started now; empty if it is."""
        if self.deadline is not None and time.monotonic() + cell.expected_s > self.deadline:
            return f"expected to take {cell.expected_s:.0f} s, which is past the deadline"
        return "another chunk has it now" if cell.id in self.withdrawn() else ""
