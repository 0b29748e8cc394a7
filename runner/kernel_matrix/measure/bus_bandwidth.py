"""Bytes that a collective moves over the link of each rank.

The definitions are those of nccl-tests, whose ``doc/PERFORMANCE.md`` derives them. A collective has a size ``S``, which
:class:`~kernel_matrix.model.enums.CollectiveKind` defines for each kind. With the time ``t`` of a call:

- algorithm bandwidth: ``S ÷ t``, how fast the data of the caller is processed;
- bus bandwidth: ``S ÷ t × factor``. The factor depends on kind and number of ranks such that the result can be compared
  with the bandwidth of a link in one direction, for any number of ranks.
"""

from __future__ import annotations

from kernel_matrix.model.enums import CollectiveKind


def bus_factor(kind: CollectiveKind, ranks: int) -> float:
    """Compute bus bandwidth ÷ algorithm bandwidth: the share of ``S`` that a rank must send, or receive, at least.

    Args:
        kind: ``2 (n - 1) / n`` for ``all_reduce``; ``(n - 1) / n`` for ``all_gather``, ``reduce_scatter`` and
            ``all_to_all``; 1 for ``broadcast`` and ``send``.
        ranks: ``n``.
    """
    if kind in (CollectiveKind.BROADCAST, CollectiveKind.SEND):
        return 1.0
    share_of_others = (ranks - 1) / ranks
    return 2 * share_of_others if kind is CollectiveKind.ALL_REDUCE else share_of_others
