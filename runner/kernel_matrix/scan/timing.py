"""Something that clocks, waits or compares is replaced."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_matrix.scan.names import bare
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "timing"

_ROOTS = frozenset(
    {"torch", "time", "timeit", "triton", "builtins", "gc", "sys", "os", "threading", "kernel_matrix", "numpy"}
)
"""Packages whose functions nobody has to replace."""

_SETTINGS = re.compile(
    r"^(?:torch\.(?:backends|_dynamo|_inductor|_functorch)\b|triton\.knobs\b|os\.environ\b|sys\.(?:path|std\w+)\b|\w+\.__\w+__$)"
)
"""Attributes of these packages that are there to be set."""

_CODE = frozenset({"__code__", "__defaults__", "__kwdefaults__", "__globals__", "__closure__"})

_NATIVE = re.compile(
    r"\bcudaEventDisableTiming\b|\bcudaEventElapsedTime\b|\bdlsym\s*\(|\bmprotect\s*\(|\bLD_PRELOAD\b|\bptrace\s*\("
    r"|\bclock_gettime\b"
)


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Assignments to other packages' functions, by whatever means, and calls that are made for it."""
    for node in source.host_nodes:
        for target in _targets(node):
            what = _replaced(source, target)
            if what:
                yield source.finding(RULE, node, f"{what} is replaced")
    for call, name in source.called():
        if name in ("builtins.setattr", "builtins.delattr") and call.args:
            owner = source.names.full(call.args[0])
            if _is_foreign(owner):
                yield source.finding(RULE, call, f"an attribute of {owner} is replaced")
        elif name.startswith("unittest.mock."):
            yield source.finding(RULE, call, f"{name} replaces what it is told to")
    for native in source.native:
        for line, text in native.find(_NATIVE):
            yield source.finding(RULE, line, f"{text.rstrip('( ')} reaches for a clock, or for other code")


def _replaced(source: ScannedSource, target: ast.expr) -> str:
    """What an assignment to ``target`` replaces; empty for what is the candidate's own, or there to be set."""
    name = source.names.full(target)
    if "." in name and _is_foreign(name):
        return name
    return f"the {target.attr} of a function" if isinstance(target, ast.Attribute) and target.attr in _CODE else ""


def _is_foreign(name: str) -> bool:
    return name.partition(".")[0] in _ROOTS and not _SETTINGS.match(name)


def _targets(node: ast.AST) -> Iterator[ast.expr]:
    if isinstance(node, ast.Assign):
        targets = node.targets
    elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
        targets = [node.target]
    elif isinstance(node, ast.Delete):
        targets = node.targets
    else:
        return
    for target in targets:
        parts = target.elts if isinstance(target, (ast.Tuple, ast.List)) else [target]
        yield from (part for part in parts if isinstance(part, ast.Attribute) and bare(part))
