"""Arenas: memory that the judge owns and lends to a worker as a file descriptor, without a copy.

On a CPU an arena is a sealed anonymous file (``memfd_create``): a worker cannot shrink it under the judge's feet.
On a GPU it is one allocation of the driver's virtual memory management, exported as a POSIX file descriptor
(CUDA driver API, ``cuMemCreate`` … ``cuMemImportFromShareableHandle``): this needs neither a shared IPC namespace nor
a common user, unlike CUDA's older IPC handles. Parameters, inputs and outputs each get an arena of their own; no arena
ever holds an expected value.
"""

from __future__ import annotations

import ctypes
import fcntl
import mmap
import os
from dataclasses import dataclass
from typing import Any, Dict, List, Sequence, Tuple

import torch

from kernel_matrix.inside.libcuda import OUT_OF_MEMORY, DriverError, call, library

ALIGNMENT = 512
"""Bytes each tensor in an arena is aligned to: what torch's own CUDA allocator gives."""

GUARD = 512
"""Bytes at least before, between and behind the tensors of an arena that belong to none of them; a multiple of
:data:`ALIGNMENT`. What lies there must lie there afterwards too."""

_F_ADD_SEALS = 1033
_SEAL_SHRINK_GROW_SEAL = 0x2 | 0x4 | 0x1


@dataclass(frozen=True)
class TensorSpec:
    """Where one tensor lies in an arena."""

    dtype: str
    shape: Tuple[int, ...]
    stride: Tuple[int, ...]
    offset: int

    @property
    def span_bytes(self) -> int:
        """Bytes from its first to just behind its last element."""
        if 0 in self.shape:
            return 0
        last = sum((size - 1) * step for size, step in zip(self.shape, self.stride))
        return (last + 1) * int(getattr(torch, self.dtype).itemsize)

    def view(self, arena: torch.Tensor) -> torch.Tensor:
        """The tensor itself, over ``arena`` (uint8, 1-D)."""
        window = arena[self.offset : self.offset + self.span_bytes]
        return window.view(getattr(torch, self.dtype)).as_strided(self.shape, self.stride)

    def to_json(self) -> Dict[str, Any]:
        """For the wire."""
        return {"dtype": self.dtype, "shape": self.shape, "stride": self.stride, "offset": self.offset}

    @staticmethod
    def from_json(data: Dict[str, Any]) -> TensorSpec:
        """From the wire (judge → worker)."""
        return TensorSpec(data["dtype"], tuple(data["shape"]), tuple(data["stride"]), data["offset"])


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.float32`` → ``float32``."""
    return str(dtype).split(".")[-1]


def lay_out(tensors: Sequence[torch.Tensor]) -> Tuple[List[TensorSpec], int]:
    """Places for ``tensors`` in one arena and the bytes it needs, with a guard on either side of each.

    Strides are kept where elements do not overlap.
    """
    specs = []
    offset = GUARD
    for tensor in tensors:
        stride = tensor.stride() if 0 not in tensor.stride() else tensor.contiguous().stride()
        spec = TensorSpec(dtype_name(tensor.dtype), tuple(tensor.shape), tuple(stride), offset)
        specs.append(spec)
        offset += -(-spec.span_bytes // ALIGNMENT) * ALIGNMENT + GUARD
    return specs, offset


def guards(specs: Sequence[TensorSpec], nbytes: int) -> List[Tuple[int, int]]:
    """(start, stop) of what lies before, between and behind the tensors of an arena, in order: one more than them."""
    starts = [0, *(spec.offset + spec.span_bytes for spec in specs)]
    stops = [*(spec.offset for spec in specs), nbytes]
    return list(zip(starts, stops))


class Arena:
    """``nbytes`` of memory behind ``descriptor``; ``tensor`` is all of it as uint8 on its device."""

    def __init__(self, descriptor: int, tensor: torch.Tensor, keep: Any = None) -> None:
        self.descriptor = descriptor
        self.tensor = tensor
        self._keep = keep

    def close(self) -> None:
        """Give the memory back as soon as no tensor looks at it any more."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1
        del self.tensor
        self._keep = None


def create_arena(device: str, nbytes: int) -> Arena:
    """A new arena on ``device`` (``cpu`` or ``cuda``)."""
    return _create_cuda(nbytes) if device == "cuda" else _create_cpu(nbytes)


def open_arena(device: str, descriptor: int, nbytes: int) -> Arena:
    """The arena behind a descriptor that the judge sent."""
    return _open_cuda(descriptor, nbytes) if device == "cuda" else _open_cpu(descriptor, nbytes)


def transport_name(device: str) -> str:
    """How tensors cross on ``device``, for the record."""
    return "cuda-vmm" if device == "cuda" else "memfd"


