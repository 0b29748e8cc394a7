"""Input and result of one attempt at a cell."""

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
    """The cell was cancelled. It leaves no record and remains to be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunContext:
    """The sandbox, folders and identifiers that all cells of a run share on this host."""

    run_id: str
    sandbox: Sandbox
    sandbox_status: SandboxStatus
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
    """Result of the build; None if the language needs none."""
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class AttemptResult:
    """The record and telemetry of one attempt."""

    record: Record
    trace: TelemetryTrace | None
    """All telemetry of the host; None if there was none."""
    quarantine: str = ""
    """Reason why no further cell of this run may use this GPU; empty if there is none."""
