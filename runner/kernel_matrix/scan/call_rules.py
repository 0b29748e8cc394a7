"""What rules that look for calls by name have in common."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource


def named(
    source: ScannedSource, rule: str, python: re.Pattern[str], native: re.Pattern[str], what: str
) -> Iterator[RuleMatch]:
    """A finding for each call whose full name ``python`` matches, and each place of C++ that ``native`` does.

    :param what: the message; ``{}`` stands for the name.
    """
    for call, name in source.called():
        if python.search(name):
            yield source.finding(rule, call, what.format(name))
    for text in source.native:
        for line, found in text.find(native):
            yield source.finding(rule, line, what.format(found.rstrip("( ")))
