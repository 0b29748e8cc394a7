"""What every format becomes: measurements, before they are rows of tables."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kernel_matrix.model.enums import Status
from kernel_matrix.sources import UnreadableItem
from kernel_matrix.sources.json_files import JsonFile

MEAN: Final = "mean_not_median"
"""Label: the file has no median; what the tables call one is a mean."""
UNTIMED: Final = "not_timed"
"""Label: it passed, and the file has no time of it."""
HOST_CLOCK: Final = "host_clock"
"""Label: the times are those of the host's clock, not of the device."""

EAGER: Final = "torch"
"""Candidate: the reference as it stands."""
DEFAULT: Final = "default"
"""Workload of a problem that has but one."""

LONGEST_MESSAGE: Final = 2000
"""Characters of what a file says of a failure that are kept."""

NS_PER_MS: Final = 1e6
NS_PER_S: Final = 1e9


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMeasurement:
    """What a file says of one candidate on one workload: one session of one cell."""

    problem: str
    candidate: str
    gpu: str | None
    """The device as a person typed it."""
    workload: str = DEFAULT
    status: Status = Status.PASSED
    message: str | None = None
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Further columns of ``cells``; those that are not there are null."""
    host: Mapping[str, Any] = field(default_factory=dict)
    """Columns of ``hosts`` that are known."""
    labels: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    samples: tuple[Mapping[str, Any], ...] = ()
    """Rows of ``samples``, in the order they were taken, all of the candidate; the columns that are known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedFile:
    """What one file holds."""

    path: Path
    place: Path
    """The folder it lies in, whatever links led there."""
    format: str
    sha256: str
    measured: tuple[ImportedMeasurement, ...]
    version: str = ""
    """Which version of the problem set, where it has several whose times must not meet."""
    refused: tuple[UnreadableItem, ...] = ()
    notes: tuple[str, ...] = ()

    @property
    def machine(self) -> str:
        """Name of the folder of the file."""
        return self.place.name


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportFormat:
    """One form in which others write results."""

    name: str
    said: str
    """What it is, in a few words."""
    knows: Callable[[Any], bool]
    """Whether a document, whatever it is, looks like this form."""
    read: Callable[[JsonFile], Sequence[ImportedMeasurement]]
    """Its measurements; what is wrong within goes to the file's refusals.

    :raises BadValueError: when the document as a whole is something else.
    """
    version: Callable[[JsonFile], str] = lambda _file: ""
    join: Callable[[Sequence[ImportedFile]], Sequence[ImportedFile]] = tuple
    """What files of this form say together: baselines that lie in files of their own."""
