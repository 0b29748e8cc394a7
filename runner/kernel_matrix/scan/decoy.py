"""A kernel that nobody launches."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernel_matrix.scan.embedded_cpp import CppText
from kernel_matrix.scan.rule_match import RuleMatch
from kernel_matrix.scan.source import ScannedSource

RULE = "decoy"


def find(source: ScannedSource) -> Iterator[RuleMatch]:
    """Kernels that are out of the entry's reach."""
    for function in source.kernel_definitions:
        if function.name not in source.reach.words:
            yield source.finding(RULE, function, f"kernel {function.name} is out of reach of {source.entry}")
    for native in source.native:
        for name in native.kernels:
            why = _why_decoy(name, native, source)
            if why:
                line = next(native.find(re.compile(rf"\b{name}\b")))[0]
                yield source.finding(RULE, line, why)


def _why_decoy(name: str, native: CppText, source: ScannedSource) -> str:
    if name in source.reach.words:
        return ""  # asked for by its name
    mentions = sum(len(re.findall(rf"\b{name}\b", other.code)) for other in source.native)
    if mentions < 2:
        return f"kernel {name} is defined and launched nowhere"
    if not any(source.reach.words & other.callable_names for other in _joined_to(native, source)):
        return f"kernel {name} belongs to an extension that is out of reach of {source.entry}"
    return ""


def _joined_to(native: CppText, source: ScannedSource) -> Iterator[CppText]:
    """The texts that are compiled together with ``native``, as far as their words tell."""
    yield from (other for other in source.native if other is native or other.identifiers & native.identifiers)
