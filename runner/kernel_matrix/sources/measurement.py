"""Imported measurements, the common form of all import formats."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kernel_matrix.model.enums import Status
from kernel_matrix.sources import UnreadableItem
from kernel_matrix.sources.json_files import JsonFile

MEAN: Final = "mean_not_median"
"""Label: the file has no median, so the median columns have a mean."""
UNTIMED: Final = "not_timed"
"""Label: the candidate passed, but the file has no time for it."""
HOST_CLOCK: Final = "host_clock"
"""Label: the times are from the host's clock, not from the device."""

EAGER: Final = "torch"
"""Candidate name of the unchanged reference."""
DEFAULT: Final = "default"
"""Workload name for problems with a single workload."""

LONGEST_MESSAGE: Final = 2000
"""Maximum length of an imported error message, in characters."""

NS_PER_MS: Final = 1e6
NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMeasurement:
    """Result of one candidate on one workload, imported as one session of one cell."""

    problem: str
    candidate: str
    gpu: str | None
    """Device name as written in the file."""
    workload: str = DEFAULT
    status: Status = Status.PASSED
    message: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of ``cells``; missing ones are null."""
    host: Mapping[str, Any] = field(default_factory=dict)
    """Known columns of ``hosts``."""
    labels: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    samples: tuple[Mapping[str, Any], ...] = ()
    """Rows of ``samples`` of the candidate in the order of measurement, with the known columns."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """Measurements of one file."""

    path: Path
    place: Path
    """Its folder, with links resolved."""
    format: str
    sha256: str
    measured: tuple[ImportedMeasurement, ...]
    version: str = ""
    """Version of the problem set, if it has several whose times must not be compared."""
    refused: tuple[UnreadableItem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def machine(self) -> str:
        """Name of the machine, which is the name of the folder."""
        return self.place.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFormat:
    """One file format of results from other tools."""

    name: str
    description: str
    """Short description for messages."""
    knows: Callable[[Any], bool]
    """Returns True if a parsed document looks like this format."""
    read: Callable[[JsonFile], Sequence[ImportedMeasurement]]
    """Reads the measurements, and adds faulty entries to the refusals of the file.

    Raises ``BadValueError`` if the document as a whole is in another form.
    """
    version: Callable[[JsonFile], str] = lambda _file: ""
    join: Callable[[Sequence[ImportedFile]], Sequence[ImportedFile]] = tuple
    """Completes the files of this format from each other, such as times with baselines from other files."""
