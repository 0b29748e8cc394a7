"""Compatibility of drivers with ROCm releases, and of PyTorch builds with GPUs, from a table (``compatibility.toml``).

Each query is a method of :class:`RocmCompatibility` that returns the reason as one sentence, or ``None`` if the table
has none. A version that the table does not have is no reason; :meth:`RocmCompatibility.gaps` lists those.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernel_matrix.platforms.language_limits import LanguageLimits, read_language_limits, read_rows
from kernel_matrix.platforms.versions import is_between, is_older, is_same_minor
from kernel_matrix.toml_text import parse_toml

_MODULE_VERSION = re.compile(r"\d+(\.\d+)+")
"""Version of AMD's own module. The module that comes with Linux has none, and what stands for it is not compared."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RocmDriverRow:
    """Drivers that run the programs of one ROCm release."""

    rocm: str
    minimum: str
    before: str = ""
    """First driver that AMD does not list for the release; empty if it lists all later ones."""
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RocmWheelRow:
    """Architectures that PyTorch's builds for one ROCm release contain code for."""

    rocm: str
    torch_from: str
    torch_before: str = ""
    """First version that the row does not apply to; empty if it applies to all later ones."""
    architectures: tuple[str, ...]
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RocmCompatibility:
    """The whole table."""

    drivers: tuple[RocmDriverRow, ...]
    wheels: tuple[RocmWheelRow, ...]
    limits: LanguageLimits

    def driver_skip_reason(self, *, rocm: str, driver: str | None) -> str | None:
        """Return why ``driver`` cannot run the programs of a ROCm release."""
        row = self._driver_row(rocm)
        if row is None or not _is_comparable(driver) or not is_older(str(driver), row.minimum):
            return None
        return f"driver amdgpu {driver} is too old; ROCm {rocm} needs amdgpu {row.minimum} or newer"

    def driver_note(self, *, rocm: str, driver: str | None) -> str | None:
        """Return a note if AMD no longer lists the release for a driver as new as ``driver``."""
        row = self._driver_row(rocm)
        if row is None or not row.before or not _is_comparable(driver) or is_older(str(driver), row.before):
            return None
        return f"AMD lists ROCm {rocm} for drivers older than amdgpu {row.before} only; here is amdgpu {driver}"

    def code_skip_reason(self, *, rocm: str, torch: str, architecture: str | None) -> str | None:
        """Return why the build of ``torch`` for ``rocm`` has no code that a device can run."""
        row = self._wheel_row(rocm, torch)
        if row is None or architecture is None or architecture in row.architectures:
            return None
        return f"torch {torch} for ROCm {rocm} has code for {', '.join(row.architectures)}, and none for {architecture}"

    def gaps(self, *, rocm: str, torch: str) -> tuple[str, ...]:
        """Return one sentence for each version of a toolchain that the table does not have."""
        unknown = []
        if self._driver_row(rocm) is None:
            unknown.append(f"ROCm {rocm} is not in the compatibility table: drivers are not checked")
        if self._wheel_row(rocm, torch) is None:
            what = f"torch {torch} for ROCm {rocm} is not in the compatibility table"
            unknown.append(f"{what}: architectures are not checked")
        return tuple(unknown)

    def _driver_row(self, rocm: str) -> RocmDriverRow | None:
        return next((row for row in self.drivers if is_same_minor(row.rocm, rocm)), None)

    def _wheel_row(self, rocm: str, torch: str) -> RocmWheelRow | None:
        rows = (row for row in self.wheels if is_same_minor(row.rocm, rocm))
        return next((row for row in rows if is_between(torch, row.torch_from, row.torch_before)), None)


@cache
def compatibility() -> RocmCompatibility:
    """Return the table that comes with this program."""
    return read_compatibility(Path(__file__).with_suffix(".toml"))


def read_compatibility(path: Path) -> RocmCompatibility:
    """Read a table.

    Raises:
        TypeError: if a row has an unknown key or lacks one, such as its source.
    """
    document = parse_toml(path.read_text(encoding="utf-8"))
    return RocmCompatibility(
        drivers=read_rows(RocmDriverRow, document["drivers"]),
        wheels=read_rows(RocmWheelRow, document["wheels"]),
        limits=read_language_limits(path),
    )


def _is_comparable(driver: str | None) -> bool:
    return driver is not None and _MODULE_VERSION.fullmatch(driver) is not None