def _create_cpu(nbytes: int) -> Arena:
    descriptor = os.memfd_create("kernel-matrix-arena", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, nbytes)
    fcntl.fcntl(descriptor, _F_ADD_SEALS, _SEAL_SHRINK_GROW_SEAL)
    return _open_cpu(descriptor, nbytes)


def _open_cpu(descriptor: int, nbytes: int) -> Arena:
    mapping = mmap.mmap(descriptor, nbytes)
    return Arena(descriptor, torch.frombuffer(mapping, dtype=torch.uint8), mapping)


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class _AllocationProperties(ctypes.Structure):
    """``CUmemAllocationProp``."""

    _fields_ = (
        ("type", ctypes.c_int),
        ("requested_handle_types", ctypes.c_int),
        ("location", _Location),
        ("win32_metadata", ctypes.c_void_p),
        ("compression", ctypes.c_ubyte),
        ("gpu_direct_rdma", ctypes.c_ubyte),
        ("usage", ctypes.c_ushort),
        ("reserved", ctypes.c_ubyte * 4),
    )


class _AccessDescription(ctypes.Structure):
    """``CUmemAccessDesc``."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


_POSIX_DESCRIPTOR = 1
_PINNED = 1
_ON_DEVICE = 1
_READ_WRITE = 3


def _open_torch() -> None:
    """Make torch's primary context current in this thread."""
    torch.cuda.init()
    torch.zeros(1, device="cuda")


def _properties() -> _AllocationProperties:
    properties = _AllocationProperties()
    properties.type = _PINNED
    properties.requested_handle_types = _POSIX_DESCRIPTOR
    properties.location = _Location(_ON_DEVICE, torch.cuda.current_device())
    return properties


def _rounded(nbytes: int) -> int:
    granularity, properties = ctypes.c_size_t(), _properties()
    call("cuMemGetAllocationGranularity", ctypes.byref(granularity), ctypes.byref(properties), ctypes.c_int(0))
    return -(-nbytes // granularity.value) * granularity.value


class _Mapping:
    """A mapped allocation; unmapped when nothing refers to it any more."""

    def __init__(self, handle: ctypes.c_ulonglong, nbytes: int, shown: int) -> None:
        self._driver = library()
        self._handle = handle
        self._nbytes = nbytes
        self._address = ctypes.c_ulonglong()
        size, zero, nothing = ctypes.c_size_t(nbytes), ctypes.c_ulonglong(0), ctypes.c_size_t(0)
        call("cuMemAddressReserve", ctypes.byref(self._address), size, nothing, zero, zero)
        call("cuMemMap", self._address, size, nothing, handle, zero)
        access = _AccessDescription(_Location(_ON_DEVICE, torch.cuda.current_device()), _READ_WRITE)
        call("cuMemSetAccess", self._address, size, ctypes.byref(access), ctypes.c_size_t(1))
        self.__cuda_array_interface__ = {
            "shape": (shown,),
            "typestr": "|u1",
            "data": (self._address.value, False),
            "version": 3,
        }

    def __del__(self) -> None:
        # The one finaliser of this package: torch decides when the last view of the memory is gone.
        size = ctypes.c_size_t(self._nbytes)
        self._driver.cuMemUnmap(self._address, size)
        self._driver.cuMemAddressFree(self._address, size)
        self._driver.cuMemRelease(self._handle)


def _allocate(size: int) -> ctypes.c_ulonglong:
    """Physical device memory that can be exported.

    :raises torch.cuda.OutOfMemoryError: when the device has no such piece left.
    """
    try:
        return _create(size)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()  # what torch keeps for itself may be all that is missing
    return _create(size)


def _create(size: int) -> ctypes.c_ulonglong:
    handle, properties = ctypes.c_ulonglong(), _properties()
    flags = ctypes.c_ulonglong(0)
    try:
        call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), flags)
    except DriverError as error:
        if error.code != OUT_OF_MEMORY:
            raise
        raise torch.cuda.OutOfMemoryError(f"no {size} bytes left on the device for an arena") from None
    return handle


def _create_cuda(nbytes: int) -> Arena:
    _open_torch()
    size = _rounded(nbytes)
    handle = _allocate(size)
    descriptor = ctypes.c_int(-1)
    kind, flags = ctypes.c_int(_POSIX_DESCRIPTOR), ctypes.c_ulonglong(0)
    call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, kind, flags)
    return Arena(descriptor.value, torch.as_tensor(_Mapping(handle, size, nbytes), device="cuda"))


def _open_cuda(descriptor: int, nbytes: int) -> Arena:
    _open_torch()
    handle = ctypes.c_ulonglong()
    kind = ctypes.c_int(_POSIX_DESCRIPTOR)
    call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), kind)
    return Arena(descriptor, torch.as_tensor(_Mapping(handle, _rounded(nbytes), nbytes), device="cuda"))
