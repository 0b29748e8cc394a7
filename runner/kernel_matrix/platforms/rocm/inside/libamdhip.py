"""The HIP runtime through ctypes: run kernels with or without torch, and raise errors with the runtime's names.

Everything runs on a stream of its own in the device's only context, which torch uses, too. This stream and those of
torch do not wait for each other.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from typing import Iterator

from kernel_matrix.inside.gpu_driver import DriverDevice, DriverFunctions, GpuDriver
from kernel_matrix.platforms.rocm.inside.hiprtc import compile_text
from kernel_matrix.platforms.rocm.inside.rocm_libraries import load_library

WALL_CLOCK_RATE = 10017  # hipDeviceAttributeWallClockRate, kHz

_NON_BLOCKING = 1  # hipStreamNonBlocking

_NAMES = DriverFunctions(
    load_module="hipModuleLoadData",
    unload_module="hipModuleUnload",
    get_function="hipModuleGetFunction",
    launch="hipModuleLaunchKernel",
    create_event="hipEventCreateWithFlags",
    destroy_event="hipEventDestroy",
    record_event="hipEventRecord",
    wait_for_event="hipEventSynchronize",
    elapsed_time="hipEventElapsedTime",
    wait_for_stream="hipStreamSynchronize",
    get_attribute="hipDeviceGetAttribute",
    memory_info="hipMemGetInfo",
    allocate="hipMalloc",
    free="hipFree",
    fill="hipMemsetD8Async",
    copy_to_host="hipMemcpyDtoHAsync",
    register_host="hipHostRegister",
    unregister_host="hipHostUnregister",
    granularity="hipMemGetAllocationGranularity",
    create_memory="hipMemCreate",
    release_memory="hipMemRelease",
    export_memory="hipMemExportToShareableHandle",
    import_memory="hipMemImportFromShareableHandle",
    reserve_addresses="hipMemAddressReserve",
    free_addresses="hipMemAddressFree",
    map_memory="hipMemMap",
    unmap_memory="hipMemUnmap",
    set_access="hipMemSetAccess",
    multiprocessor_count=63,  # hipDeviceAttributeMultiprocessorCount
)


def library() -> ctypes.CDLL:
    """Load the runtime.

    Raises:
        DeviceError: There is none.
    """
    return load_library("libamdhip64")


def error_name(code: int) -> str:
    """Return the runtime's name of an error with its number, such as ``hipErrorOutOfMemory (2)``."""
    name_of = library().hipGetErrorName
    name_of.restype = ctypes.c_char_p
    name = name_of(ctypes.c_int(code))
    return f"{name.decode() if name else 'an unknown HIP error'} ({code})"


DRIVER = GpuDriver("HIP runtime", _NAMES, library, error_name, compile_text)
call = DRIVER.call


def runtime_version() -> int:
    """Return the runtime's version: 70100000 and a patch number for 7.1."""
    version = ctypes.c_int()
    call("hipRuntimeGetVersion", ctypes.byref(version))
    return version.value


@contextmanager
def opened(ordinal: int = 0) -> Iterator[DriverDevice]:
    """Open a visible device, which is this thread's from then on.

    Raises:
        DeviceError: There is no runtime, no such device, or it cannot be used.
    """
    call("hipInit", ctypes.c_uint(0))
    call("hipSetDevice", ctypes.c_int(ordinal))
    stream = ctypes.c_void_p()
    call("hipStreamCreateWithFlags", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
    try:
        yield DriverDevice(DRIVER, ctypes.c_int(ordinal), stream)
    finally:
        DRIVER.undo("hipStreamDestroy", stream)
