"""A search of the package's syntax trees for the labels that its code can emit."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import kernel_matrix

PACKAGE = Path(kernel_matrix.__file__).parent

_OTHER_LABELS = ("sandboxes/", "images/", "analysis/", "report/", "cli/", "results/labels.py")
"""Where ``labels`` are those of containers, slices or charts, or where a record's labels are only read."""
_OTHER_CLASS = "ProcessLabels"
_UNCHANGED = ("tuple", "list", "fromkeys", "filter")
"""Functions that return the labels they get."""


def emitted_labels() -> Iterator[tuple[str, str]]:
    """Yield each label in the package, up to its colon, with the place that emits it."""
    for file in sorted(PACKAGE.rglob("*.py")):
        place = file.relative_to(PACKAGE).as_posix()
        if not place.startswith(_OTHER_LABELS):
            yield from ((label, place) for label in labels_in(_parse(file), place))


def labels_in(tree: ast.Module, place: str = "") -> Iterator[str]:
    """Yield each label that a module emits, up to its colon.

    Raises:
        AssertionError: An expression has a form that this search does not know.
    """
    for expression in _emitted(tree):
        for text in _texts(expression, tree, place):
            yield text.partition(":")[0]


@cache
def _parse(file: Path) -> ast.Module:
    return ast.parse(file.read_text(encoding="utf-8"))


def _emitted(tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the expressions that become labels: appended, assigned, passed, returned."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and (
                node.func.attr == "label_last"
                or (node.func.attr in ("append", "extend", "insert") and _holds_labels(node.func.value))
            ):
                yield from node.args
            yield from (word.value for word in node.keywords if word.arg == "labels")
        elif isinstance(node, ast.AugAssign) and _holds_labels(node.target):
            yield node.value
        elif isinstance(node, ast.Assign):
            yield from (value for target in node.targets for value in _assigned(target, node.value, tree))
        elif isinstance(node, ast.Dict):
            pairs = zip(node.keys, node.values, strict=True)
            yield from (value for key, value in pairs if isinstance(key, ast.Constant) and key.value == "labels")
        elif isinstance(node, ast.FunctionDef) and "labels" in node.name:
            yield from _results(node)


def _holds_labels(node: ast.expr) -> bool:
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == "labels"
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name == "labels" or name.endswith("_labels")


def _assigned(target: ast.expr, value: ast.expr, tree: ast.Module) -> Iterator[ast.expr]:
    """Yield what an assignment stores as labels, also where a function returns them in a tuple."""
    if _holds_labels(target):
        yield value
    elif isinstance(target, ast.Tuple) and any(map(_holds_labels, target.elts)):
        (index,) = (place for place, one in enumerate(target.elts) if _holds_labels(one))
        for one in _items(value, tree):
            assert isinstance(one, ast.Tuple), ast.unparse(one)
            yield one.elts[index]


def _items(value: ast.expr, tree: ast.Module) -> Iterator[ast.expr]:
    """Yield the tuples that ``value`` can be."""
    if isinstance(value, ast.IfExp):
        yield from (*_items(value.body, tree), *_items(value.orelse, tree))
    elif isinstance(value, ast.Call) and isinstance(value.func, ast.Name):
        (function,) = _functions(value.func.id, tree)
        yield from _results(function)
    else:
        yield value


def _functions(name: str, tree: ast.Module) -> list[ast.FunctionDef]:
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node.name == name]


def _results(function: ast.FunctionDef) -> Iterator[ast.expr]:
    for node in ast.walk(function):
        if isinstance(node, (ast.Return, ast.Yield, ast.YieldFrom)) and node.value is not None:
            yield node.value


def _texts(node: ast.expr, tree: ast.Module, place: str) -> Iterator[str]:
    """Yield the texts that an expression can be; of an f-string, its first part."""
    if isinstance(node, ast.Constant):
        assert isinstance(node.value, str), f"{place}: {ast.unparse(node)}"
        yield node.value
    elif isinstance(node, ast.Name) and node.id == "label":
        # None for a parameter or the variable of a loop: its values are found by themselves.
        yield from (text for value in _values(node.id, tree) for text in _texts(value, tree, place))
    elif isinstance(node, ast.Name) and not _holds_labels(node):
        yield from _constants(node.id, tree, place)
    elif not _holds_labels(node):
        yield from (text for part in _parts(node, tree, place) for text in _texts(part, tree, place))


def _parts(node: ast.expr, tree: ast.Module, place: str) -> list[ast.expr]:
    """Return the expressions that make up ``node``."""
    if isinstance(node, ast.JoinedStr):
        return node.values[:1]
    if isinstance(node, (ast.FormattedValue, ast.Starred)):
        return [node.value]
    if isinstance(node, ast.IfExp):
        return [node.body, node.orelse]
    if isinstance(node, (ast.Tuple, ast.List)):
        return node.elts
    if isinstance(node, (ast.ListComp, ast.GeneratorExp)):
        return [node.generators[0].iter]
    assert isinstance(node, ast.Call), f"{place}:{node.lineno}: not known: {ast.unparse(node)}"
    return _of_call(node, tree, place)


def _of_call(node: ast.Call, tree: ast.Module, place: str) -> list[ast.expr]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id  # type: ignore[attr-defined]
    if name == _OTHER_CLASS or "labels" in name or (name == "replace" and _holds_labels(node.args[0])):
        return []  # a function with labels in its name is found by itself
    if name in _UNCHANGED:
        return list(node.args[-1:])
    for where in (tree, _source(name, tree)):
        functions = _functions(name, where) if where is not None else []
        if functions:
            return [ast.Constant(text) for one in _results(functions[0]) for text in _texts(one, where or tree, place)]
    raise AssertionError(f"{place}:{node.lineno}: not known: {ast.unparse(node)}")


def _values(name: str, tree: ast.Module) -> list[ast.expr]:
    found = []
    for node in ast.walk(tree):
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if any(isinstance(target, ast.Name) and target.id == name for target in targets):
                found.append(node.value)
    return found


def _constants(name: str, tree: ast.Module, place: str) -> Iterator[str]:
    for where in (tree, _source(name, tree)):
        values = _values(name, where) if where is not None else []
        if values:
            yield from (text for value in values for text in _texts(value, where or tree, place))
            return
    raise AssertionError(f"{place}: where {name!r} comes from is not known")


def _source(name: str, tree: ast.Module) -> ast.Module | None:
    """Return the module of the package that ``name`` is imported from."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and any(alias.name == name for alias in node.names):
            path = PACKAGE.joinpath(*node.module.split(".")[1:])
            return _parse(path.with_suffix(".py") if path.with_suffix(".py").is_file() else path / "__init__.py")
    return None
