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

ALIGNMENT = 512
"""Bytes each tensor in an arena is aligned to: what torch's own CUDA allocator gives."""

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
    """Places for ``tensors`` in one arena and the bytes it needs. Strides are kept where elements do not overlap."""
    specs = []
    offset = 0
    for tensor in tensors:
        stride = tensor.stride() if 0 not in tensor.stride() else tensor.contiguous().stride()
        spec = TensorSpec(dtype_name(tensor.dtype), tuple(tensor.shape), tuple(stride), offset)
        specs.append(spec)
        offset += -(-spec.span_bytes // ALIGNMENT) * ALIGNMENT
    return specs, max(offset, ALIGNMENT)


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
_OUT_OF_MEMORY = 2


class DriverError(RuntimeError):
    """A call of the CUDA driver failed."""


def _driver() -> ctypes.CDLL:
    torch.cuda.init()
    torch.zeros(1, device="cuda")  # makes torch's primary context current in this thread
    return ctypes.CDLL("libcuda.so.1")


def _check(code: int, call: str) -> None:
    if code != 0:
        raise DriverError(f"{call} failed with CUDA driver error {code}")


def _properties() -> _AllocationProperties:
    properties = _AllocationProperties()
    properties.type = _PINNED
    properties.requested_handle_types = _POSIX_DESCRIPTOR
    properties.location = _Location(_ON_DEVICE, torch.cuda.current_device())
    return properties


def _rounded(driver: ctypes.CDLL, nbytes: int) -> int:
    granularity = ctypes.c_size_t()
    code = driver.cuMemGetAllocationGranularity(ctypes.byref(granularity), ctypes.byref(_properties()), 0)
    _check(code, "cuMemGetAllocationGranularity")
    return -(-nbytes // granularity.value) * granularity.value


class _Mapping:
    """A mapped allocation; unmapped when nothing refers to it any more."""

    def __init__(self, driver: ctypes.CDLL, handle: ctypes.c_ulonglong, nbytes: int, shown: int) -> None:
        self._driver = driver
        self._handle = handle
        self._nbytes = nbytes
        self._address = ctypes.c_ulonglong()
        size = ctypes.c_size_t(nbytes)
        zero = ctypes.c_ulonglong(0)
        code = driver.cuMemAddressReserve(ctypes.byref(self._address), size, ctypes.c_size_t(0), zero, zero)
        _check(code, "cuMemAddressReserve")
        _check(driver.cuMemMap(self._address, size, ctypes.c_size_t(0), handle, zero), "cuMemMap")
        access = _AccessDescription(_Location(_ON_DEVICE, torch.cuda.current_device()), _READ_WRITE)
        code = driver.cuMemSetAccess(self._address, size, ctypes.byref(access), ctypes.c_size_t(1))
        _check(code, "cuMemSetAccess")
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


def _allocate(driver: ctypes.CDLL, size: int) -> ctypes.c_ulonglong:
    """Physical device memory that can be exported.

    :raises torch.cuda.OutOfMemoryError: when the device has no such piece left.
    """
    handle = ctypes.c_ulonglong()
    properties = _properties()
    arguments = (ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), ctypes.c_ulonglong(0))
    code = driver.cuMemCreate(*arguments)
    if code == _OUT_OF_MEMORY:
        torch.cuda.empty_cache()  # what torch keeps for itself may be all that is missing
        code = driver.cuMemCreate(*arguments)
    if code == _OUT_OF_MEMORY:
        raise torch.cuda.OutOfMemoryError(f"no {size} bytes left on the device for an arena")
    _check(code, "cuMemCreate")
    return handle


def _create_cuda(nbytes: int) -> Arena:
    driver = _driver()
    size = _rounded(driver, nbytes)
    handle = _allocate(driver, size)
    descriptor = ctypes.c_int(-1)
    code = driver.cuMemExportToShareableHandle(
        ctypes.byref(descriptor), handle, ctypes.c_int(_POSIX_DESCRIPTOR), ctypes.c_ulonglong(0)
    )
    _check(code, "cuMemExportToShareableHandle")
    mapping = _Mapping(driver, handle, size, nbytes)
    return Arena(descriptor.value, torch.as_tensor(mapping, device="cuda"))


def _open_cuda(descriptor: int, nbytes: int) -> Arena:
    driver = _driver()
    handle = ctypes.c_ulonglong()
    code = driver.cuMemImportFromShareableHandle(
        ctypes.byref(handle), ctypes.c_void_p(descriptor), ctypes.c_int(_POSIX_DESCRIPTOR)
    )
    _check(code, "cuMemImportFromShareableHandle")
    mapping = _Mapping(driver, handle, _rounded(driver, nbytes), nbytes)
    return Arena(descriptor, torch.as_tensor(mapping, device="cuda"))
