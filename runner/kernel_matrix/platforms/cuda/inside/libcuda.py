"""The CUDA driver through ctypes: run kernels with or without torch, and raise errors with the driver's names.

Everything runs on a stream of its own in the device's primary context, which torch uses, too. This stream and those of
torch do not wait for each other, and the context that was current before is current again afterwards.
"""

from __future__ import annotations

import ctypes
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Iterator

from kernel_matrix.inside.gpu_driver import DriverDevice, DriverFunctions, GpuDriver
from kernel_matrix.inside.platform import DeviceError

LIBRARY = "libcuda.so.1"

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING

_NAMES = DriverFunctions(
    load_module="cuModuleLoadData",
    unload_module="cuModuleUnload",
    get_function="cuModuleGetFunction",
    launch="cuLaunchKernel",
    create_event="cuEventCreate",
    destroy_event="cuEventDestroy_v2",
    record_event="cuEventRecord",
    wait_for_event="cuEventSynchronize",
    elapsed_time="cuEventElapsedTime",
    wait_for_stream="cuStreamSynchronize",
    get_attribute="cuDeviceGetAttribute",
    memory_info="cuMemGetInfo_v2",
    allocate="cuMemAlloc_v2",
    free="cuMemFree_v2",
    fill="cuMemsetD8Async",
    copy_to_host="cuMemcpyDtoHAsync_v2",
    register_host="cuMemHostRegister_v2",
    unregister_host="cuMemHostUnregister",
    granularity="cuMemGetAllocationGranularity",
    create_memory="cuMemCreate",
    release_memory="cuMemRelease",
    export_memory="cuMemExportToShareableHandle",
    import_memory="cuMemImportFromShareableHandle",
    reserve_addresses="cuMemAddressReserve",
    free_addresses="cuMemAddressFree",
    map_memory="cuMemMap",
    unmap_memory="cuMemUnmap",
    set_access="cuMemSetAccess",
    multiprocessor_count=16,  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT
)


@lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """Load the driver's library.

    Raises:
        DeviceError: if it cannot be loaded.
    """
    try:
        return ctypes.CDLL(LIBRARY)
    except OSError as error:
        raise DeviceError(f"the CUDA driver cannot be loaded: {error}") from None


def error_name(code: int) -> str:
    """Return the driver's name of an error with its number, such as ``CUDA_ERROR_OUT_OF_MEMORY (2)``."""
    name = ctypes.c_char_p()
    library().cuGetErrorName(ctypes.c_int(code), ctypes.byref(name))
    return f"{name.value.decode() if name.value else 'an unknown CUDA error'} ({code})"


DRIVER = GpuDriver("CUDA driver", _NAMES, library, error_name, str.encode)
call = DRIVER.call


@contextmanager
def opened(ordinal: int = 0) -> Iterator[DriverDevice]:
    """Open a visible device, with its primary context current in this thread until the ``with`` block ends.

    Raises:
        DeviceError: if there is no driver, no such device, or it cannot be used.
    """
    call("cuInit", ctypes.c_uint(0))
    device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
    with ExitStack() as undo:
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        undo.callback(DRIVER.undo, "cuDevicePrimaryCtxRelease_v2", device)
        call("cuCtxPushCurrent_v2", context)
        undo.callback(DRIVER.undo, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        undo.callback(DRIVER.undo, "cuStreamDestroy_v2", stream)
        yield DriverDevice(DRIVER, device, stream)
