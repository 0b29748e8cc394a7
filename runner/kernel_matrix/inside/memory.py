"""Arenas: memory that the judge owns and lends to a worker as a file descriptor, without a copy.

How such memory is made and shared is the platform's business (:mod:`kernel_matrix.inside.platform`). Parameters, inputs
and outputs each get an arena of their own; no arena ever holds an expected value.

Where two processes cannot share a device's memory, an arena is *staged*: the judge and the worker have a buffer of
their own on the device and share one in the host's memory. :meth:`Arena.publish` and :meth:`Arena.fetch` copy; where
memory is shared they do nothing.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from dataclasses import dataclass, replace
from typing import Any, Callable, ContextManager, Dict, List, Optional, Protocol, Sequence, Tuple

import torch

ALIGNMENT = 512
"""Bytes to which each tensor in an arena is aligned, the same as in torch's own GPU allocators."""

GUARD = 512
"""Least number of bytes before, between and after the tensors of an arena; a multiple of :data:`ALIGNMENT`.

The judge checks that they do not change.
"""

_F_ADD_SEALS, _F_GET_SEALS = 1033, 1034  # linux/fcntl.h
_SEAL_SHRINK_GROW_SEAL = 0x2 | 0x4 | 0x1


@dataclass(frozen=True)
class TensorSpec:
    """Position of one tensor in an arena."""

    dtype: str
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]
    offset: int

    @property
    def span_bytes(self) -> int:
        """Number of bytes from the start of its first to the end of its last element."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride))
        return (last + 1) * int(getattr(torch, self.dtype).itemsize)

    def view(self, arena: torch.Tensor) -> torch.Tensor:
        """Return the tensor as a view of ``arena`` (uint8, 1-D)."""
        window = arena[self.offset : self.offset + self.span_bytes]
        return window.view(getattr(torch, self.dtype)).as_strided(self.shape, self.stride)

    def to_json(self) -> Dict[str, Any]:
        """Return its form on the wire."""
        return {"dtype": self.dtype, "shape": self.shape, "stride": self.stride, "offset": self.offset}

    @staticmethod
    def from_json(data: Dict[str, Any]) -> TensorSpec:
        """Return the tensor's position from its form on the wire (judge → worker)."""
        return TensorSpec(data["dtype"], tuple(data["shape"]), tuple(data["stride"]), data["offset"])


def dtype_name(dtype: torch.dtype) -> str:
    """Return for example ``float32`` for ``torch.float32``."""
    return str(dtype).split(".")[-1]


