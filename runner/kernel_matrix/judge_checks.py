"""Checks of the judge that other packages add, as files: the host shows them to the judge and never imports them.

A check is one file that imports nothing but the standard library, torch and what is inside
(``kernel_matrix.inside``, ``kernel_matrix.model``), since the judge sees the file and not the package that it is from.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

from kernel_matrix.errors import PluginError
from kernel_matrix.plugins import Registry
from kernel_matrix.python_syntax import parse

_IMPORTABLE = sys.stdlib_module_names | {"torch"}
_IMPORTABLE_PARTS = ("kernel_matrix.inside", "kernel_matrix.model")


def _locate(entry: EntryPoint) -> Path:
    """Return the file of a check after reading it.

    Raises:
        PluginError: It is no file of the form that a check has.
    """
    found = find_spec(entry.value)
    if found is None or not found.origin:
        raise PluginError(f"there is no module {entry.value}")
    tree = parse(Path(found.origin).read_bytes())
    functions = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "check"]
    if not functions or len(functions[0].args.args) != 1:
        raise PluginError("it has no function check(call)")
    absent = [name for name in _imported(tree) if not _is_importable(name)]
    if absent:
        raise PluginError(f"the judge cannot import {', '.join(absent)}")
    return Path(found.origin)


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield "." * node.level + (node.module or "")


def _is_importable(name: str) -> bool:
    return name.partition(".")[0] in _IMPORTABLE or name.startswith(_IMPORTABLE_PARTS)


CHECKS: Registry[Path] = Registry(
    "check",
    "kernel_matrix.checks",
    {
        name: Path(__file__).parent / "inside" / "judge" / "checks" / f"{name}.py"
        for name in (
            "structure",
            "aliasing",
            "redzones",
            "inputs",
            "values",
            "mutated_inputs",
            "contract",
            "distribution",
        )
    },
    loader=_locate,
)
"""Name → file."""


def added_checks() -> Mapping[str, Path]:
    """Return the files of the checks that other packages add and the judge can use, by name."""
    return {name: file for name, file in CHECKS.usable().items() if name not in CHECKS.built_in}
