"""Rule ``decoy``: a kernel that is never launched."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_matrix.scan.embedded_cpp import CppText
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "decoy"


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Yield kernels that are not reachable from the entry."""
    for function in source.kernel_definitions:
        if function.name not in source.reach.words:
            yield source.finding(RULE, function, f"kernel {function.name} is not reachable from {source.entry}")
    for native in source.native:
        for name in native.kernels:
            message = _explain_decoy(name, native, source)
            if message:
                line = next(native.find(re.compile(rf"\b{name}\b")))[0]
                yield source.finding(RULE, line, message)


def _explain_decoy(name: str, native: CppText, source: ScannedSource) -> str:
    if name in source.reach.words:
        return ""  # looked up by its name
    mentions = sum(len(re.findall(rf"\b{name}\b", other.code)) for other in source.native)
    if mentions < 2:
        return f"kernel {name} is defined but never launched"
    if not any(source.reach.words & other.callable_names for other in _compiled_with(native, source)):
        return f"kernel {name} belongs to an extension that is not reachable from {source.entry}"
    return ""


def _compiled_with(native: CppText, source: ScannedSource) -> Iterator[CppText]:
    """Yield ``native`` and the texts that share identifiers with it, which are probably compiled together with it."""
    yield from (other for other in source.native if other is native or other.identifiers & native.identifiers)
