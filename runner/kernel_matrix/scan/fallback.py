"""Rule ``fallback``: other code computes the result if the kernel fails."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_matrix.scan.names import bare
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "fallback"

_REFERENCE = "Model"
"""Class name of every problem's reference."""


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield exception handlers that do not re-raise, and uses of the reference."""
    for node in source.host_nodes:
        if isinstance(node, ast.Try) and _hides_failure(node, source):
            yield source.finding(RULE, node, "an error is caught and other code runs instead")
    yield from _find_reference_use(source)


def _hides_failure(node: ast.Try, source: ScannedSource) -> bool:
    """Return True if a handler continues after code that may have launched or built a kernel."""
    if all(isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in node.body):
        return False  # optional imports are common in honest code
    if not any(isinstance(inside, ast.Call) for statement in node.body for inside in ast.walk(statement)):
        return False
    within = node in set(source.reach.nodes) or node in source.tree.body
    return within and any(not isinstance(handler.body[-1], ast.Raise) for handler in node.handlers)


def _find_reference_use(source: ScannedSource) -> Iterator[RuleMatch]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and any(name.name == _REFERENCE for name in node.names):
            yield source.finding(RULE, node, f"{_REFERENCE} is imported")
        elif isinstance(node, ast.ClassDef) and node.name == source.entry and _REFERENCE in map(bare, node.bases):
            yield source.finding(RULE, node, f"{source.entry} inherits from {_REFERENCE}")
    for node in source.reach.nodes:
        if isinstance(node, ast.Call) and bare(node.func) == _REFERENCE:
            yield source.finding(RULE, node, f"{source.entry} can reach a construction of {_REFERENCE}")
