"""Resolve names to full names: ``F.softmax`` to ``torch.nn.functional.softmax``, according to the imports.

Also resolved are other ways to write an attribute or a module, if all names in them are constants:
``getattr(time, "sleep")``, ``vars(time)["sleep"]``, ``sys.modules["time"].sleep``, ``__import__("time").sleep``. A
module of the standard library that is reached through another module is the same module:
``concurrent.futures.thread.threading`` is ``threading``.
"""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_MODULES = frozenset(
    {
        *("_thread", "asyncio", "atexit", "builtins", "ctypes", "gc", "importlib", "inspect", "marshal", "mmap"),
        *("multiprocessing", "os", "pickle", "socket", "subprocess", "sys", "threading", "time", "timeit", "traceback"),
    }
)
"""Modules that rules look for and that other modules import."""

_ENTITIES = frozenset({"torch.multiprocessing"})
"""Names that end like such a module and are something else."""

_MOST_STEPS = 16
"""Items and calls that are followed in one expression; a source may chain thousands to exhaust the stack."""


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

    def full(self, node: ast.AST, *, steps: int = _MOST_STEPS) -> str:
        """Return the full name of an expression, or an empty text if it starts with no import or builtin."""
        parts: list[str] = []
        while isinstance(node, ast.Attribute):
            parts.append(node.attr)
            node = node.value
        root = self._root(node, steps)
        return _same_module(".".join([root, *reversed(parts)])) if root else ""

    def _root(self, node: ast.AST, steps: int) -> str:
        if isinstance(node, ast.Name):
            return self.known.get(node.id) or (f"builtins.{node.id}" if hasattr(builtins, node.id) else "")
        if steps and isinstance(node, ast.Subscript):
            return self._item(node, steps - 1)
        return self._result(node, steps - 1) if steps and isinstance(node, ast.Call) else ""

    def _item(self, node: ast.Subscript, steps: int) -> str:
        """Return the name of ``sys.modules["time"]``, ``vars(time)["sleep"]`` and ``time.__dict__["sleep"]``."""
        name, of = _text(node.slice), node.value
        if not name:
            return ""
        if isinstance(of, ast.Attribute) and of.attr == "__dict__":
            return _joined(self.full(of.value, steps=steps), name)
        if isinstance(of, ast.Call) and of.args and self.full(of.func, steps=steps) == "builtins.vars":
            return _joined(self.full(of.args[0], steps=steps), name)
        return name if self.full(of, steps=steps) == "sys.modules" else ""

    def _result(self, call: ast.Call, steps: int) -> str:
        """Return the name of ``getattr(time, "sleep")``, ``__import__("time")`` and ``sys.modules.get("time")``."""
        function, texts = self.full(call.func, steps=steps), [_text(argument) for argument in call.args]
        if function == "builtins.getattr" and len(texts) > 1 and texts[1]:
            return _joined(self.full(call.args[0], steps=steps), texts[1])
        if function == "builtins.__import__" and texts:
            return texts[0].partition(".")[0]
        return texts[0] if function in ("importlib.import_module", "sys.modules.get") and texts else ""

    def _aliased(self, node: ast.AST) -> Iterator[tuple[str, str]]:
        """Yield (alias, full name) for assignments such as ``relu = F.relu``."""
        if isinstance(node, ast.Assign):
            full = self.full(node.value)
            for target in node.targets:
                if full and isinstance(target, ast.Name):
                    yield target.id, full


def _joined(owner: str, name: str) -> str:
    return f"{owner}.{name}" if owner else ""


def _same_module(name: str) -> str:
    """Return ``name`` from the last module on that is one of the standard library, reached through another module."""
    parts = name.split(".")
    for place in range(len(parts) - 1, 0, -1):
        if parts[place] in _MODULES and ".".join(parts[: place + 1]) not in _ENTITIES:
            return ".".join(parts[place:])
    return name


def _text(node: ast.expr) -> str:
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def _imported(node: ast.AST) -> Iterator[tuple[str, str]]:
    if isinstance(node, ast.Import):
        for name in node.names:
            yield (name.asname, name.name) if name.asname else (name.name.split(".")[0],) * 2
    elif isinstance(node, ast.ImportFrom):
        for name in node.names:
            yield name.asname or name.name, _same_module(f"{'.' * node.level}{node.module or ''}.{name.name}")


def bare(node: ast.AST) -> str:
    """Return the last part of a dotted expression or of the called function; empty for other nodes."""
    while isinstance(node, ast.Call):
        node = node.func
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
