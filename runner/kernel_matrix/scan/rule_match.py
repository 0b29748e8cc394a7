"""What reading a source comes to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class RuleMatch:
    """Something that a reader would want to know, with the line that shows it."""

    rule: str
    """Key in :data:`kernel_matrix.scan.RULES`."""
    line: int | None
    """Line of the file, from 1; null where it is the absence of something."""
    message: str
    """One sentence for a person."""
    evidence: str
    """The source line, stripped and cut to :data:`MOST_EVIDENCE` characters."""


@dataclass(frozen=True, slots=True)
class SourceScan:
    """All that was read out of one source."""

    own_kernels: tuple[str, ...]
    """Names of the kernels that the source defines, sorted."""
    findings: tuple[RuleMatch, ...]


MOST_EVIDENCE = 160
