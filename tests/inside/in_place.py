"""Outputs in place on a CPU: windows that map the judge's memory at fixed addresses, and pools that allocate there."""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from kernel_matrix.inside.memory import ALIGNMENT
from kernel_matrix.platforms.cpu import inside as cpu

_FIXED = 0x10  # MAP_FIXED, linux/mman.h
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mmap.restype = ctypes.c_void_p
_libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)


class FixedWindow:
    """Window whose memory is at the same addresses in every batch, like one on a GPU."""

    def __init__(self, nbytes: int) -> None:
        self._reserved = mmap.mmap(-1, nbytes)
        self.tensor = torch.frombuffer(self._reserved, dtype=torch.uint8)

    def show(self, descriptor: int) -> None:
        """Map the memory behind ``descriptor``, and take the descriptor over."""
        self._map(descriptor, mmap.MAP_SHARED)
        os.close(descriptor)

    def publish(self) -> None:
        """Do nothing: the judge has the same memory."""

    def hide(self) -> None:
        """Map private memory in its place."""
        self._map(-1, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)

    def close(self) -> None:
        """Unmap the judge's memory; the addresses go with the last view."""
        self.hide()

    def _map(self, descriptor: int, flags: int) -> None:
        access = mmap.PROT_READ | mmap.PROT_WRITE
        size = len(self._reserved)
        assert _libc.mmap(self.tensor.data_ptr(), size, access, flags | _FIXED, descriptor, 0) == self.tensor.data_ptr()


class PlacingPool:
    """Pool that lets operators of torch have their new results in a window."""

    def __init__(self, window: FixedWindow) -> None:
        self._memory = window.tensor
        self._next = 0
        self.used_bytes = 0

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Place results from the start of the window on: those of earlier batches are gone."""
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
        """Return a tensor like ``result`` in the window."""
        nbytes = -(-result.numel() * result.element_size() // ALIGNMENT) * ALIGNMENT
        if self._next + nbytes > len(self._memory):
            raise torch.cuda.OutOfMemoryError("CUDA out of memory")
        place = self._memory[self._next : self._next + result.numel() * result.element_size()]
        self._next += nbytes
        self.used_bytes = max(self.used_bytes, self._next)
        return place.view(result.dtype).as_strided(result.shape, result.stride()).copy_(result)

    def close(self) -> None:
        """Do nothing: the memory is the window's."""


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
    """Give the CPU platform windows and pools for outputs in place."""
    monkeypatch.setattr(cpu, "open_window", FixedWindow)
    monkeypatch.setattr(cpu, "open_pool", PlacingPool)
    monkeypatch.setattr(cpu, "pool_bytes", pool_bytes)
