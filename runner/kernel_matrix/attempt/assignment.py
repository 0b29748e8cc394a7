"""What one attempt at a cell is given, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.attempt.building import BuildResult
from kernel_matrix.images import ResolvedImage
from kernel_matrix.plan import Cell
from kernel_matrix.platforms import Gpu
from kernel_matrix.results.record import Record
from kernel_matrix.results.trace import TelemetryTrace
from kernel_matrix.sandboxes import Sandbox, SandboxStatus


class CellCancelledError(Exception):
    """The cell was called off; it leaves no record and stays to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """What this host lends every cell of a run."""

    run_id: str
    engine: Sandbox
    engine_status: SandboxStatus
    owner: str
    """Token of this process, for labels; see :mod:`kernel_matrix.hosts.process_token`."""
    scratch: Path
    """Folder for staging, on a local disk; other users may pass through it."""
    cancelled: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One cell, where it runs, and what it runs with."""

    cell: Cell
    gpu: Gpu
    image: ResolvedImage | None = None
    build: BuildResult | None = None
    """What the builder made; null where the language needs none."""
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """What one attempt left."""

    record: Record
    trace: TelemetryTrace | None
    """All that the host's telemetry saw; null where there was none."""
    quarantine: str = ""
    """Why nothing more may run on this GPU in this run, in words; empty where it may."""
