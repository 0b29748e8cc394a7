"""Compatibility of drivers with CUDA versions, and of PyTorch builds with GPUs, from a table (``compatibility.toml``).

Each query is a method of :class:`Compatibility` that returns the reason as one sentence, or ``None`` if the table has
none. A version that the table does not have is no reason; :meth:`Compatibility.gaps` lists those.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from kernel_matrix.platforms.language_limits import LanguageLimits, read_language_limits, read_rows
from kernel_matrix.platforms.versions import Version, is_between, is_older, is_same_minor, parse_version
from kernel_matrix.toml_text import parse_toml


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverRow:
    """Oldest Linux driver that runs the toolkits of one major version of CUDA."""

    cuda_major: int
    minimum: str
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolkitRow:
    """Driver that a CUDA toolkit was released with, which is the oldest one that compiles its PTX."""

    cuda: str
    driver: str
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WheelRow:
    """Compute capabilities that PyTorch's builds for one CUDA version contain code for."""

    cuda: str
    torch_from: str
    torch_before: str = ""
    """First version that the row does not apply to; empty if it applies to all later ones."""
    cubins: tuple[str, ...]
    """Targets of machine code, which runs on devices of the same major and an equal or later minor number."""
    ptx: tuple[str, ...]
    """Targets of intermediate code, which the driver compiles for any later compute capability."""
    source: str
    confidence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compatibility:
    """The whole table."""

    drivers: tuple[DriverRow, ...]
    toolkits: tuple[ToolkitRow, ...]
    wheels: tuple[WheelRow, ...]
    limits: LanguageLimits

    def driver_skip_reason(self, *, cuda: str, driver: str | None, cuda_driver: str | None = None) -> str | None:
        """Return why ``driver`` cannot run programs built with a CUDA version.

        Args:
            cuda: version of CUDA.
            driver: version of the driver.
            cuda_driver: newest CUDA version that the driver reports, for the message.
        """
        row = self._driver_row(cuda)
        if row is None or driver is None or not is_older(driver, row.minimum):
            return None
        upto = f" runs CUDA up to {cuda_driver}" if cuda_driver else " is too old"
        return f"driver {driver}{upto}; CUDA {cuda} needs driver {row.minimum} or newer"

    def driver_note(self, *, cuda: str, driver: str | None) -> str | None:
        """Return a note that PTX does not work if ``driver`` runs ``cuda`` only by minor-version compatibility."""
        row = self._toolkit_row(cuda)
        if row is None or driver is None or not is_older(driver, row.driver):
            return None
        return (
            f"driver {driver} is older than CUDA {cuda} (released with {row.driver}): "
            "machine code runs by minor-version compatibility, PTX does not"
        )

    def code_skip_reason(
        self, *, cuda: str, torch: str, compute_capability: str | None, driver: str | None
    ) -> str | None:
        """Return why the build of ``torch`` for ``cuda`` has no code that a device can run."""
        row, device = self._wheel_row(cuda, torch), parse_version(compute_capability)
        if row is None or device is None or any(_runs_cubin(device, cubin) for cubin in row.cubins):
            return None
        has = f"torch {torch} for CUDA {cuda} has machine code for {', '.join(row.cubins)}"
        if not any(device >= (parse_version(ptx) or ()) for ptx in row.ptx):
            return f"{has} and no PTX that compute capability {compute_capability} could use"
        if self.driver_note(cuda=cuda, driver=driver) is None:
            return None
        return f"{has}, and driver {driver} is too old to compile its PTX for compute capability {compute_capability}"

    def gaps(self, *, cuda: str, torch: str) -> tuple[str, ...]:
        """Return one sentence for each version of a toolchain that the table does not have."""
        unknown = [
            f"CUDA {cuda} is not in the compatibility table: drivers are not checked"
            for row in (self._driver_row(cuda), self._toolkit_row(cuda))
            if row is None
        ][:1]
        if self._wheel_row(cuda, torch) is None:
            unknown.append(
                f"torch {torch} for CUDA {cuda} is not in the compatibility table: compute capabilities are not checked"
            )
        return tuple(unknown)

    def _driver_row(self, cuda: str) -> DriverRow | None:
        version = parse_version(cuda)
        return next((row for row in self.drivers if version and row.cuda_major == version[0]), None)

    def _toolkit_row(self, cuda: str) -> ToolkitRow | None:
        return next((row for row in self.toolkits if is_same_minor(row.cuda, cuda)), None)

    def _wheel_row(self, cuda: str, torch: str) -> WheelRow | None:
        rows = (row for row in self.wheels if is_same_minor(row.cuda, cuda))
        return next((row for row in rows if is_between(torch, row.torch_from, row.torch_before)), None)


@cache
def compatibility() -> Compatibility:
    """Return the table that comes with this program."""
    return read_compatibility(Path(__file__).with_suffix(".toml"))


def read_compatibility(path: Path) -> Compatibility:
    """Read a table.

    Raises:
        TypeError: if a row has an unknown key or lacks one, such as its source.
    """
    document = parse_toml(path.read_text(encoding="utf-8"))
    return Compatibility(
        drivers=read_rows(DriverRow, document["drivers"]),
        toolkits=read_rows(ToolkitRow, document["toolkits"]),
        wheels=read_rows(WheelRow, document["wheels"]),
        limits=read_language_limits(path),
    )


def _runs_cubin(device: Version, cubin: str) -> bool:
    version = parse_version(cubin) or (0, 0)
    return version[0] == device[0] and version[1:] <= device[1:]
