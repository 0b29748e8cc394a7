"""Shared function of the rules that look for calls by name."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource


def find_calls(
    source: ScannedSource, rule: str, python: re.Pattern[str], native: re.Pattern[str], message: str
) -> Iterator[RuleMatch]:
    """Yield a finding for each matching call in Python and each match in embedded C++.

    Args:
        source: the source to search.
        rule: name of the rule.
        python: pattern of full names of Python functions.
        native: pattern searched in C++.
        message: text of the finding; ``{}`` stands for the name.
    """
    for call, name in source.called():
        if python.search(name):
            yield source.finding(rule, call, message.format(name))
    for text in source.native:
        for line, found in text.find(native):
            yield source.finding(rule, line, message.format(found.rstrip("( ")))
