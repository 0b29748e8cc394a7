"""The columns that outcomes may be sliced by, under their names on the command line."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from kernel_matrix.errors import UsageError

SLICES: Final = {
    "gpu": "gpu",
    "toolchain": "toolchain",
    "dtype": "dtype",
    "category": "category",
    "level": "level",
    "source": "source",
    "language": "language",
    "problem": "problem",
    "ranks": "ranks",
    "workload": "workload",
    "candidate": "candidate",
    "kind": "candidate_kind",
    "method": "origin_method",
    "model": "origin_model",
    "prompt": "origin_prompt",
    "round": "origin_round",
    "matrix": "matrix",
    "driver": "driver",
    "unit": "gpu_uuid",
    "host": "hostname",
}
"""Name → column of ``OUTCOMES``."""


def columns_of(names: Sequence[str]) -> list[str]:
    """Look up the columns of ``names``.

    Raises:
        UsageError: A name is unknown.
    """
    unknown = [name for name in names if name not in SLICES]
    if unknown:
        raise UsageError(f"cannot slice by {unknown[0]!r}", next_step=f"Use one of {', '.join(SLICES)}.")
    return [SLICES[name] for name in names]
