"""Rule ``entry``: the entry class or function must exist, and a class needs ``forward`` or ``__call__``."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from kernel_matrix.scan.names import bare
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import FunctionDef, ScannedSource

RULE = "entry"


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield a finding if the entry is missing, or is a class without ``forward``."""
    entry = source.entry
    classes = {node.name: node for node in ast.walk(source.tree) if isinstance(node, ast.ClassDef)}
    if entry not in classes:
        if not _is_bound(source.tree, entry):
            yield source.finding(RULE, None, f"no class or function {entry} is defined")
        return
    if not _has_forward(entry, classes):
        yield source.finding(RULE, classes[entry], f"{entry} has neither forward nor __call__ of its own")


def _is_bound(tree: ast.Module, name: str) -> bool:
    """Return True if the file binds ``name`` by an assignment, a function (but not a method) or an import."""
    methods = {node for owner in ast.walk(tree) if isinstance(owner, ast.ClassDef) for node in owner.body}
    return any(
        (isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store))
        or (isinstance(node, FunctionDef) and node.name == name and node not in methods)
        or (isinstance(node, ast.alias) and (node.asname or node.name) == name)
        for node in ast.walk(tree)
    )


def _has_forward(name: str, classes: dict[str, ast.ClassDef]) -> bool:
    """Return True if the class, or a base class in this file, defines ``forward`` or ``__call__``."""
    pending, seen = [name], set[str]()
    while pending:
        word = pending.pop()
        if word in seen or word not in classes:
            continue
        seen.add(word)
        pending += [bare(base) for base in classes[word].bases]
        if any(_is_forward(node) for node in ast.walk(classes[word])):
            return True
    return False


def _is_forward(node: ast.AST) -> bool:
    wanted = ("forward", "__call__")
    if isinstance(node, FunctionDef):
        return node.name in wanted
    return isinstance(node, (ast.Name, ast.Attribute)) and isinstance(node.ctx, ast.Store) and bare(node) in wanted
