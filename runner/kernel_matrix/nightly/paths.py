"""Paths in the results folder.

::

    <results>/accepted.toml                      accepted changes
    <results>/baselines/NAME/                    a frozen copy of merged tables
    <results>/<matrix>/nightly.json              what the last night left for the next
    <results>/<matrix>/nights/<date>/            one night: records/, traces/, runs/
    <results>/<matrix>/nights/<date>/tables/     the same, merged
    <results>/<matrix>/nights/<date>/report.html
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class NightPaths:
    """The files of the nights of one matrix.

    Args:
        results: The folder that all results are in.
        matrix: The matrix's name.
    """

    results: Path
    matrix: str

    @property
    def state(self) -> Path:
        """The state file."""
        return self.results / self.matrix / "nightly.json"

    @property
    def lock(self) -> Path:
        """The lock file, held while a night of this matrix goes on."""
        return self.results / self.matrix / "nightly.lock"

    @property
    def nights(self) -> Path:
        """The folder of all nights."""
        return self.results / self.matrix / "nights"


def accepted_file(results: Path) -> Path:
    """Return the file of accepted changes of all matrices."""
    return results / "accepted.toml"


def baselines_folder(results: Path) -> Path:
    """Return the folder of all baselines."""
    return results / "baselines"


def is_night_name(text: str) -> bool:
    """Return whether ``text`` may name a night: a plain file name that is not hidden."""
    return bool(text) and not text.startswith(".") and Path(text).name == text


def tables_of(night: Path) -> Path:
    """Return the folder of a night's merged tables."""
    return night / "tables"
