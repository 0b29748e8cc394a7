"""Conformance of a platform: named checks of what its code does on a real device, in parts, and the report of them.

The checks here are questions to records and measurements that were made before; nothing here runs anything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

REPORT_VERSION = 1


class CheckState(str, Enum):
    """Result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"
    """It does not apply to the device, or could not be made here; the evidence is the reason."""


@dataclass(frozen=True, slots=True)
class ConformanceCheck:
    """One check, with its evidence in words."""

    name: str
    state: CheckState
    evidence: str


@dataclass(frozen=True, slots=True)
class ConformancePart:
    """The checks of one subject."""

    name: str
    checks: tuple[ConformanceCheck, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConformanceReport:
    """All checks of one platform on one device; its JSON form is ``schemas/conformance.schema.json``."""

    platform: str
    device: Mapping[str, Any]
    """The device in the form of records."""
    toolchain: Mapping[str, str]
    """Package → version of what ran on it."""
    sandbox: str
    host: str
    """Kernel, architecture and distribution."""
    kernel_matrix: str
    """Version."""
    measurement_version: str
    """Hash of the code that determines a measurement; see :mod:`kernel_matrix.hosts.code_versions`."""
    started_at: str
    seconds: float
    quick: bool
    """True: fewer sessions and shorter measurements."""
    parts: Sequence[ConformancePart]
    schema_version: int = REPORT_VERSION

    def count(self, state: CheckState) -> int:
        """Return the number of checks with this result."""
        return sum(check.state is state for part in self.parts for check in part.checks)

    @property
    def passed(self) -> bool:
        """True if no check failed."""
        return not self.count(CheckState.FAILED)


def decide(name: str, evidence: str, *, holds: bool | None) -> ConformanceCheck:
    """Return the check that passed if something holds, and was skipped if it is not known."""
    states = {True: CheckState.PASSED, False: CheckState.FAILED, None: CheckState.SKIPPED}
    return ConformanceCheck(name, states[holds], evidence)
