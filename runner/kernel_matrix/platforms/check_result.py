"""What a check finds: a verdict, what is there, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class CheckVerdict(str, Enum):
    """What a finding means for cells on this host."""

    OK = "ok"
    """Nothing to do."""
    WARN = "warn"
    """Cells run, but fewer of them, or worth less; or nobody could tell."""
    FAIL = "fail"
    """Cells that need this cannot run here."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckResult:
    """One line of ``kernel-matrix doctor``."""

    subject: str
    """What was looked at: ``Docker daemon``, ``MIG``."""
    verdict: CheckVerdict
    found: str
    """What is there, in words."""
    advice: str = ""
    """What to do; empty where there is nothing to do."""


def ok(subject: str, found: str) -> CheckResult:
    """All is well with ``subject``."""
    return CheckResult(subject=subject, verdict=CheckVerdict.OK, found=found)


def warn(subject: str, found: str, advice: str) -> CheckResult:
    """Cells run all the same."""
    return CheckResult(subject=subject, verdict=CheckVerdict.WARN, found=found, advice=advice)


def fail(subject: str, found: str, advice: str) -> CheckResult:
    """Cells cannot run, or not as the matrix wants them."""
    return CheckResult(subject=subject, verdict=CheckVerdict.FAIL, found=found, advice=advice)
