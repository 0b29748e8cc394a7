"""Find the code that a call of the entry may reach, by name.

It overestimates: two definitions of one name are both reachable, so that code outside of the result is really unused.
"""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class ReachableCode:
    """The part of a file that its entry can reach."""

    nodes: tuple[ast.AST, ...]
    """All nodes of all reachable definitions."""
    words: frozenset[str]
    """Names, attributes and identifier-like texts in them."""

    @classmethod
    def of(cls, tree: ast.Module, entry: str) -> ReachableCode:
        """Collect the definitions that the class or function ``entry`` names, directly or through others."""
        defined = _collect_definitions(tree)
        nodes: list[ast.AST] = []
        words: set[str] = set()
        pending = [entry]
        while pending:
            word = pending.pop()
            if word in words:
                continue
            words.add(word)
            for definition in defined.get(word, ()):
                inside = list(ast.walk(definition))
                nodes += inside
                pending += [found for node in inside if (found := _word_of(node))]
        return cls(tuple(nodes), frozenset(words))


def _collect_definitions(tree: ast.Module) -> dict[str, list[ast.AST]]:
    """Map names to the functions, classes and assigned expressions that they may stand for."""
    defined: dict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            defined[node.name].append(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for word in filter(None, (_word_of(part) for target in targets for part in ast.walk(target))):
                defined[word].append(node.value)
    return defined


def _word_of(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    # A text counts too, because extensions look up kernels and functions by name.
    if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier():
        return node.value
    return ""
