"""What a call of the entry may come by, by name: generous, so that what is out of reach really is."""

from __future__ import annotations

import ast
from collections import defaultdict
from dataclasses import dataclass

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class ReachableCode:
    """The part of a file behind its entry."""

    nodes: tuple[ast.AST, ...]
    """All nodes of all definitions within reach."""
    words: frozenset[str]
    """Every name, attribute and short text in them."""

    @classmethod
    def of(cls, tree: ast.Module, entry: str) -> ReachableCode:
        """Everything that the class or function ``entry`` names, and what that names, and so on."""
        defined = _definitions(tree)
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
                pending += [found for node in inside if (found := _word(node))]
        return cls(tuple(nodes), frozenset(words))


def _definitions(tree: ast.Module) -> dict[str, list[ast.AST]]:
    """What a name may stand for: functions, classes, and what module variables and attributes are made of."""
    defined: dict[str, list[ast.AST]] = defaultdict(list)
    for node in ast.walk(tree):
        if isinstance(node, Definition):
            defined[node.name].append(node)
        elif isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for word in filter(None, (_word(part) for target in targets for part in ast.walk(target))):
                defined[word].append(node.value)
    return defined


def _word(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        return node.attr
    # Kernels and functions of an extension may be asked for by their names.
    return (
        node.value
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.isidentifier()
        else ""
    )
