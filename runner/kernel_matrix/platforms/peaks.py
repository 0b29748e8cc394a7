"""Peak rates of devices: FLOP/s per dtype and bytes/s, from a table of data sheets or from a calibration.

The table (``peaks.toml``) is looked up by product name. A device that is not in it has a peak only after
``kernel-matrix gpus calibrate`` has measured it; the result is kept on this host under the device's UUID.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any

from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.platforms import Gpu
from kernel_matrix.toml_text import parse_toml
from kernel_matrix.untrusted_json import NoSuchFileError, read_object

STATE_DIR_VARIABLE = "KERNEL_MATRIX_STATE_DIR"

TABLE = "table"
CALIBRATION = "calibration"
UNKNOWN = "unknown"

_TABLE = Path(__file__).with_name("peaks.toml")
_SHARED_STATE = Path("/var/lib/kernel-matrix")
_OWN_STATE = Path(".local/state/kernel-matrix")


@dataclass(frozen=True, slots=True, kw_only=True)
class Peak:
    """Peak rates of a device, and their origin."""

    source: str
    """``table``, ``calibration`` or ``unknown``."""
    reference: str
    """Data sheet, file of the calibration, or reason why nothing is known."""
    bytes_per_s: float | None = None
    """Memory bandwidth."""
    flops_per_s: Mapping[str, float] = field(default_factory=dict)
    """Dtype, or ``tf32`` → FLOP/s of dense arithmetic; a dtype that is absent is unknown."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Row:
    """Row of the table."""

    names: tuple[str, ...]
    """Globs that match NVML's product names."""
    source: str
    bytes_per_s: float
    flops_per_s: Mapping[str, float]


def peak_of(gpu: Gpu) -> Peak:
    """Return the peak of ``gpu`` from the table, else from its calibration, else an unknown one with the reason."""
    peak = peak_in_table(gpu.name)
    if peak is not None:
        return peak
    path = calibration_file(gpu)
    try:
        return _read_calibration(gpu, path)
    except NoSuchFileError:
        return Peak(
            source=UNKNOWN,
            reference=f"{gpu.name} is not in the table, and was not calibrated: run `kernel-matrix gpus calibrate`",
        )
    except ValueError as error:
        return Peak(source=UNKNOWN, reference=f"the calibration {path} is ignored: {error}")


def peak_in_table(name: str) -> Peak | None:
    """Return the table's peak of a product, named as the driver does; ``None`` if it is not in the table."""
    for row in _table():
        if any(fnmatchcase(name, glob) for glob in row.names):
            return Peak(
                source=TABLE, reference=row.source, bytes_per_s=row.bytes_per_s, flops_per_s=dict(row.flops_per_s)
            )
    return None


def calibration_folder() -> Path:
    """Return the folder of this host's calibrations, which may not exist yet.

    It is ``calibrations`` in ``$KERNEL_MATRIX_STATE_DIR``, else in ``/var/lib/kernel-matrix`` for root and in
    ``~/.local/state/kernel-matrix`` for other users.
    """
    if named := os.environ.get(STATE_DIR_VARIABLE):
        return Path(named) / "calibrations"
    return (_SHARED_STATE if os.geteuid() == 0 else Path.home() / _OWN_STATE) / "calibrations"


def calibration_file(gpu: Gpu) -> Path:
    """Return the file for the calibration of ``gpu``, which may not exist yet."""
    return calibration_folder() / f"{gpu.uuid}.json"


def write_calibration(gpu: Gpu, document: Mapping[str, Any]) -> Path:
    """Write the calibration of ``gpu`` over an earlier one, and return its file.

    Args:
        gpu: the device that was measured.
        document: the probe's result: ``bytes_per_s``, ``flops_per_s``, and how they were measured.

    Raises:
        ValueError: if ``document`` contains no usable measurement.
        OSError: if the folder cannot be written.
    """
    kept = {**document, "uuid": gpu.uuid}
    _read_measurement(gpu, kept)
    path = calibration_file(gpu)
    path.parent.mkdir(parents=True, exist_ok=True)
    replace_file(path, json.dumps(kept, indent=2) + "\n")
    return path


def _read_calibration(gpu: Gpu, path: Path) -> Peak:
    document = read_object(path, follow_links=True)
    bytes_per_s, flops_per_s = _read_measurement(gpu, document)
    return Peak(source=CALIBRATION, reference=str(path), bytes_per_s=bytes_per_s, flops_per_s=flops_per_s)


def _read_measurement(gpu: Gpu, document: Any) -> tuple[float, dict[str, float]]:
    """Return bytes/s and FLOP/s of a calibration of ``gpu``.

    Raises:
        ValueError: if ``document`` is not a calibration, or one of another device.
    """
    if not isinstance(document, Mapping) or document.get("kind") != "calibration":
        raise ValueError("it is not a calibration")
    if document.get("uuid") != gpu.uuid:
        raise ValueError(f"it belongs to {document.get('uuid')}")
    flops_per_s = document.get("flops_per_s")
    if not isinstance(flops_per_s, Mapping):
        raise ValueError("flops_per_s is not a table of dtypes")
    measured = {str(dtype): _check_rate(f"flops_per_s.{dtype}", value) for dtype, value in flops_per_s.items()}
    return _check_rate("bytes_per_s", document.get("bytes_per_s")), measured


def _check_rate(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not isfinite(value) or value <= 0:
        raise ValueError(f"{name} is {value!r}, not a positive number")
    return float(value)


@cache
def _table() -> tuple[_Row, ...]:
    rows = parse_toml(_TABLE.read_text(encoding="utf-8"))["gpus"]
    return tuple(_Row(**{**row, "names": tuple(row["names"])}) for row in rows)
