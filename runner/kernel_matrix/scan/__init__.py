"""Reading a candidate's source for what a person would want to know of it: labels with evidence, never proof.

What the program cannot see by running a candidate (why it does something, what it does on other days) a reader may
see in its text: a library's call where a kernel was asked for, a kernel that nobody launches, a rebound clock. Each
rule is one file; the policy decides what its findings cost. Nothing of the candidate is run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

from kernel_matrix.model.enums import Dtype, Language
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
    streams,
    threads,
    timing,
)
from kernel_matrix.scan.embedded_cpp import native
from kernel_matrix.scan.kernel_names import own_kernels
from kernel_matrix.scan.rule_match import RuleMatch, SourceScan
from kernel_matrix.scan.source import ScannedSource, read_source

__all__ = ["RULES", "RuleMatch", "SourceScan", "scan_files", "scan_text"]

RULES: Mapping[str, Callable[[ScannedSource], Iterator[RuleMatch]]] = {
    entry.RULE: entry.find,
    library_calls.RULE: library_calls.find,
    fallback.RULE: fallback.find,
    decoy.RULE: decoy.find,
    precision.RULE: precision.find,
    timing.RULE: timing.find,
    streams.RULE: streams.find,
    threads.RULE: threads.find,
    lazy.RULE: lazy.find,
    memo.RULE: memo.find,
    frames.RULE: frames.find,
    capture.RULE: capture.find,
    hidden.RULE: hidden.find,
}
"""Name of a rule → what it finds, in the order findings are told."""

MOST_FINDINGS = 20
"""Findings that one rule may have; a source that repeats itself says no more with the next."""


def scan_files(files: Mapping[str, bytes], language: Language, dtype: Dtype, *, entry: str = "ModelNew") -> SourceScan:
    """What is to be known of a candidate of several files, by name: its rules look at the one that defines ``entry``.

    Files that are no Python are C++, and only their kernels are named: Python reaches them through their builder.
    """
    texts = {name: content.decode("utf-8", errors="replace") for name, content in files.items()}
    python = [text for name, text in texts.items() if name.endswith(".py")]
    kernels = {kernel for name, text in texts.items() if not name.endswith(".py") for kernel in native(text).kernels}
    definition = re.compile(rf"^(class|def|async def) {re.escape(entry)}\b", re.MULTILINE)
    main = next((text for text in python if definition.search(text)), python[0] if python else None)
    if main is None:
        return SourceScan(own_kernels=tuple(sorted(kernels)), findings=())
    scan = scan_text(main, language, dtype, entry=entry)
    return replace(scan, own_kernels=tuple(sorted({*scan.own_kernels, *kernels})))


def scan_text(text: str, language: Language, dtype: Dtype, *, entry: str = "ModelNew") -> SourceScan:
    """What is to be known of the candidate whose source ``text`` is.

    A source that does not parse has neither kernels nor findings: whoever compiles it says what is wrong.

    :param dtype: of the cell: what counts as a loss of precision depends on it.
    :param entry: the class that is constructed and called, or the function where an adapter calls one.
    """
    source = read_source(text, language=language, dtype=dtype, entry=entry)
    if source is None:
        return SourceScan(own_kernels=(), findings=())
    found = (_told(find(source)) for find in RULES.values())
    return SourceScan(own_kernels=own_kernels(source), findings=tuple(finding for rule in found for finding in rule))


def _told(findings: Iterator[RuleMatch]) -> list[RuleMatch]:
    """Each finding once, in the order of lines, not too many."""
    return sorted(dict.fromkeys(findings), key=lambda finding: finding.line or 0)[:MOST_FINDINGS]
