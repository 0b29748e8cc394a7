"""A fleet: sites of machines with GPUs, and which of them measures which cells.

This room knows no engine. :mod:`kernel_matrix.fleet.dispatcher` decides what runs where from what it is told; engines
in :mod:`kernel_matrix.executors.engines` submit jobs and say what became of them.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """Machines behind one engine; see ``schemas/fleet.schema.json`` for the keys."""

    name: str
    engine: str
    sandbox: str
    workspace: Path
    command: tuple[str, ...] = ()
    """Empty: this interpreter with ``-m kernel_matrix``."""
    gpus: tuple[str, ...] = ()
    """Empty: all that the engine has."""
    jobs: int | None = None
    hours: float | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def start(self) -> tuple[str, ...]:
        """The words that start kernel-matrix on a node."""
        return self.command or (sys.executable, "-m", "kernel_matrix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fleet:
    """A fleet file."""

    path: Path
    sites: tuple[Site, ...]
