"""What was observed of a platform, and the parts of the report that are made of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from kernel_matrix.conformance import ConformanceCheck, ConformancePart
from kernel_matrix.conformance.cheats import Cheat
from kernel_matrix.inside.device_measurements import DeviceMeasurements
from kernel_matrix.platforms import DeviceModes, Gpu
from kernel_matrix.platforms.peaks import Peak
from kernel_matrix.results.record import Record


@dataclass(frozen=True, slots=True, kw_only=True)
class PlatformFindings:
    """Everything that the checks ask."""

    gpu: Gpu
    is_accelerator: bool
    cheats: Sequence[Cheat]
    records: Mapping[str, Record]
    """Id of a candidate → record of its last attempt."""
    not_run: Mapping[str, str]
    """Id of a candidate → why it could not run."""
    measured: DeviceMeasurements | str
    """The probe's measurements, or why there are none."""
    modes: tuple[DeviceModes, DeviceModes]
    """The device's modes before and after everything else."""
    peak: Peak | None
    """The data sheet's rates; None for a device that is in no table."""


Checks = Callable[[PlatformFindings], Iterator[ConformanceCheck]]


def make_parts(findings: PlatformFindings, parts: Mapping[str, Checks]) -> tuple[ConformancePart, ...]:
    """Make the checks of each part."""
    return tuple(ConformancePart(name, tuple(checks(findings))) for name, checks in parts.items())
