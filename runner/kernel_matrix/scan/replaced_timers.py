"""Rule ``timing``: functions that measure time, wait or compare are replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_matrix.scan.names import bare
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "timing"

_PACKAGES = frozenset(
    {"torch", "time", "timeit", "triton", "builtins", "gc", "sys", "os", "threading", "kernel_matrix", "numpy"}
)
"""Packages whose functions an honest candidate has no reason to replace."""

_SETTABLE = re.compile(
    r"^(?:torch\.(?:backends|_dynamo|_inductor|_functorch)\b|triton\.knobs\b|os\.environ\b|sys\.(?:path|std\w+)\b|\w+\.__\w+__$)"
)
"""Attributes of these packages that are meant to be set."""

_FUNCTION_INTERNALS = frozenset({"__code__", "__defaults__", "__kwdefaults__", "__globals__", "__closure__"})

_NATIVE = re.compile(
    r"\b(?:cuda|hip)Event(?:DisableTiming|ElapsedTime)\b|\bdlsym\s*\(|\bmprotect\s*\(|\bLD_PRELOAD\b|\bptrace\s*\("
    r"|\bclock_gettime\b"
)


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield assignments to attributes of other packages, and calls that have this effect."""
    for node in source.host_nodes:
        for target in _targets(node):
            name = _replaced_name(source, target)
            if name:
                yield source.finding(RULE, node, f"{name} is replaced")
    for call, name in source.called():
        if name in ("builtins.setattr", "builtins.delattr") and call.args:
            owner = source.names.full(call.args[0])
            if _is_foreign(owner):
                yield source.finding(RULE, call, f"an attribute of {owner} is replaced")
        elif name.startswith("unittest.mock."):
            yield source.finding(RULE, call, f"{name} replaces other code")
    for native in source.native:
        for line, text in native.find(_NATIVE):
            yield source.finding(RULE, line, f"{text.rstrip('( ')} reads a clock or changes other code")


def _replaced_name(source: ScannedSource, target: ast.expr) -> str:
    """Return the name that an assignment replaces; empty if it is the candidate's own or meant to be set."""
    name = source.names.full(target)
    if "." in name and _is_foreign(name):
        return name
    return (
        f"the {target.attr} of a function"
        if isinstance(target, ast.Attribute) and target.attr in _FUNCTION_INTERNALS
        else ""
    )


def _is_foreign(name: str) -> bool:
    return name.partition(".")[0] in _PACKAGES and not _SETTABLE.match(name)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, (ast.Assign, ast.Delete)):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    else:
        return
    for target in targets:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        yield from (part for part in parts if isinstance(part, ast.Attribute) and bare(part))
