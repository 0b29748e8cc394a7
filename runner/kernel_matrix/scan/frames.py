"""Rule ``frames``: access to stack frames, foreign objects, raw memory or system files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_matrix.scan.call_rules import find_calls
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "frames"

_PYTHON = re.compile(
    r"^(?:sys\.(?:_getframe|_current_frames|settrace|setprofile)|inspect\.(?:stack|currentframe|getouterframes|trace)"
    r"|gc\.(?:get_objects|get_referrers|get_referents)|traceback\.(?:walk_stack|extract_stack)|ctypes\.\w[\w.]*"
    r"|os\.(?:getppid|memfd_create|pidfd_getfd)|mmap\.mmap|socket\.\w+)$"
)
_NATIVE = re.compile(
    r"\b(?:cu|hip)Mem(?:GetAddressRange|ExportToShareableHandle|ImportFromShareableHandle)\w*\s*\("
    r"|\b(?:cuda|hip)Ipc\w+\s*\("
    r"|\bprocess_vm_\w+\s*\(|\b_PyFrame\w*|\bPyEval_GetFrame\w*\s*\("
)
_ATTRIBUTES = frozenset(
    {"__globals__", "__subclasses__", "f_back", "f_globals", "f_locals", "tb_frame", "gi_frame", "cr_frame"}
)
"""Attributes of functions, classes and frames that lead to other modules' objects."""
_PATHS = ("/proc", "/sys/", "/dev/", "/channel", "/judge")


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield calls and attributes that reach beyond the candidate's own code, and system paths."""
    yield from find_calls(source, RULE, _PYTHON, _NATIVE, "{} reaches beyond the candidate's own code")
    ordinary = set(_ordinary_uses_of_modules(source))
    for node in source.host_nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_PATHS):
            yield source.finding(RULE, node, f"the path {node.value[:40]!r} belongs to the system or the judge")
        elif isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES:
            yield source.finding(RULE, node, f"{node.attr} reaches beyond the candidate's own code")
        elif isinstance(node, ast.expr) and node not in ordinary and source.names.full(node) == "sys.modules":
            yield source.finding(RULE, node, "sys.modules reaches every module of the process")


def _ordinary_uses_of_modules(source: ScannedSource) -> Iterator[ast.expr]:
    """Yield expressions that are asked for one module only: the candidate's own, one it adds, or one it tests for."""
    for node in source.host_nodes:
        if isinstance(node, ast.Subscript):
            own = isinstance(node.slice, ast.Name) and node.slice.id == "__name__"
            if own or not isinstance(node.ctx, ast.Load):
                yield node.value
        elif isinstance(node, ast.Compare) and all(isinstance(one, (ast.In, ast.NotIn)) for one in node.ops):
            yield from node.comparators
        elif isinstance(node, ast.Name) and not isinstance(node.ctx, ast.Load):
            yield node
