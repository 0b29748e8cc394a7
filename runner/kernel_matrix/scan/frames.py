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
    r"\bcuMem(?:GetAddressRange|ExportToShareableHandle|ImportFromShareableHandle)\w*\s*\(|\bcudaIpc\w+\s*\("
    r"|\bprocess_vm_\w+\s*\(|\b_PyFrame\w*|\bPyEval_GetFrame\w*\s*\("
)
_PATHS = ("/proc", "/sys/", "/dev/", "/channel", "/judge")


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield calls that reach beyond the candidate's own code, and system paths."""
    yield from find_calls(source, RULE, _PYTHON, _NATIVE, "{} reaches beyond the candidate's own code")
    for node in source.host_nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith(_PATHS):
            yield source.finding(RULE, node, f"the path {node.value[:40]!r} belongs to the system or the judge")
