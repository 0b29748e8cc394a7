"""Rule ``threads``: threads, processes and callbacks that run outside of the timed call."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_matrix.scan.call_rules import find_calls
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "threads"

_PYTHON = re.compile(
    r"^(?:threading\.(?:Thread|Timer)|_thread\.start_new_thread|concurrent\.futures\.\w*Executor|multiprocessing\.\w+"
    r"|torch\.multiprocessing\.\w+|asyncio\.(?:run|create_task|to_thread)|atexit\.register"
    r"|os\.(?:fork|forkpty|posix_spawn\w*|spawn\w+|exec\w+|system|popen)|subprocess\.\w+)$"
)
_NATIVE = re.compile(
    r"\bstd::(?:thread|jthread|async)\b|\bpthread_create\s*\(|\b(?:fork|vfork|posix_spawn|execve|system|popen)\s*\("
    r"|\bcudaLaunchHostFunc\s*\("
)


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield calls that start threads, processes or late callbacks."""
    return find_calls(source, RULE, _PYTHON, _NATIVE, "{} starts work outside of the call")
