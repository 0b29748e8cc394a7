"""The CUDA driver through ctypes: run kernels with or without torch, and raise errors with the driver's names.

Everything runs on a stream of its own in the device's primary context, which torch uses, too. This stream and those of
torch do not wait for each other, and the context that was current before is current again afterwards.
"""

from __future__ import annotations

import ctypes
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, Callable, Iterator

from kernel_matrix.inside.platform import DeviceError

LIBRARY = "libcuda.so.1"

OUT_OF_MEMORY = 2
"""``CUDA_ERROR_OUT_OF_MEMORY``."""

_NON_BLOCKING = 1  # CU_STREAM_NON_BLOCKING
_MULTIPROCESSOR_COUNT = 16  # CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT


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


def call(function: str, *arguments: Any) -> None:
    """Call the driver.

    Args:
        function: name of the driver's function.
        arguments: ctypes objects of the widths that the driver declares.

    Raises:
        DeviceError: if the driver returns an error, or lacks the function.
    """
    try:
        code = getattr(library(), function)(*arguments)
    except AttributeError:
        raise DeviceError(f"this CUDA driver has no {function}") from None
    if code != 0:
        raise DeviceError(f"{function} failed with {error_name(code)}", code)


def error_name(code: int) -> str:
    """Return the driver's name of an error with its number, such as ``CUDA_ERROR_OUT_OF_MEMORY (2)``."""
    name = ctypes.c_char_p()
    library().cuGetErrorName(ctypes.c_int(code), ctypes.byref(name))
    return f"{name.value.decode() if name.value else 'an unknown CUDA error'} ({code})"


def _undo(function: str, *arguments: Any) -> None:
    """Call the driver to clean up, and ignore errors: after a fault, each call returns that fault again."""
    getattr(library(), function)(*arguments)


