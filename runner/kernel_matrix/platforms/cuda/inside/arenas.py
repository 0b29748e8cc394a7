"""Arenas on a GPU: memory of the judge that a worker maps.

An arena is one allocation of the driver's virtual memory management, exported as a POSIX file descriptor (CUDA driver
API, ``cuMemCreate`` … ``cuMemImportFromShareableHandle``). Unlike CUDA's older IPC handles, this needs neither a shared
IPC namespace nor a common user. Some virtual GPUs cannot export memory; for them :data:`STAGED_VARIABLE` selects copies
through pinned memory of the host.
"""

from __future__ import annotations

import ctypes
import os
from typing import Optional

import torch

from kernel_matrix.inside.memory import Arena, StagedArena, create_shared_file, map_file
from kernel_matrix.inside.platform import STAGED_VARIABLE, DeviceError
from kernel_matrix.platforms.cuda.inside.libcuda import OUT_OF_MEMORY, call, library

_STAGED_NAME = "cuda-staged"


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


_POSIX_DESCRIPTOR = 1  # CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
_PINNED = 1  # CU_MEM_ALLOCATION_TYPE_PINNED
_ON_DEVICE = 1  # CU_MEM_LOCATION_TYPE_DEVICE
_READ_WRITE = 3  # CU_MEM_ACCESS_FLAGS_PROT_READWRITE


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
    """Addresses to which an allocation is mapped; both are released when its last reference is gone."""

    mapped = 0
    """Bytes of all allocations that this process has mapped."""
    limit: Optional[int] = None
    """Bytes that these and torch's may have together; torch before 2.7 cannot be asked for its own limit."""

    def __init__(self, handle: ctypes.c_ulonglong, nbytes: int, shown: int) -> None:
        self._driver = library()
        self._handle = handle
        self._nbytes = nbytes
        self._address = ctypes.c_ulonglong()
        count(nbytes)
        size, zero, nothing = ctypes.c_size_t(nbytes), ctypes.c_ulonglong(0), ctypes.c_size_t(0)
        call("cuMemAddressReserve", ctypes.byref(self._address), size, nothing, zero, zero)
        call("cuMemMap", self._address, size, nothing, handle, zero)
        # The judge copies between its own memory, on the first device, and that of each rank.
        devices = sorted({0, torch.cuda.current_device()})
        access = [_AccessDescription(_Location(_ON_DEVICE, device), _READ_WRITE) for device in devices]
        wanted = (_AccessDescription * len(access))(*access)
        call("cuMemSetAccess", self._address, size, ctypes.byref(wanted), ctypes.c_size_t(len(access)))
        self.__cuda_array_interface__ = {
            "shape": (shown,),
            "typestr": "|u1",
            "data": (self._address.value, False),
            "version": 3,
        }

    def __del__(self) -> None:
        # A finaliser, because only torch knows when the last view of the memory is gone.
        size = ctypes.c_size_t(self._nbytes)
        self._driver.cuMemUnmap(self._address, size)
        self._driver.cuMemRelease(self._handle)
        self._driver.cuMemAddressFree(self._address, size)
        count(-self._nbytes)


def count(nbytes: int) -> None:
    """Count memory that was mapped, or unmapped if negative; torch's own allocator has the rest of the limit."""
    _Mapping.mapped += nbytes
    left = limit_beside()
    if left is not None:
        total = torch.cuda.get_device_properties(0).total_memory
        torch.cuda.set_per_process_memory_fraction(min(1.0, left / total))


def limit_memory(nbytes: int) -> None:
    """Limit what arenas and torch's allocator take together in this process."""
    _Mapping.limit = nbytes
    count(0)


def limit_beside() -> Optional[int]:
    """Return what the arenas leave of the limit, in bytes; None without a limit."""
    return None if _Mapping.limit is None else max(0, _Mapping.limit - _Mapping.mapped)


