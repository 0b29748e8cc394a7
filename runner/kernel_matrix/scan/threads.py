"""Rule ``threads``: threads, processes and callbacks that run outside of the timed call."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_matrix.scan.call_rules import find_calls
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "threads"

_STARTERS = re.compile(
    r"^(?:threading\.(?:Thread|Timer|_start_\w+)|_thread\.start_\w+|concurrent\.futures\.(?:\w+\.)?\w*Executor"
    r"|(?:torch\.)?multiprocessing\.(?:\w+\.)*(?:\w*Process|\w*Pool)|os\.(?:fork|forkpty)|subprocess\.Popen)$"
)
"""Found also where they are not called: a subclass, an argument of ``map`` or a default value starts work too."""
_PYTHON = re.compile(
    r"^(?:multiprocessing\.[\w.]+|torch\.multiprocessing\.[\w.]+|asyncio\.(?:run|create_task|to_thread|new_event_loop)"
    r"|atexit\.register|weakref\.finalize|signal\.(?:signal|setitimer|alarm)"
    r"|os\.(?:posix_spawn\w*|spawn\w+|exec\w+|system|popen)|subprocess\.\w+)$"
)
_NATIVE = re.compile(
    r"\bstd::(?:thread|jthread|async)\b|\bpthread_create\s*\(|\b(?:fork|vfork|posix_spawn|execve|system|popen)\s*\("
    r"|\b(?:cuda|hip)LaunchHostFunc\s*\("
)
_MESSAGE = "{} starts work outside of the call"


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield uses of what starts threads, processes or late callbacks."""
    for node in source.host_nodes:
        name = source.names.full(node) if isinstance(node, ast.expr) else ""
        if _STARTERS.search(name):
            yield source.finding(RULE, node, _MESSAGE.format(name))
    yield from find_calls(source, RULE, _PYTHON, _NATIVE, _MESSAGE)
