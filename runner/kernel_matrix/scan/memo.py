"""Rule ``memo``: results that are kept from one call to the next."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping

from kernel_matrix.scan.names import bare
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import FunctionDef, ScannedSource

RULE = "memo"

_IDENTITY = frozenset({"id", "data_ptr", "untyped_storage", "storage"})
_SHAPE = frozenset({"shape", "size", "stride", "_version"})
_CACHES = frozenset({"functools.lru_cache", "functools.cache"})
_DICTIONARIES = frozenset(
    {"dict", "defaultdict", "OrderedDict", "WeakKeyDictionary", "WeakValueDictionary", "Dict", "LRUCache"}
)


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield dictionary lookups by a tensor's identity or shape, comparisons of identities, and cached functions."""
    dictionaries = _find_dictionaries(source)
    values = _last_assignments(source)
    for node in source.host_nodes:
        if isinstance(node, FunctionDef) and _is_cached(source, node) and _takes_tensors(node):
            yield source.finding(RULE, node, f"{node.name} caches its results by tensor")
        elif key := _lookup_key(node, dictionaries):
            tensor_property = _distinguishing_property(key, values)
            if tensor_property:
                yield source.finding(RULE, node, f"a dictionary is looked up by the {tensor_property} of a tensor")
        elif isinstance(node, ast.Compare) and _compares_identity(node, values):
            yield source.finding(RULE, node, "the identities of two tensors are compared")


def _find_dictionaries(source: ScannedSource) -> frozenset[str]:
    """Return the names and attributes that hold a dictionary."""
    found = set()
    for node in source.host_nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if isinstance(node.value, ast.Dict) or bare(node.value) in _DICTIONARIES:
                found |= {bare(target) for target in targets}
    return frozenset(found - {""})


def _last_assignments(source: ScannedSource) -> Mapping[str, ast.expr]:
    """Map each name to its last assigned expression, to resolve keys that are assigned to a variable first."""
    return {
        target.id: node.value
        for node in source.host_nodes
        if isinstance(node, ast.Assign)
        for target in node.targets
        if isinstance(target, ast.Name)
    }


def _lookup_key(node: ast.AST, dictionaries: frozenset[str]) -> ast.expr | None:
    """Return the key of a dictionary lookup, or ``None`` if ``node`` is none."""
    if isinstance(node, ast.Subscript) and bare(node.value) in dictionaries:
        return node.slice
    if isinstance(node, ast.Compare) and isinstance(node.ops[0], (ast.In, ast.NotIn)):
        return node.left if bare(node.comparators[0]) in dictionaries else None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
        is_lookup = node.func.attr in ("get", "setdefault", "pop") and bare(node.func.value) in dictionaries
        return node.args[0] if is_lookup else None
    return None


def _distinguishing_property(key: ast.expr, values: Mapping[str, ast.expr]) -> str:
    words = set(_names_in(key, values))
    if words & _IDENTITY:
        return "identity"
    return "shape" if words & _SHAPE else ""


def _names_in(key: ast.expr, values: Mapping[str, ast.expr]) -> Iterator[str]:
    """Yield the names in ``key`` and in the values last assigned to them."""
    assigned = [values[node.id] for node in ast.walk(key) if isinstance(node, ast.Name) and node.id in values]
    for expression in (key, *assigned):
        yield from map(bare, ast.walk(expression))


def _compares_identity(node: ast.Compare, values: Mapping[str, ast.expr]) -> bool:
    if not isinstance(node.ops[0], (ast.Eq, ast.NotEq)) or isinstance(node.comparators[0], ast.Constant):
        return False
    sides = (
        values.get(side.id, side) if isinstance(side, ast.Name) else side for side in (node.left, *node.comparators)
    )
    return any(isinstance(side, ast.Call) and bare(side) in ("id", "data_ptr") for side in sides)


def _is_cached(source: ScannedSource, function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    targets = (d.func if isinstance(d, ast.Call) else d for d in function.decorator_list)
    return any(source.names.full(target) in _CACHES for target in targets)


def _takes_tensors(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Return True if an attribute of a parameter is used that only tensors have."""
    parameters = {argument.arg for argument in (*function.args.posonlyargs, *function.args.args)}
    return any(
        isinstance(node, ast.Attribute)
        and node.attr in ("data_ptr", "shape", "contiguous", "device", "is_cuda", "numel", "stride")
        and isinstance(node.value, ast.Name)
        and node.value.id in parameters
        for node in ast.walk(function)
    )
