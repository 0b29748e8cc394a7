"""Links between devices: the one of a pair, the weakest one of a group, and words about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations, permutations

from kernel_matrix.platforms import Gpu, GpuLink, holds_for_all
from kernel_matrix.platforms.registry import get_platform

_UNKNOWN = "not known"


def link_rank(gpu: Gpu, link: GpuLink | None) -> int:
    """Return the position of the kind of ``link`` in the kinds of the platform of ``gpu``, the best first.

    A kind that is not known comes last.
    """
    kinds = get_platform(gpu.platform).LINK_KINDS
    return kinds.index(link.kind) if link is not None and link.kind in kinds else len(kinds)


def group_link(gpus: Sequence[Gpu]) -> GpuLink | None:
    """Return the weakest link between these devices; ``None`` for one device, and if a pair's kind is not known.

    Its ``peer`` is about all pairs: false if one device cannot access the memory of another one.
    """
    found = [_link(one, other) for one, other in permutations(gpus, 2)]
    links = [link for link in found if link is not None and link.kind is not None]
    if not found or len(links) < len(found):
        return None
    weakest = max(links, key=lambda link: (link_rank(gpus[0], link), -(link.bytes_per_s or 0)))
    return replace(weakest, peer=holds_for_all(link.peer for link in links))


def has_peer_access(one: Gpu, other: Gpu) -> bool:
    """Return whether each of two devices may access the memory of the other one; true if the driver does not say."""
    return all(link is None or link.peer is not False for link in (_link(one, other), _link(other, one)))


def describe_links(gpus: Sequence[Gpu]) -> str:
    """Return words about the links between all pairs of ``gpus``, the best first; empty if none is known.

    For example ``GPU 0-1, 2-3: xgmi (4 lanes, 200 GB/s each way); GPU 0-2, 0-3, 1-2, 1-3: pcie``.
    """
    pairs: dict[str, list[str]] = {}
    for one, other in sorted(combinations(gpus, 2), key=lambda pair: link_rank(pair[0], group_link(pair))):
        pairs.setdefault(_words(group_link((one, other)), one, other), []).append(f"{one.index}-{other.index}")
    if not any(word != _UNKNOWN for word in pairs):
        return ""
    parts = [f"GPU {', '.join(of)}: {words}" for words, of in pairs.items()]
    if len(pairs) == 1 and len(gpus) > 2:  # two devices are one pair
        parts = [f"all of GPU {', '.join(str(gpu.index) for gpu in gpus)}: {next(iter(pairs))}"]
    return "; ".join(parts)


def _words(link: GpuLink | None, one: Gpu, other: Gpu) -> str:
    words = _UNKNOWN if link is None or link.kind is None else link.kind
    details = []
    if link is not None and link.lanes:
        details.append(f"{link.lanes} lanes")
    if link is not None and link.bytes_per_s:
        details.append(f"{link.bytes_per_s / 1e9:.4g} GB/s each way")
    if not has_peer_access(one, other):
        details.append("no access to each other's memory")
    return f"{words} ({', '.join(details)})" if details else words


def _link(one: Gpu, other: Gpu) -> GpuLink | None:
    return next((link for link in one.links if link.to == other.uuid), None)
