"""Red zones: random bytes around the tensors of a lent arena, which a call must not change."""

from __future__ import annotations

import secrets
from typing import Sequence

import torch

from kernel_matrix.inside.memory import TensorSpec, guards


class RedZones:
    """All bytes of one arena that belong to no tensor."""

    def __init__(self, arena: torch.Tensor, specs: Sequence[TensorSpec], what: str) -> None:
        """Create the zones; ``what`` names a tensor of this arena in evidence: ``input`` or ``output``."""
        self._arena = arena
        self._what = what
        self._zones = guards(specs, arena.numel())
        # One list of places for all zones, so that filling and checking take one kernel each.
        self._places = torch.cat([torch.arange(start, stop, device=arena.device) for start, stop in self._zones])
        self._generator = torch.Generator(arena.device)
        self._generator.manual_seed(secrets.randbits(63))
        self._written = torch.empty(0, dtype=torch.uint8, device=arena.device)

    def fill(self) -> None:
        """Write unpredictable bytes; on a GPU this is only queued."""
        shape, device = self._places.shape, self._arena.device
        self._written = torch.randint(0, 256, shape, dtype=torch.uint8, device=device, generator=self._generator)
        self._arena.index_copy_(0, self._places, self._written)

    def damage(self) -> str:
        """Describe the bytes that changed since they were written; empty if none did."""
        differs = self._arena.index_select(0, self._places) != self._written
        if not bool(differs.any()):
            return ""
        place = int(self._places[int(differs.to(torch.uint8).argmax())])
        zone = next(number for number, (start, stop) in enumerate(self._zones) if start <= place < stop)
        where = f"before {self._what} 0" if zone == 0 else f"behind {self._what} {zone - 1}"
        return f"{int(differs.sum())} bytes of the memory around the {self._what}s were written to, first {where}"
