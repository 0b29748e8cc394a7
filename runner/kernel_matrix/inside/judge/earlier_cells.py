"""State that a judge keeps from one cell to the next: the baseline and rivals, and facts about the problem."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Dict, List, Optional, Tuple

if TYPE_CHECKING:
    from kernel_matrix.inside.input_properties import InputProperties
    from kernel_matrix.inside.judge.worker_client import WorkerClient
    from kernel_matrix.model.messages import InsideEnvironment


@dataclass
class WorkloadFacts:
    """Facts about one workload that do not depend on the candidate, found in the first cell."""

    properties: Optional[Tuple[Optional[InputProperties], ...]] = None
    """What each tensor among the inputs has in every draw; None if that was not looked for."""
    sensitivity: Optional[Tuple[float, ...]] = None
    """As :attr:`.Traits.sensitivity`; None if it was not measured."""
    rejects_lower_precision: Optional[bool] = None
    labels: List[str] = field(default_factory=list)
    """Labels that follow from these."""
    peaks: Dict[str, int] = field(default_factory=dict)
    """Contestant → most device memory it took, bytes. Only its first cell sees libraries load code."""
    launches: Dict[str, int] = field(default_factory=dict)
    """Baseline or rival → kernels that one call of it launched."""


class EarlierCells:
    """State that a judge keeps from one cell to the next; empty before its first cell."""

    def __init__(self) -> None:
        self.count = 0
        """Number of cells that the judge has served."""
        self.clients: Dict[str, WorkerClient] = {}
        """Baseline and rivals that wait for the next cell. They have imported their sources, and have no model."""
        self.environment: Optional[InsideEnvironment] = None
        """Versions read in the judge's process."""
        self.undo = ExitStack()
        """Closes the contestants' channels."""
        self._facts: Dict[str, WorkloadFacts] = {}

    def facts(self, workload: str) -> WorkloadFacts:
        """Return what is known of a workload, to be completed."""
        return self._facts.setdefault(workload, WorkloadFacts())
