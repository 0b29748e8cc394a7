"""What one attempt at a cell is given, and what comes of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from runner.cell.building import Build
from runner.engines import Engine, EngineStatus
from runner.gpus import Gpu
from runner.images import Resolved
from runner.plan import Cell
from runner.results.record import Record
from runner.results.trace import Trace


class CellCancelledError(Exception):
    """The cell was called off; it leaves no record and stays to be done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bench:
    """What this host lends every cell of a run."""

    run_id: str
    engine: Engine
    engine_status: EngineStatus
    owner: str
    """Token of this process, for labels; see :mod:`runner.owner`."""
    scratch: Path
    """Folder for staging, on a local disk; other users may pass through it."""
    cancelled: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True, kw_only=True)
class Assignment:
    """One cell, where it runs, and what it runs with."""

    cell: Cell
    gpu: Gpu
    image: Resolved | None = None
    build: Build | None = None
    """What the builder made; null where the language needs none."""
    attempt: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """What one attempt left."""

    record: Record
    trace: Trace | None
    """All that the host's telemetry saw; null where there was none."""
    quarantine: str = ""
    """Why nothing more may run on this GPU in this run, in words; empty where it may."""
