"""The comparison of a night with a baseline: the one place that calls :mod:`kernel_matrix.analysis.compare`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path

from kernel_matrix.analysis.accepted import Acceptance
from kernel_matrix.analysis.compare import compare
from kernel_matrix.analysis.comparison import Comparison
from kernel_matrix.analysis.tables import open_tables


def compared(
    base: Path, new: Path, *, names: tuple[str, str], accepted: Sequence[Acceptance], today: date
) -> Comparison:
    """Compare the tables in ``new`` with those in ``base``.

    :param names: what both are called.
    :raises StoreError: when tables are missing or damaged.
    """
    return compare(open_tables([base]).cells, open_tables([new]).cells, names=names, accepted=accepted, today=today)
