"""Imported measurements, the common form of all import formats."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from kernel_matrix.model.enums import Dtype, Status
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

_LONGEST_WORKLOAD: Final = 120

NS_PER_MS: Final = 1e6
NS_PER_S: Final = 1e9
NS_PER_UNIT: Final = {"ns": 1.0, "us": 1e3, "ms": NS_PER_MS, "s": NS_PER_S}
"""Unit of a time → nanoseconds."""

_DTYPE_NAMES: Final = {
    **{dtype.value: dtype for dtype in Dtype},
    "float32": Dtype.FP32,
    "float": Dtype.FP32,
    "float16": Dtype.FP16,
    "half": Dtype.FP16,
    "bfloat16": Dtype.BF16,
    "float64": Dtype.FP64,
    "double": Dtype.FP64,
    "float8_e4m3fn": Dtype.FP8_E4M3,
    "float8_e5m2": Dtype.FP8_E5M2,
}
"""Name of a dtype in lower case, ours or PyTorch's → dtype."""


def find_dtype(name: str) -> Dtype | None:
    """Return the dtype of a name such as ``fp16``, ``float16`` or ``torch.float16``; ``None`` if it is not known."""
    return _DTYPE_NAMES.get(name.strip().lower().removeprefix("torch."))


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedMeasurement:
    """Result of one candidate on one workload, imported as one session of one cell."""

    problem: str
    candidate: str
    gpu: str | None
    """Device name as written in the file; ``None`` if it is not in the file."""
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
    folder_is_machine: bool = False
    """The tool writes into a folder per machine, so that the name of the folder may be that of a GPU."""
    join: Callable[[Sequence[ImportedFile], Sequence[ImportedFile]], Sequence[ImportedFile]] = lambda own, _every: own
    """Completes the files of this format, the first argument, from those of the whole import, the second."""


def with_baseline(one: ImportedMeasurement, baseline: Mapping[str, Any]) -> ImportedMeasurement:
    """Return ``one`` with the time in the columns of another measurement as its baseline."""
    columns = {
        "baseline_median_ns": baseline["candidate_median_ns"],
        "baseline_samples": baseline.get("candidate_samples"),
    }
    return replace(one, columns={**one.columns, **columns})


def name_workload(size: Any) -> str:
    """Return ``256x256,256x256`` for the shapes of a row; a long name is cut and gets a digest."""
    name = ",".join(map(_format_shape, size)) if isinstance(size, list) else _format_shape(size)
    if len(name) <= _LONGEST_WORKLOAD:
        return name or DEFAULT
    return f"{name[:_LONGEST_WORKLOAD]}…{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _format_shape(value: Any) -> str:
    if isinstance(value, list):
        if all(type(size) is int for size in value):
            return "x".join(map(str, value)) or "scalar"
        return f"({','.join(map(_format_shape, value))})"
    return value if isinstance(value, str) else json.dumps(value)
