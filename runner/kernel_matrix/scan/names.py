"""Full names: what ``F.softmax`` is where ``F`` was imported as ``torch.nn.functional``."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class QualifiedNames:
    """The imports of a file and the plain aliases that it makes of them. Scopes are not told apart."""

    known: Mapping[str, str]
    """Name in this file → full name."""

    @classmethod
    def of(cls, tree: ast.Module) -> QualifiedNames:
        """The names of one file."""
        known: dict[str, str] = {}
        for node in ast.walk(tree):
            known.update(_imported(node))
        names = cls(known)
        for node in ast.walk(tree):
            known.update(names._aliased(node))
        return names

    def full(self, node: ast.AST) -> str:
        """The full name of a dotted expression; empty where it begins with anything but an import or a builtin."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        if not isinstance(node, ast.Name):
            return ""
        root = self.known.get(node.id) or (f"builtins.{node.id}" if hasattr(builtins, node.id) else "")
        return ".".join([root, *reversed(parts)]) if root else ""

    def _aliased(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        """``relu = F.relu``: a further name for something imported."""
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
    """The last part of a dotted expression or the function that a call calls; empty for anything else."""
    if isinstance(node, ast.Call):
        return bare(node.func)
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
