"""Work on another stream than the one that is timed."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_matrix.scan.call_rules import named
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "streams"

_PYTHON = re.compile(r"^torch\.(?:cuda\.)?(?:Stream|ExternalStream|stream|set_stream|StreamContext)$")
_NATIVE = re.compile(
    r"\bcudaStreamCreate\w*\s*\(|\bcuStreamCreate\w*\s*\(|\bgetStreamFromPool\s*\(|\bcudaStreamPerThread\b"
)


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Streams that are made or switched to."""
    return named(source, RULE, _PYTHON, _NATIVE, "{} makes or takes another stream")
