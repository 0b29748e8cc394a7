"""Rule ``capture``: CUDA graphs, which record work once and replay it."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from kernel_matrix.scan.call_rules import find_calls
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "capture"

_PYTHON = re.compile(r"^torch\.cuda\.(?:CUDAGraph|graph|make_graphed_callables|graphs\.\w+)$")
_NATIVE = re.compile(
    r"\b(?:cuda|hip)StreamBeginCapture\w*\s*\(|\b(?:cuda|hip)Graph(?:Launch|Instantiate)\w*\s*\(|\bcuGraphLaunch\s*\("
)
_MODES = ("reduce-overhead", "max-autotune")
"""Modes of ``torch.compile`` that record graphs."""


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield calls that record or replay a graph, directly or through ``torch.compile``."""
    yield from find_calls(source, RULE, _PYTHON, _NATIVE, "{} records or replays a graph")
    for call, name in source.called():
        mode = next((keyword.value for keyword in call.keywords if keyword.arg == "mode"), None)
        if name == "torch.compile" and isinstance(mode, ast.Constant) and mode.value in _MODES:
            yield source.finding(RULE, call, f"torch.compile in mode {mode.value} records graphs")
