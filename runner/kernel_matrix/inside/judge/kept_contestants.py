"""Baseline and rivals that a judge keeps from one cell to the next."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Dict, Optional, Tuple

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.worker_client import WorkerClient
    from kernel_matrix.model.messages import InsideEnvironment


class KeptContestants:
    """Baseline and rivals of a judge; empty before its first cell."""

    def __init__(self) -> None:
        self.clients: Dict[str, WorkerClient] = {}
        """Contestants that wait for the next cell, by name. They have imported their sources, and have no model."""
        self.environment: Optional[InsideEnvironment] = None
        """Versions read in the judge's process."""
        self.earlier_cells = 0
        """Number of cells that these processes have served."""
        self.peaks: Dict[Tuple[str, str], int] = {}
        """(workload, contestant) → most device memory it took, bytes. Only its first cell sees libraries load code."""
        self.undo = ExitStack()
        """Closes the contestants' channels."""
