"""Result of scanning a source."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """One finding of a rule, with the source line that shows it."""

    rule: str
    """Key in :data:`kernel_matrix.scan.RULES`."""
    line: int | None
    """Line of the file, from 1; ``None`` if something is missing from the file."""
    message: str
    """One sentence for the report."""
    evidence: str
    """The source line, stripped and cut to :data:`MOST_EVIDENCE` characters."""


@dataclass(frozen=True, slots=True)
class SourceScan:
    """Kernels and findings of one source."""

    own_kernels: tuple[str, ...]
    """Names of the kernels that the source defines, sorted."""
    findings: tuple[RuleMatch, ...]


MOST_EVIDENCE = 160
