"""A pool of torch's allocator in an arena, so that what calls return lies in the judge's memory.

torch asks the pool's own allocator for pieces of memory (``torch.cuda.MemPool``), in which it places tensors. Here the
pieces come from the arena's addresses, one after the other.
"""

from __future__ import annotations

import ctypes
from collections import defaultdict
from contextlib import contextmanager
from typing import Any, Callable, DefaultDict, Iterator, List, Optional, Sequence

import torch

from kernel_matrix.inside.gpu_calls import capture
from kernel_matrix.inside.memory import Arena
from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.platforms.cuda.inside.arenas import ARENAS
from kernel_matrix.platforms.cuda.inside.libcuda import call

_MIB = 1 << 20
_SMALL, _LARGE = _MIB, 10 * _MIB
"""Up to the first size tensors share pieces of 2 MiB, up to the second ones of 20 MiB; larger ones have their own."""
_TEMPORARY = 64 * _MIB
"""Bytes for what calls need besides their outputs, and twice one call's outputs; without room they are copied."""

# c10/cuda/CUDACachingAllocator.h: (bytes, device, stream) → address, and (address, bytes, device, stream).
_ALLOCATE = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)
_FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_void_p)

_kept: List[Any] = []
"""Functions that torch may call until the process ends."""


class Pieces:
    """Pieces of ``nbytes`` from the address ``start`` on; a piece that was given back serves the next of its size.

    Where there is no room, ``elsewhere``, if given, returns the address of other memory, or None.
    """

    def __init__(
        self, start: int, nbytes: int, elsewhere: Callable[[int], Optional[int]] = lambda _nbytes: None
    ) -> None:
        self._start = self._next = start
        self._end = start + nbytes
        self._elsewhere = elsewhere
        self._spare: DefaultDict[int, List[int]] = defaultdict(list)

    @property
    def used_bytes(self) -> int:
        """Bytes from the start on that were ever taken."""
        return self._next - self._start

    def take(self, nbytes: int, _device: int, _stream: Any) -> Optional[int]:
        """Return the address of a piece; None if there is no room."""
        if self._spare[nbytes]:
            return self._spare[nbytes].pop()
        if self._next + nbytes > self._end:
            return self._elsewhere(nbytes)
        self._next += nbytes
        return self._next - nbytes

    def give_back(self, address: int, nbytes: int, _device: int, _stream: Any) -> None:
        """Take a piece back."""
        self._spare[nbytes].append(address)


class CudaOutputPool:
    """Pool in all of an arena's memory."""

    def __init__(self, arena: Arena) -> None:
        memory = arena.tensor
        self._counted = memory.numel()
        self._others: List[ctypes.c_ulonglong] = []
        # A rank that lacked room would leave the others waiting in a collective. Its outputs are then seen to lie
        # elsewhere, and all ranks copy theirs.
        has_ranks = torch.distributed.is_available() and torch.distributed.is_initialized()
        elsewhere = (self._allocate_elsewhere,) if has_ranks else ()
        self._pieces = Pieces(memory.data_ptr(), memory.numel(), *elsewhere)
        functions = _ALLOCATE(self._pieces.take), _FREE(self._pieces.give_back)
        _kept.append(functions)
        take, give_back = (ctypes.cast(function, ctypes.c_void_p).value for function in functions)
        allocator = torch._C._cuda_customAllocator(take, give_back)  # noqa: SLF001  # its public form takes a file
        self._pool: Any = torch.cuda.MemPool(allocator)
        ARENAS.count(-self._counted, torch.cuda.current_device())  # torch counts the pieces itself

    @property
    def used_bytes(self) -> int:
        """Bytes from the arena's start in which everything lies that was allocated."""
        return self._pieces.used_bytes

    @contextmanager
    def allocating(self) -> Iterator[None]:
        """Let this thread's tensors be allocated in the pool inside."""
        with torch.cuda.use_mem_pool(self._pool):
            yield

    def capture(self, function: Callable[[], Any]) -> Optional[Callable[[], Any]]:
        """Capture ``function`` with what it allocates in the pool."""
        return capture(function, self._pool.id)

    def close(self) -> None:
        """Give the pool back; its memory is the arena's."""
        self._pool = None
        ARENAS.count(self._counted, torch.cuda.current_device())
        torch._C._cuda_clearCublasWorkspaces()  # noqa: SLF001  # torch keeps them, and one may lie in the arena
        torch.cuda.empty_cache()
        for address in self._others:
            call("cuMemFree_v2", address)
        self._others.clear()

    def _allocate_elsewhere(self, nbytes: int) -> Optional[int]:
        """Allocate memory outside of the arena; None if there is too little."""
        address = ctypes.c_ulonglong()
        try:
            call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(nbytes))
        except DeviceError:
            return None
        self._others.append(address)
        return address.value


def open_pool(arena: Arena) -> Optional[CudaOutputPool]:
    """Return a pool in ``arena``; None for a torch whose pools cannot be given memory, or use other threads'."""
    if ARENAS.is_staged() or not hasattr(torch.cuda.memory, "_cuda_beginAllocateCurrentThreadToPool"):
        return None
    return CudaOutputPool(arena)


def pool_bytes(outputs: Sequence[int], calls: int) -> int:
    """Return what a pool needs for outputs of these sizes, rounded like torch's allocator does; 0 if staged."""
    if ARENAS.is_staged():
        return 0
    return calls * sum(map(_bytes_in_pieces, outputs)) + _TEMPORARY + 2 * sum(outputs)


def _bytes_in_pieces(nbytes: int) -> int:
    """Return the share of pieces that an output of ``nbytes`` takes."""
    if nbytes <= _SMALL:
        return -(-nbytes // 512) * 512 * 2  # twice, since the last of a piece may not fit into it
    if nbytes <= _LARGE:
        return -(-2 * _LARGE // (2 * _LARGE // nbytes))
    return -(-nbytes // (2 * _MIB)) * 2 * _MIB
