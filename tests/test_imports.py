"""No module of the package imports itself by way of others, also not by imports inside functions."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

SOURCE_ROOT = Path(__file__).parents[1] / "runner"


def module_name(path: Path) -> str:
    parts = path.relative_to(SOURCE_ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def run_time_imports(node: ast.AST) -> Iterator[str]:
    """Names of modules, and of what is imported from them, that are not for type checkers only."""
    if isinstance(node, ast.If) and ast.unparse(node.test) in ("TYPE_CHECKING", "typing.TYPE_CHECKING"):
        children = node.orelse
    else:
        children = list(ast.iter_child_nodes(node))
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        assert node.level == 0, "relative imports are not used here"
        for alias in node.names:
            yield f"{node.module}.{alias.name}"
    for child in children:
        yield from run_time_imports(child)


def circle(sources: Mapping[str, str]) -> list[str]:
    """The modules of one circle in the order of their imports, the first repeated at the end; empty without one.

    Args:
        sources: name of each module, and its text.
    """
    graph: dict[str, set[str]] = {}
    for name, text in sources.items():
        found = set()
        for imported in run_time_imports(ast.parse(text)):
            target = imported if imported in sources else imported.rpartition(".")[0]
            if target in sources and target != name:
                found.add(target)
        graph[name] = found
    try:
        TopologicalSorter(graph).prepare()
    except CycleError as error:
        return list(reversed(error.args[1]))
    return []


def test_package_imports_form_no_circle():
    sources = {module_name(path): path.read_text(encoding="utf-8") for path in SOURCE_ROOT.rglob("*.py")}
    assert len(sources) > 300
    assert circle(sources) == []


def test_circle_through_an_import_in_a_function_is_found():
    lazy = "def function():\n    from package.b import name\n"
    sources = {"package.a": lazy, "package.b": "import package.c", "package.c": "from package import a"}
    assert set(circle(sources)) == {"package.a", "package.b", "package.c"}


def test_circle_through_a_type_checkers_import_does_not_count():
    typed = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import package.b\n"
    assert circle({"package.a": typed, "package.b": "import package.a"}) == []
