"""Dividing what belongs to all ranks, one rank after the other."""

from __future__ import annotations

from typing import Any, List


def parts_of_ranks(items: Any, ranks: int) -> List[Any]:
    """Return as many equal parts of a sequence as there are ranks, in order; a rest is left out."""
    each = len(items) // ranks
    return [items[rank * each : (rank + 1) * each] for rank in range(ranks)]
