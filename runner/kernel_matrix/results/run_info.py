"""Description of a run: one file per call of ``kernel-matrix run``, beside the records it made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from kernel_matrix.model.enums import Status
from kernel_matrix.model.fields import (
    LATER,
    Column,
    Count,
    Digest,
    Fragment,
    Instant,
    Items,
    Length,
    Name,
    RunId,
    Signed,
    Small,
)
from kernel_matrix.model.messages import SCHEMA_VERSION, to_json


@dataclass(frozen=True, slots=True, kw_only=True)
class RunHost:
    """The machine a run was started on."""

    hostname: str
    machine: str
    """SHA-256 prefix of the machine id."""
    platform: str
    cpu: str
    cores: Small


@dataclass(frozen=True, slots=True, kw_only=True)
class RunInfo:
    """Request and progress of one run; valid against ``schemas/run.schema.json``."""

    run_id: RunId
    matrix: Annotated[Name, Column()]
    """Name of the matrix; `None` where the run's file is missing."""
    matrix_sha256: Digest
    matrix_path: Name
    argv: Annotated[tuple[Annotated[str, Length(131_072)], ...], Items(100_000)]
    version: str
    """kernel-matrix version."""
    engine: Name
    host: RunHost
    started_at: Annotated[Instant, Column("run_started_at", form="instant")]
    """Start of the run."""
    ended_at: Instant | None
    """``None`` while it runs, and forever if it was killed."""
    planned: Count
    """Number of cells to run."""
    counts: Mapping[Status, Count]
    """Status → number of attempts that ended so."""
    interrupted: bool
    """Stopped by a signal, a deadline or ``--fail-fast`` before all planned cells ran."""
    clocks_ahead_s: Annotated[Mapping[Name, Signed], LATER] = field(default_factory=dict)
    """Node of a fleet whose clock differs from this machine's → by how many seconds, at least, it is ahead."""
    schema_version: Annotated[int, Fragment(const=SCHEMA_VERSION)] = SCHEMA_VERSION


def run_to_json(info: RunInfo) -> dict[str, Any]:
    """Return the run as the JSON object of its file."""
    counts = {status.value: number for status, number in info.counts.items()}
    return {**to_json(info), "counts": counts}