def _mapped(handle: ctypes.c_ulonglong, size: int, nbytes: int) -> torch.Tensor:
    return torch.as_tensor(_Mapping(handle, size, nbytes), device="cuda")


def _allocate(size: int) -> ctypes.c_ulonglong:
    """Allocate physical device memory that can be exported.

    Raises:
        torch.cuda.OutOfMemoryError: if the device has no such piece left.
    """
    try:
        return _create(size)
    except torch.cuda.OutOfMemoryError:
        torch.cuda.empty_cache()  # torch's cache may hold enough unused memory
    return _create(size)


def _create(size: int) -> ctypes.c_ulonglong:
    handle, properties = ctypes.c_ulonglong(), _properties()
    flags = ctypes.c_ulonglong(0)
    try:
        call("cuMemCreate", ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), flags)
    except DeviceError as error:
        if error.code != OUT_OF_MEMORY:
            raise
        raise torch.cuda.OutOfMemoryError(f"no {size} bytes left on the device for an arena") from None
    return handle


def transport() -> str:
    """Return the name of the way in which memory is shared, for the record."""
    return _STAGED_NAME if is_staged() else "cuda-vmm"


def is_staged() -> bool:
    """Return whether data is copied through the host, because two processes cannot share memory of the device."""
    return os.environ.get(STAGED_VARIABLE) == "staged"


def mapped_bytes() -> int:
    """Return the device memory of all arenas that this process has mapped, which torch does not count."""
    return _Mapping.mapped


def create_arena(nbytes: int) -> Arena:
    """Allocate memory that can be shared with a worker."""
    return _create_staged(nbytes) if is_staged() else _create_shared(nbytes)


def open_arena(descriptor: int, nbytes: int) -> Arena:
    """Map the memory of a descriptor that the judge sent."""
    return _open_staged(descriptor, nbytes) if is_staged() else _open_shared(descriptor, nbytes)


class PinnedArena(StagedArena):
    """Staged arena with a pinned buffer in the host's memory, which the device can copy by itself."""

    def __init__(self, host: Arena) -> None:
        buffer = torch.zeros(host.tensor.numel(), dtype=torch.uint8, device="cuda")
        super().__init__(host, buffer, torch.cuda.synchronize)
        self._pinned = ctypes.c_void_p(host.tensor.data_ptr())
        call("cuMemHostRegister_v2", self._pinned, ctypes.c_size_t(host.tensor.numel()), ctypes.c_uint(0))

    def close(self) -> None:
        """Release both buffers."""
        if self.descriptor >= 0:
            torch.cuda.synchronize()
            call("cuMemHostUnregister", self._pinned)
        super().close()


def _create_staged(nbytes: int) -> Arena:
    _open_torch()
    return PinnedArena(map_file(create_shared_file(nbytes), nbytes))


def _open_staged(descriptor: int, nbytes: int) -> Arena:
    _open_torch()
    arena = PinnedArena(map_file(descriptor, nbytes))
    arena.fetch()
    return arena


def _create_shared(nbytes: int) -> Arena:
    _open_torch()
    size = _rounded(nbytes)
    handle = _allocate(size)
    descriptor = ctypes.c_int(-1)
    kind, flags = ctypes.c_int(_POSIX_DESCRIPTOR), ctypes.c_ulonglong(0)
    call("cuMemExportToShareableHandle", ctypes.byref(descriptor), handle, kind, flags)
    return Arena(descriptor.value, _mapped(handle, size, nbytes))


def _open_shared(descriptor: int, nbytes: int) -> Arena:
    _open_torch()
    handle, kind = ctypes.c_ulonglong(), ctypes.c_int(_POSIX_DESCRIPTOR)
    call("cuMemImportFromShareableHandle", ctypes.byref(handle), ctypes.c_void_p(descriptor), kind)
    return Arena(descriptor, _mapped(handle, _rounded(nbytes), nbytes))