class CudaModule:
    """Kernels that the driver compiled for this device."""

    def __init__(self, handle: ctypes.c_void_p, stream: ctypes.c_void_p) -> None:
        self._handle = handle
        self._stream = stream

    def launch(self, name: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Queue a kernel over ``blocks`` × ``threads``.

        Args:
            name: name of the kernel.
            blocks: number of blocks.
            threads: threads per block.
            arguments: ctypes objects of the widths of the kernel's parameters.

        Raises:
            DeviceError: if it cannot be launched; an error of the running kernel is raised by the next wait.
        """
        function = ctypes.c_void_p()
        call("cuModuleGetFunction", ctypes.byref(function), self._handle, ctypes.c_char_p(name.encode()))
        places = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        one, no_shared_memory, nothing = ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_void_p()
        grid, block = (ctypes.c_uint(blocks), one, one), (ctypes.c_uint(threads), one, one)
        call("cuLaunchKernel", function, *grid, *block, no_shared_memory, self._stream, places, nothing)


class CudaTimer:
    """Timer of the work on one stream, with the device's own clock."""

    def __init__(self, stream: ctypes.c_void_p, begin: ctypes.c_void_p, end: ctypes.c_void_p) -> None:
        self._stream = stream
        self._begin = begin
        self._end = end

    def time_ns(self, queue: Callable[[], None]) -> int:
        """Return the nanoseconds that the device takes for the work that ``queue`` queues.

        Earlier work should keep the device busy in the meantime; otherwise the time that it waits for the host counts,
        too.

        Raises:
            DeviceError: if an event fails, or a kernel that was queued before.
        """
        call("cuEventRecord", self._begin, self._stream)
        queue()
        call("cuEventRecord", self._end, self._stream)
        call("cuEventSynchronize", self._end)
        milliseconds = ctypes.c_float()
        call("cuEventElapsedTime", ctypes.byref(milliseconds), self._begin, self._end)
        return round(milliseconds.value * 1e6)


class CudaDevice:
    """One GPU whose primary context is current in this thread; made by :func:`opened`."""

    def __init__(self, handle: ctypes.c_int, stream: ctypes.c_void_p) -> None:
        self._handle = handle
        self._stream = stream

    def multiprocessors(self) -> int:
        """Return the number of SMs."""
        count = ctypes.c_int()
        call("cuDeviceGetAttribute", ctypes.byref(count), ctypes.c_int(_MULTIPROCESSOR_COUNT), self._handle)
        return count.value

    def free_bytes(self) -> int:
        """Return the free bytes of device memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        call("cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
        return free.value

    @contextmanager
    def module(self, ptx: str) -> Iterator[CudaModule]:
        """Compile ``ptx`` for this device, and unload it when the context ends.

        Raises:
            DeviceError: if the driver cannot compile it.
        """
        handle = ctypes.c_void_p()
        call("cuModuleLoadData", ctypes.byref(handle), ctypes.c_char_p(ptx.encode()))
        try:
            yield CudaModule(handle, self._stream)
        finally:
            _undo("cuModuleUnload", handle)

    @contextmanager
    def memory(self, nbytes: int) -> Iterator[ctypes.c_uint64]:
        """Allocate ``nbytes`` of device memory, filled with zeros, and free it when the context ends.

        Raises:
            DeviceError: if there is not enough memory.
        """
        address, size = ctypes.c_uint64(), ctypes.c_size_t(nbytes)
        call("cuMemAlloc_v2", ctypes.byref(address), size)
        try:
            self.clear(address, nbytes)
            yield address
        finally:
            _undo("cuMemFree_v2", address)

    @contextmanager
    def stopwatch(self) -> Iterator[CudaTimer]:
        """Make a timer of work on this device's stream, for as long as the context lasts.

        Raises:
            DeviceError: if its events cannot be created.
        """
        with self._event() as begin, self._event() as end:
            yield CudaTimer(self._stream, begin, end)

    @contextmanager
    def _event(self) -> Iterator[ctypes.c_void_p]:
        event = ctypes.c_void_p()
        call("cuEventCreate", ctypes.byref(event), ctypes.c_uint(0))
        try:
            yield event
        finally:
            _undo("cuEventDestroy_v2", event)

    def clear(self, address: ctypes.c_uint64, nbytes: int) -> None:
        """Queue a write of ``nbytes`` zeros to ``address``."""
        call("cuMemsetD8Async", address, ctypes.c_ubyte(0), ctypes.c_size_t(nbytes), self._stream)

    def read(self, address: ctypes.c_uint64, nbytes: int) -> bytes:
        """Copy device memory after all queued work has ended.

        Raises:
            DeviceError: if the copy fails, or a kernel that was queued before.
        """
        copy = ctypes.create_string_buffer(nbytes)
        call("cuMemcpyDtoHAsync_v2", copy, address, ctypes.c_size_t(nbytes), self._stream)
        self.wait()
        return copy.raw

    def wait(self) -> None:
        """Wait until all queued work has ended.

        Raises:
            DeviceError: if a queued kernel has failed.
        """
        call("cuStreamSynchronize", self._stream)


@contextmanager
def opened(ordinal: int = 0) -> Iterator[CudaDevice]:
    """Open a visible device, with its primary context current in this thread until the ``with`` block ends.

    Raises:
        DeviceError: if there is no driver, no such device, or it cannot be used.
    """
    call("cuInit", ctypes.c_uint(0))
    device, context, stream = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_void_p()
    call("cuDeviceGet", ctypes.byref(device), ctypes.c_int(ordinal))
    with ExitStack() as undo:
        call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        undo.callback(_undo, "cuDevicePrimaryCtxRelease_v2", device)
        call("cuCtxPushCurrent_v2", context)
        undo.callback(_undo, "cuCtxPopCurrent_v2", ctypes.byref(ctypes.c_void_p()))
        call("cuStreamCreate", ctypes.byref(stream), ctypes.c_uint(_NON_BLOCKING))
        undo.callback(_undo, "cuStreamDestroy_v2", stream)
        yield CudaDevice(device, stream)
