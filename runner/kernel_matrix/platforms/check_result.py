"""Result of a check of the doctor: a verdict, what was found, and advice."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class CheckVerdict(str, Enum):
    """Meaning of a check's result for cells on this host."""

    OK = "ok"
    """There is nothing to do."""
    WARN = "warn"
    """Cells run, but fewer of them or with less reliable results; or the check could not find out."""
    FAIL = "fail"
    """Cells that need this cannot run here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line of ``kernel-matrix doctor``."""

    subject: str
    """Name of the checked thing, such as ``Docker daemon`` or ``MIG``."""
    verdict: CheckVerdict
    found: str
    """Sentence about the state that the check found."""
    advice: str = ""
    """Advice; empty if there is nothing to do."""


def ok(subject: str, found: str) -> CheckResult:
    """Make a result with nothing to do."""
    return CheckResult(subject=subject, verdict=CheckVerdict.OK, found=found)


def warn(subject: str, found: str, advice: str) -> CheckResult:
    """Make a result with which cells still run."""
    return CheckResult(subject=subject, verdict=CheckVerdict.WARN, found=found, advice=advice)


def fail(subject: str, found: str, advice: str) -> CheckResult:
    """Make a result with which cells cannot run, or not as the matrix wants them."""
    return CheckResult(subject=subject, verdict=CheckVerdict.FAIL, found=found, advice=advice)
