"""Reaching out of one's own code: into frames, other objects, raw memory, or what the system tells of the process."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_matrix.scan.call_rules import named
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "frames"

_PYTHON = re.compile(
    r"^(?:sys\.(?:_getframe|_current_frames|settrace|setprofile)|inspect\.(?:stack|currentframe|getouterframes|trace)"
    r"|gc\.(?:get_objects|get_referrers|get_referents)|traceback\.(?:walk_stack|extract_stack)|ctypes\.\w[\w.]*"
    r"|os\.(?:getppid|memfd_create|pidfd_getfd)|mmap\.mmap|socket\.\w+)$"
)
_NATIVE = re.compile(
    r"\bcuMem(?:GetAddressRange|ExportToShareableHandle|ImportFromShareableHandle)\w*\s*\(|\bcudaIpc\w+\s*\("
    r"|\bprocess_vm_\w+\s*\(|\b_PyFrame\w*|\bPyEval_GetFrame\w*\s*\("
)
_PATHS = ("/proc", "/sys/", "/dev/", "/channel", "/judge")


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Calls that leave the candidate's own code, and paths of the system."""
    yield from named(source, RULE, _PYTHON, _NATIVE, "{} reaches out of the candidate's own code")
    for node in source.host_nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_PATHS):
            yield source.finding(RULE, node, f"the path {node.value[:40]!r} is none of a candidate's")
