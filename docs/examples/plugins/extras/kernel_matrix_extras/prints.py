"""Rule ``prints``: a candidate that prints."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "prints"


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield calls of ``print``."""
    for node in source.host_nodes:
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print":
            yield source.finding(RULE, node, "the candidate prints")
