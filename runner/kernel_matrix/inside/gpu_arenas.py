"""Arenas on a GPU: memory of the judge that a worker maps.

An arena is one allocation of the driver's virtual memory management, exported as a POSIX file descriptor. Unlike the
drivers' older handles for other processes, this needs neither a shared IPC namespace nor a common user. Some virtual
GPUs cannot export memory; for them :data:`STAGED_VARIABLE` selects copies through pinned memory of the host.
"""

from __future__ import annotations

import ctypes
import os
from collections import defaultdict
from typing import Dict, Optional

import torch

from kernel_matrix.inside import torch_gpu
from kernel_matrix.inside.gpu_driver import OUT_OF_MEMORY, GpuDriver
from kernel_matrix.inside.memory import Arena, StagedArena, create_shared_file, map_file
from kernel_matrix.inside.platform import STAGED_VARIABLE, DeviceError


class _Location(ctypes.Structure):
    _fields_ = (("type", ctypes.c_int), ("id", ctypes.c_int))


class AllocationProperties(ctypes.Structure):
    """Properties of an allocation: ``CUmemAllocationProp``, or ``hipMemAllocationProp``, which ends in padding."""

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


class AccessDescription(ctypes.Structure):
    """Access of one device to mapped memory: ``CUmemAccessDesc``, ``hipMemAccessDesc``."""

    _fields_ = (("location", _Location), ("flags", ctypes.c_int))


# Numbers of the drivers, which are the same.
_POSIX_DESCRIPTOR = 1
_PINNED = 1
_ON_DEVICE = 1
_READ_WRITE = 3


def _device() -> _Location:
    return _Location(_ON_DEVICE, torch.cuda.current_device())


