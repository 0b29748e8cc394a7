"""Names that options accept, for example to complete them on a command line."""

from __future__ import annotations

from kernel_matrix.hosts.survey import AUTO
from kernel_matrix.model.enums import Dtype
from kernel_matrix.plan.filters import FILTER_KEYS
from kernel_matrix.results.latest import FILTERS
from kernel_matrix.sandboxes import SANDBOXES

__all__ = ["dtype_names", "filter_keys", "sandbox_names"]


def sandbox_names() -> tuple[str, ...]:
    """List the values of ``--sandbox``."""
    return (AUTO, *SANDBOXES)


def dtype_names() -> tuple[str, ...]:
    """List all dtypes."""
    return tuple(dtype.value for dtype in Dtype)


def filter_keys(*, of_results: bool) -> tuple[str, ...]:
    """List the keys of filters: of results, or of cells that are planned."""
    return tuple(FILTERS) if of_results else FILTER_KEYS
