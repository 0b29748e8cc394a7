"""Events of a run, for its observers."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kernel_matrix.plan import Cell
from kernel_matrix.results.record import Record


class EventKind(str, Enum):
    """Kind of an event."""

    BUILD_STARTED = "build_started"
    """A candidate is being compiled."""
    BUILD_ENDED = "build_ended"
    """Its compilation has ended, with or without success."""
    CELL_STARTED = "cell_started"
    """A lane has taken a cell."""
    CELL_ENDED = "cell_ended"
    """The cell has ended and its record was written."""
    CELL_RETRIED = "cell_retried"
    """The machine failed the cell. It is retried, on another GPU if this one is quarantined."""
    CELL_SKIPPED = "cell_skipped"
    """The cell is not started: the deadline is too near, or another process has it now."""
    SANDBOX_LOST = "sandbox_lost"
    """The sandbox stopped answering, noticed after ``cell``; nothing starts until it answers."""
    SANDBOX_BACK = "sandbox_back"
    """The sandbox answers again, and the run continues."""
    GPU_QUARANTINED = "gpu_quarantined"
    """Nothing more runs on this GPU in this run; ``text`` gives the reason, ``cell`` the last cell before."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEvent:
    """One event of a run. ``record`` is set when a cell has ended."""

    happening: EventKind
    cell: Cell
    lane: str = ""
    """UUID of the device, or name of a lane without one."""
    record: Record | None = None
    text: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunMessage:
    """A line for people."""

    text: str
    is_error: bool = False
    """True: a machine is not in the state it should be in."""
    is_warning: bool = False
    """True: less runs than was asked for, or what runs is worth less."""


@dataclass(frozen=True, slots=True)
class RunStatus:
    """A line for people that says what runs where now; it replaces the previous one."""

    text: str
