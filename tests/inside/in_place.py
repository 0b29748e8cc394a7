"""Outputs in place on a CPU: pools that allocate in the judge's memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch._dynamo  # else the first call in a dispatch mode imports it, which may take longer than a call may
from torch.utils._python_dispatch import TorchDispatchMode

from kernel_matrix.inside.memory import ALIGNMENT, Arena
from kernel_matrix.platforms.cpu import inside as cpu


class PlacingPool:
    """Pool that lets operators of torch have their new results in an arena."""

    def __init__(self, arena: Arena) -> None:
        self._memory = arena.tensor
        self._next = 0
        self.used_bytes = 0

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Place results from the start of the arena on: those of earlier batches are gone."""
        self._next = 0
        with _Placing(self.place):
            yield

    def capture(self, function: Callable[[], Any]) -> Callable[[], Any]:
        """Return a function that computes what ``function`` returned here again, into the same memory."""
        with _Placing(self.place):
            first = function()

        def replay() -> Any:
            for (_, kept), (_, new) in zip(first, function(), strict=True):
                kept.copy_(new)
            return first

        return replay

    def place(self, result: torch.Tensor) -> torch.Tensor:
        """Return a tensor like ``result`` in the arena."""
        nbytes = -(-result.numel() * result.element_size() // ALIGNMENT) * ALIGNMENT
        if self._next + nbytes > len(self._memory):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        place = self._memory[self._next : self._next + result.numel() * result.element_size()]
        self._next += nbytes
        self.used_bytes = max(self.used_bytes, self._next)
        return place.view(result.dtype).as_strided(result.shape, result.stride()).copy_(result)

    def close(self) -> None:
        """Do nothing: the memory is the arena's."""


class _Placing(TorchDispatchMode):
    def __init__(self, place: Callable[[torch.Tensor], torch.Tensor]) -> None:
        super().__init__()
        self._place = place

    def __torch_dispatch__(self, function: Any, _types: Any, arguments: Any = (), named: Any = None) -> Any:
        result = function(*arguments, **(named or {}))
        known = {one.untyped_storage().data_ptr() for one in arguments if isinstance(one, torch.Tensor)}
        is_new = isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() not in known
        return self._place(result) if is_new else result


def pool_bytes(outputs: Sequence[int], calls: int) -> int:
    """Return the room for outputs and some temporaries, which are never given back."""
    return 8 * calls * sum(-(-nbytes // ALIGNMENT) * ALIGNMENT for nbytes in outputs) + (1 << 16)


def compute_in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give the CPU platform pools for outputs in place."""
    monkeypatch.setattr(cpu, "open_pool", PlacingPool)
    monkeypatch.setattr(cpu, "pool_bytes", pool_bytes)
