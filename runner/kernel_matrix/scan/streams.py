"""Rule ``streams``: work on another CUDA stream than the timed one."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_matrix.scan.call_rules import find_calls
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "streams"

_PYTHON = re.compile(r"^torch\.(?:cuda\.)?(?:Stream|ExternalStream|stream|set_stream|StreamContext)$")
_NATIVE = re.compile(
    r"\b(?:cuda|cu|hip|hipExt)StreamCreate\w*\s*\(|\bgetStreamFromPool\s*\(|\b(?:cuda|hip)StreamPerThread\b"
)


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield calls that create or select a stream."""
    return find_calls(source, RULE, _PYTHON, _NATIVE, "{} creates or selects another stream")
