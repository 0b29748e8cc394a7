"""Resolve names to full names: ``F.softmax`` to ``torch.nn.functional.softmax``, according to the imports."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QualifiedNames:
    """Imports of a file and plain aliases of them; scopes are not distinguished."""

    known: Mapping[str, str]
    """Name in this file → full name."""

    @classmethod
    def of(cls, tree: ast.Module) -> QualifiedNames:
        """Collect the names of one file."""
        known: dict[str, str] = {}
        for node in ast.walk(tree):
            known.update(_imported(node))
        names = cls(known)
        for node in ast.walk(tree):
            known.update(names._aliased(node))
        return names

    def full(self, node: ast.AST) -> str:
        """Return the full name of a dotted expression, or an empty text if it starts with no import or builtin."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = self.known.get(node.id) or (f"builtins.{node.id}" if hasattr(builtins, node.id) else "")
        return ".".join([root, *reversed(parts)]) if root else ""

    def _aliased(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        """Yield (alias, full name) for assignments such as ``relu = F.relu``."""
        if isinstance(node, ast.Assign) and isinstance(node.value, (ast.Name, ast.Attribute)):
            full = self.full(node.value)
            for target in node.targets:
                if full and isinstance(target, ast.Name):
                    yield target.id, full


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for name in node.names:
            yield (name.asname, name.name) if name.asname else (name.name.split(".")[0],) * 2
    elif isinstance(node, ast.ImportFrom):
        for name in node.names:
            yield name.asname or name.name, f"{'.' * node.level}{node.module or ''}.{name.name}"


def bare(node: ast.AST) -> str:
    """Return the last part of a dotted expression or of the called function; empty for other nodes."""
    if isinstance(node, ast.Call):
        return bare(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
