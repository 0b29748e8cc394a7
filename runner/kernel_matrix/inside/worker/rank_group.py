"""Joining torch's default process group, in the process of one rank."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import timedelta

from kernel_matrix.inside.platform import InsidePlatform

LOOPBACK = "lo"  # the only network interface of a sandbox

JOIN_S = 60.0  # limit for all ranks to meet


@dataclass(frozen=True)
class RankPlace:
    """Place of a process among those that make calls together."""

    rank: int
    ranks: int
    store: str
    """Path of the file through which they find each other."""
    built: bool = False
    """What was compiled ahead of time is unpacked before a source is loaded, by another process."""


def join_group(place: RankPlace, platform: InsidePlatform) -> None:
    """Make ``torch.distributed`` ready in this process; returns when all ranks have done so."""
    import torch.distributed as dist  # noqa: PLC0415  # only ranks need it

    for variable in ("GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"):
        os.environ.setdefault(variable, LOOPBACK)
    store = dist.FileStore(place.store, place.ranks)
    limit = timedelta(seconds=JOIN_S)
    dist.init_process_group(platform.COLLECTIVES, store=store, rank=place.rank, world_size=place.ranks, timeout=limit)