class GpuArenas:
    """Arenas of this process, and the limit of what they and torch take of the device's memory together.

    Args:
        driver: The GPU's driver.
        name: Beginning of the transports' names.
    """

    def __init__(self, driver: GpuDriver, name: str) -> None:
        self.driver = driver
        self.mapped_bytes: Dict[int, int] = defaultdict(int)
        """Device → memory of all arenas that this process has mapped there, which torch does not count."""
        self._name = name
        # torch before 2.7 cannot be asked for its own limit.
        self._limits: Dict[int, int] = {}

    def transport(self) -> str:
        """Return the name of the way in which memory is shared, for the record."""
        return f"{self._name}-staged" if self.is_staged() else f"{self._name}-vmm"

    def is_staged(self) -> bool:
        """Return whether data is copied through the host, because two processes cannot share memory of the device."""
        return os.environ.get(STAGED_VARIABLE) == "staged"

    def create(self, nbytes: int) -> Arena:
        """Allocate memory that can be shared with a worker."""
        torch_gpu.open_device()
        return self.create_staged(nbytes) if self.is_staged() else self.create_shared(nbytes)

    def open(self, descriptor: int, nbytes: int) -> Arena:
        """Map the memory of a descriptor that the judge sent."""
        torch_gpu.open_device()
        return self.open_staged(descriptor, nbytes) if self.is_staged() else self.open_shared(descriptor, nbytes)

    def count(self, nbytes: int, device: int) -> None:
        """Count memory that was mapped, or unmapped if negative; torch's own allocator has the rest of the limit."""
        self.mapped_bytes[device] += nbytes
        left = self._limit_beside(device)
        if left is not None:
            torch_gpu.limit_torch(left, device)

    def limit_memory(self, nbytes: int) -> None:
        """Limit what arenas and torch's allocator take together in this process of the current device."""
        device = torch.cuda.current_device()
        self._limits[device] = nbytes
        self.count(0, device)

    def _limit_beside(self, device: int) -> Optional[int]:
        """Return what the arenas leave of the limit, in bytes; None without a limit."""
        return max(0, self._limits[device] - self.mapped_bytes[device]) if device in self._limits else None

    def free_bytes(self) -> int:
        """Return what torch may still have: what it may reserve, and the unused memory in its cache."""
        return torch_gpu.free_bytes_within(self._limit_beside(torch.cuda.current_device()))

    def own_bytes(self) -> int:
        """Return what this process has taken of the current device: what torch has reserved, and the arenas."""
        return torch_gpu.reserved_bytes() + self.mapped_bytes[torch.cuda.current_device()]

    def create_staged(self, nbytes: int) -> Arena:
        """Make a buffer on the device and one in the host's memory."""
        return PinnedArena(self.driver, map_file(create_shared_file(nbytes), nbytes))

    def open_staged(self, descriptor: int, nbytes: int) -> Arena:
        """Make a buffer on the device beside the judge's in the host's memory."""
        arena = PinnedArena(self.driver, map_file(descriptor, nbytes))
        arena.fetch()
        return arena

    def create_shared(self, nbytes: int) -> Arena:
        """Allocate and export memory of the device."""
        size = self._rounded(nbytes)
        handle = self._allocate(size)
        memory = self._mapped(handle, size, nbytes)  # releases the handle even if the export fails
        descriptor = ctypes.c_int(-1)
        kind, flags = ctypes.c_int(_POSIX_DESCRIPTOR), ctypes.c_ulonglong(0)
        self.driver.call(self.driver.names.export_memory, ctypes.byref(descriptor), handle, kind, flags)
        return Arena(descriptor.value, memory)

    def open_shared(self, descriptor: int, nbytes: int) -> Arena:
        """Import and map memory of the device."""
        handle, kind = ctypes.c_ulonglong(), ctypes.c_int(_POSIX_DESCRIPTOR)
        told = self.as_argument(descriptor)
        self.driver.call(self.driver.names.import_memory, ctypes.byref(handle), told, kind)
        return Arena(descriptor, self._mapped(handle, self._rounded(nbytes), nbytes))

    def as_argument(self, descriptor: int) -> ctypes.c_void_p:
        """Return the driver's argument for a descriptor to import: the number itself, cast to a pointer."""
        return ctypes.c_void_p(descriptor)

    def _mapped(self, handle: ctypes.c_ulonglong, size: int, nbytes: int) -> torch.Tensor:
        mapping = _Mapping(self, handle, size)
        tensor: torch.Tensor = torch_gpu.tensor_at(mapping, mapping.address.value, nbytes)
        return tensor

    def _rounded(self, nbytes: int) -> int:
        granularity, properties = ctypes.c_size_t(), _properties()
        sought = (ctypes.byref(granularity), ctypes.byref(properties), ctypes.c_int(0))
        self.driver.call(self.driver.names.granularity, *sought)
        return -(-nbytes // granularity.value) * granularity.value

    def _allocate(self, size: int) -> ctypes.c_ulonglong:
        """Allocate physical device memory that can be exported.

        Raises:
            torch.cuda.OutOfMemoryError: The device has no such piece left.
        """
        try:
            return self._create(size)
        except torch.cuda.OutOfMemoryError:
            torch_gpu.release_memory()  # torch's cache may hold enough unused memory
        return self._create(size)

    def _create(self, size: int) -> ctypes.c_ulonglong:
        handle, properties, flags = ctypes.c_ulonglong(), _properties(), ctypes.c_ulonglong(0)
        wanted = (ctypes.byref(handle), ctypes.c_size_t(size), ctypes.byref(properties), flags)
        try:
            self.driver.call(self.driver.names.create_memory, *wanted)
        except DeviceError as error:
            if error.code != OUT_OF_MEMORY:
                raise
            raise torch.cuda.OutOfMemoryError(f"no {size} bytes left on the device for an arena") from None
        return handle


class _Mapping:
    """Addresses to which an allocation is mapped; both are released when its last reference is gone."""

    def __init__(self, arenas: GpuArenas, handle: ctypes.c_ulonglong, nbytes: int) -> None:
        self._arenas = arenas
        self._library = arenas.driver.library()
        self._handle = handle
        self._nbytes = nbytes
        self._device = torch.cuda.current_device()
        self.address = ctypes.c_ulonglong()
        arenas.count(nbytes, self._device)
        call, names = arenas.driver.call, arenas.driver.names
        size, zero, nothing = ctypes.c_size_t(nbytes), ctypes.c_ulonglong(0), ctypes.c_size_t(0)
        call(names.reserve_addresses, ctypes.byref(self.address), size, nothing, zero, zero)
        call(names.map_memory, self.address, size, nothing, handle, zero)
        # The judge copies between its own memory, on the first device, and that of each rank.
        devices = sorted({0, self._device})
        access = (AccessDescription * len(devices))()
        for place, device in enumerate(devices):
            access[place] = AccessDescription(_Location(_ON_DEVICE, device), _READ_WRITE)
        call(names.set_access, self.address, size, ctypes.byref(access), ctypes.c_size_t(len(devices)))

    def __del__(self) -> None:
        # A finaliser, because only torch knows when the last view of the memory is gone.
        names, size = self._arenas.driver.names, ctypes.c_size_t(self._nbytes)
        getattr(self._library, names.unmap_memory)(self.address, size)
        getattr(self._library, names.release_memory)(self._handle)
        getattr(self._library, names.free_addresses)(self.address, size)
        self._arenas.count(-self._nbytes, self._device)


class PinnedArena(StagedArena):
    """Staged arena with a pinned buffer in the host's memory, which the device can copy by itself."""

    def __init__(self, driver: GpuDriver, host: Arena) -> None:
        nbytes = host.tensor.numel()
        buffer = torch.zeros(nbytes, dtype=torch.uint8, device=torch_gpu.TORCH_DEVICE)
        super().__init__(host, buffer, torch_gpu.synchronize)
        self._driver = driver
        self._pinned = ctypes.c_void_p(host.tensor.data_ptr())
        driver.call(driver.names.register_host, self._pinned, ctypes.c_size_t(nbytes), ctypes.c_uint(0))

    def close(self) -> None:
        """Release both buffers."""
        if self.descriptor >= 0:
            torch_gpu.synchronize()
            self._driver.call(self._driver.names.unregister_host, self._pinned)
        super().close()


def _properties() -> AllocationProperties:
    properties = AllocationProperties()
    properties.type = _PINNED
    properties.requested_handle_types = _POSIX_DESCRIPTOR
    properties.location = _device()
    return properties