def lay_out(tensors: Sequence[torch.Tensor]) -> Tuple[List[TensorSpec], int]:
    """Return places for ``tensors`` in one arena and the bytes it needs, with a guard on either side of each.

    Strides are kept unless elements overlap.
    """
    specs = []
    offset = GUARD
    for tensor in tensors:
        stride = tensor.stride() if 0 not in tensor.stride() else tensor.contiguous().stride()
        spec = TensorSpec(dtype_name(tensor.dtype), tuple(tensor.shape), tuple(stride), offset)
        specs.append(spec)
        offset += -(-spec.span_bytes // ALIGNMENT) * ALIGNMENT + GUARD
    return specs, offset


@dataclass(frozen=True)
class RowLayout:
    """Places of the tensors of all ranks in one row of memory, in which each rank has a segment."""

    ranks: Tuple[Tuple[TensorSpec, ...], ...]
    """Per rank, places from the start of its segment."""
    segments: Tuple[Tuple[int, int], ...]
    """Per rank, start and stop of its segment in the row."""

    @staticmethod
    def of(tensors: Sequence[Sequence[torch.Tensor]]) -> RowLayout:
        """Lay out the tensors of each rank like :func:`lay_out` does."""
        ranks, segments, stop = [], [], 0
        for of_rank in tensors:
            specs, nbytes = lay_out(of_rank)
            ranks.append(tuple(specs))
            segments.append((stop, stop + nbytes))
            stop += nbytes
        return RowLayout(tuple(ranks), tuple(segments))

    @property
    def nbytes(self) -> int:
        """Bytes of a row."""
        return self.segments[-1][1]

    @property
    def specs(self) -> List[TensorSpec]:
        """Places of all tensors in the row."""
        pairs = zip(self.ranks, self.segments)
        return [replace(spec, offset=spec.offset + start) for specs, (start, _) in pairs for spec in specs]


def guards(specs: Sequence[TensorSpec], nbytes: int) -> List[Tuple[int, int]]:
    """Return (start, stop) of the gaps before, between and after the tensors of an arena, in order."""
    starts = [0, *(spec.offset + spec.span_bytes for spec in specs)]
    stops = [*(spec.offset for spec in specs), nbytes]
    return list(zip(starts, stops))


class Arena:
    """``nbytes`` of memory behind ``descriptor``; ``tensor`` is all of it as uint8 on its device."""

    def __init__(self, descriptor: int, tensor: torch.Tensor, keep: Any = None) -> None:
        self.descriptor = descriptor
        self.tensor = tensor
        self._keep = keep

    def publish(self) -> None:
        """Make everything written here visible to the other process, after all queued work is done."""

    def fetch(self) -> None:
        """Read what the other process published."""

    def close(self) -> None:
        """Release the memory as soon as no tensor uses it."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        del self.tensor
        self._keep = None


class LentArenas:
    """The arenas of inputs and outputs that the judge lent to a worker."""

    def __init__(
        self, open_arena: Callable[[int, int], Arena], sizes: Tuple[int, int], descriptors: Sequence[int]
    ) -> None:
        """Open both with the platform's ``open_arena``."""
        self.inputs, self.outputs = (open_arena(*one) for one in zip(descriptors, sizes))

    def fetch(self) -> None:
        """See what the judge delivered."""
        self.inputs.fetch()
        self.outputs.fetch()

    def publish(self) -> None:
        """Let the judge see the outputs, and what became of the inputs."""
        self.inputs.publish()
        self.outputs.publish()

    def close(self) -> None:
        """Release the memory."""
        self.inputs.close()
        self.outputs.close()


class StagedArena(Arena):
    """A device buffer of this process, and ``host``, which is shared with the other process.

    Args:
        host: Shared memory of the host.
        tensor: Buffer on the device, of the same size.
        synchronize: Function that waits until copies are done.
    """

    def __init__(self, host: Arena, tensor: torch.Tensor, synchronize: Callable[[], None]) -> None:
        super().__init__(host.descriptor, tensor)
        self._host = host
        self._synchronize = synchronize

    def publish(self) -> None:
        """Copy to the host."""
        self._host.tensor.copy_(self.tensor, non_blocking=True)
        self._synchronize()

    def fetch(self) -> None:
        """Copy to the device."""
        self.tensor.copy_(self._host.tensor, non_blocking=True)
        self._synchronize()

    def close(self) -> None:
        """Release both buffers."""
        if self.descriptor >= 0:
            self._host.close()
            self.descriptor = -1
        super().close()


def create_shared_file(nbytes: int) -> int:
    """Return the descriptor of an anonymous file of ``nbytes`` that no process can shrink or grow."""
    descriptor = os.memfd_create("kernel-matrix-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, nbytes)
    fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEAL_SHRINK_GROW_SEAL)
    return descriptor


def is_shared_file(descriptor: int) -> bool:
    """Return whether ``descriptor`` is that of a file from :func:`create_shared_file`."""
    try:
        return fcntl.fcntl(descriptor, _F_GET_SEALS) == _SEAL_SHRINK_GROW_SEAL
    except OSError:  # other kinds of files have no seals
        return False


def map_file(descriptor: int, nbytes: int) -> Arena:
    """Return the file behind ``descriptor`` as an arena in the host's memory."""
    mapping = mmap.mmap(descriptor, nbytes)
    return Arena(descriptor, torch.frombuffer(mapping, dtype=torch.uint8), mapping)


class OutputPool(Protocol):
    """Allocator whose memory is an arena, so that outputs of calls are the judge's memory without a copy."""

    @property
    def used_bytes(self) -> int:
        """Bytes from the arena's start within which everything lies that was allocated so far."""
        ...

    def allocating(self) -> ContextManager[None]:
        """Let torch allocate from the pool inside, in this thread.

        Where the arena has no room left, torch raises its error for that.
        """
        ...

    def capture(self, function: Callable[[], Any]) -> Optional[Callable[[], Any]]:
        """Return what the platform's ``capture`` does, with outputs that lie in the pool."""
        ...

    def close(self) -> None:
        """Give the memory back; nothing that was allocated here may be used any more."""
        ...
