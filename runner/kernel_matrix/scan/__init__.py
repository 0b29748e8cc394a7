"""Static rules over a candidate's source, which is parsed but never run.

A rule finds what running a candidate cannot show, such as a library call in place of a kernel, a kernel that is never
launched, or a replaced clock. A finding is a label with its source line, not a proof; the policy decides which rules
reject a candidate. To add one: one file here and one line in :data:`RULES`, or an entry point of another package in the
group ``kernel_matrix.rules``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.model.protocols import protocol_members
from kernel_matrix.plugins import Registry
from kernel_matrix.scan import (
    capture,
    decoy,
    entry,
    fallback,
    frames,
    hidden,
    lazy,
    library_calls,
    memo,
    precision,
    replaced_timers,
    streams,
    threads,
)
from kernel_matrix.scan.embedded_cpp import parse_cpp
from kernel_matrix.scan.kernel_names import own_kernels
from kernel_matrix.scan.rule_match import RuleMatch, SourceScan
from kernel_matrix.scan.source import ScannedSource, read_source

__all__ = ["RULES", "Rule", "RuleMatch", "SourceScan", "scan_files", "scan_text"]


class Rule(Protocol):
    """Module of a rule."""

    RULE: str
    """Name of the rule."""

    def find(self, source: ScannedSource) -> Iterator[RuleMatch]:
        """Yield the places that the rule matches, in any order; the source is parsed and never run."""
        ...


RULES: Registry[Rule] = Registry(
    "rule",
    "kernel_matrix.rules",
    {
        rule.RULE: rule
        for rule in (
            entry,
            library_calls,
            fallback,
            decoy,
            precision,
            replaced_timers,
            streams,
            threads,
            lazy,
            memo,
            frames,
            capture,
            hidden,
        )
    },
    members=protocol_members(Rule),
    name_member="RULE",
)
"""Name of a rule → its module, in the order of the report."""

MOST_FINDINGS = 20
"""Findings kept per rule; further ones of the same rule rarely add information."""


def scan_files(files: Mapping[str, bytes], language: Language, dtype: Dtype, *, entry: str = "ModelNew") -> SourceScan:
    """Scan a candidate of several files.

    The rules read the Python file that defines ``entry``. All files that are not Python are taken as C++, of which only
    the kernel names are read.

    Args:
        files: content by file name.
        language: language of the candidate.
        dtype: dtype of the cell.
        entry: class that is constructed and called, or the function that an adapter calls.
    """
    texts = {name: content.decode("utf-8", errors="replace") for name, content in files.items()}
    python = [text for name, text in texts.items() if name.endswith(".py")]
    cpp = [parse_cpp(text) for name, text in texts.items() if not name.endswith(".py")]
    kernels = {kernel for text in cpp for kernel in text.kernels}
    definition = re.compile(rf"^(class|def|async def) {re.escape(entry)}\b", re.MULTILINE)
    main = next((text for text in python if definition.search(text)), python[0] if python else None)
    if main is None:
        return SourceScan(own_kernels=tuple(sorted(kernels)), findings=())
    scan = scan_text(main, language, dtype, entry=entry)
    return replace(scan, own_kernels=tuple(sorted({*scan.own_kernels, *kernels})))


def scan_text(text: str, language: Language, dtype: Dtype, *, entry: str = "ModelNew") -> SourceScan:
    """Scan a candidate of one Python source.

    A source that does not parse has neither kernels nor findings; building the candidate reports its error.

    Args:
        text: the source.
        language: language of the candidate.
        dtype: dtype of the cell, which decides what counts as a loss of precision.
        entry: class that is constructed and called, or the function that an adapter calls.
    """
    source = read_source(text, language=language, dtype=dtype, entry=entry)
    if source is None:
        return SourceScan(own_kernels=(), findings=())
    findings = tuple(finding for rule in RULES.usable().values() for finding in _limit_matches(rule.find(source)))
    return SourceScan(own_kernels=own_kernels(source), findings=findings)


def _limit_matches(findings: Iterator[RuleMatch]) -> list[RuleMatch]:
    """Return the findings of a rule without duplicates, sorted by line, at most :data:`MOST_FINDINGS`."""
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.line or 0)[:MOST_FINDINGS]
