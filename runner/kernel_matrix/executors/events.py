"""What a run tells whoever watches it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record


class EventKind(str, Enum):
    """What an event tells."""

    BUILD_STARTED = "build_started"
    """A candidate is being compiled."""
    BUILD_ENDED = "build_ended"
    """It was, or was not."""
    CELL_STARTED = "cell_started"
    """A cell has a lane."""
    CELL_ENDED = "cell_ended"
    """A record was written."""
    CELL_RETRIED = "cell_retried"
    """The machine failed the cell; it is tried again: at once, or on another GPU when this one is quarantined."""
    CELL_SKIPPED = "cell_skipped"
    """The deadline is too near to begin it."""
    SANDBOX_LOST = "sandbox_lost"
    """The sandbox does not answer, which was found after ``cell``; nothing is begun until it does."""
    SANDBOX_BACK = "sandbox_back"
    """The sandbox answers again, and the run goes on."""
    GPU_QUARANTINED = "gpu_quarantined"
    """Nothing more runs on this GPU in this run; ``text`` says why, ``cell`` is the one after which it was found."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """Something happened. ``record`` is there when a cell ended."""

    happening: EventKind
    cell: Cell
    lane: str = ""
    """UUID of the device."""
    record: Record | None = None
    text: str = ""
