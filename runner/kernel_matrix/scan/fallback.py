"""Where a kernel fails, something else answers in its place."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_matrix.scan.names import bare
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "fallback"

_REFERENCE = "Model"
"""What every problem calls its reference."""


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """A caught failure that does not end the call, or the reference itself within reach."""
    for node in source.host_nodes:
        if isinstance(node, ast.Try) and _is_covered_up(node, source):
            yield source.finding(RULE, node, "a failure is caught and something else is used instead")
    yield from _reference_used(source)


def _is_covered_up(node: ast.Try, source: ScannedSource) -> bool:
    """Whether a handler goes on after code that may have launched or built a kernel."""
    if all(isinstance(statement, (ast.Import, ast.ImportFrom)) for statement in node.body):
        return False  # an import that may be missing is no kernel that may fail
    if not any(isinstance(inside, ast.Call) for statement in node.body for inside in ast.walk(statement)):
        return False
    within = node in set(source.reach.nodes) or node in source.tree.body
    return within and any(not _ends_the_call(handler) for handler in node.handlers)


def _ends_the_call(handler: ast.ExceptHandler) -> bool:
    return bool(handler.body) and isinstance(handler.body[-1], ast.Raise)


def _reference_used(source: ScannedSource) -> Iterator[RuleMatch]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.ImportFrom) and any(name.name == _REFERENCE for name in node.names):
            yield source.finding(RULE, node, f"{_REFERENCE} is imported")
        elif isinstance(node, ast.ClassDef) and node.name == source.entry and _inherits_reference(node):
            yield source.finding(RULE, node, f"{source.entry} inherits from {_REFERENCE}")
    for node in source.reach.nodes:
        if isinstance(node, ast.Call) and bare(node.func) == _REFERENCE:
            yield source.finding(RULE, node, f"{_REFERENCE} is constructed within reach of {source.entry}")


def _inherits_reference(node: ast.ClassDef) -> bool:
    return any(bare(base) == _REFERENCE for base in node.bases)
