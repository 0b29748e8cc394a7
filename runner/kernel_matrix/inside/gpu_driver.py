"""A GPU's driver through ctypes: run kernels with or without torch, and raise errors with the driver's names.

The drivers of several vendors have the same functions with the same arguments, under names of their own
(:class:`DriverFunctions`). Loading the library, opening a device and compiling kernels is the platform's business.
"""

from __future__ import annotations

import ctypes
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Callable, Iterator

from kernel_matrix.inside.platform import DeviceError

OUT_OF_MEMORY = 2
"""Code of the drivers' error for too little memory."""


@dataclass(frozen=True)
class DriverFunctions:
    """Names of a driver's functions, and numbers of what they are asked for."""

    load_module: str
    unload_module: str
    get_function: str
    launch: str
    create_event: str
    destroy_event: str
    record_event: str
    wait_for_event: str
    elapsed_time: str
    wait_for_stream: str
    get_attribute: str
    memory_info: str
    allocate: str
    free: str
    fill: str
    copy_to_host: str
    register_host: str
    unregister_host: str
    granularity: str
    create_memory: str
    release_memory: str
    export_memory: str
    import_memory: str
    reserve_addresses: str
    free_addresses: str
    map_memory: str
    unmap_memory: str
    set_access: str
    multiprocessor_count: int
    """Number of the attribute that counts multiprocessors."""


@dataclass(frozen=True)
class GpuDriver:
    """A driver's library."""

    title: str
    """What it is called in messages."""
    names: DriverFunctions
    library: Callable[[], ctypes.CDLL]
    """Loads the library, or raises :class:`DeviceError`."""
    error_name: Callable[[int], str]
    """Returns the driver's name of an error, with its number."""
    compile: Callable[[str], bytes]
    """Compiles the text of kernels to what the driver loads, or raises :class:`DeviceError`."""

    def call(self, function: str, *arguments: Any) -> None:
        """Call the driver.

        Args:
            function: Name of the driver's function.
            arguments: Objects of ctypes of the widths that the driver declares.

        Raises:
            DeviceError: The driver returns an error, or lacks the function.
        """
        try:
            code = getattr(self.library(), function)(*arguments)
        except AttributeError:
            raise DeviceError(f"this {self.title} has no {function}") from None
        if code != 0:
            raise DeviceError(f"{function} failed with {self.error_name(code)}", code)

    def undo(self, function: str, *arguments: Any) -> None:
        """Call the driver to clean up, and ignore errors: after a fault, each call returns that fault again."""
        getattr(self.library(), function)(*arguments)


class KernelModule:
    """Kernels that were compiled for the device."""

    def __init__(self, driver: GpuDriver, handle: ctypes.c_void_p, stream: ctypes.c_void_p) -> None:
        self._driver = driver
        self._handle = handle
        self._stream = stream

    def launch(self, name: str, blocks: int, threads: int, *arguments: Any) -> None:
        """Queue a kernel over ``blocks`` × ``threads``.

        Args:
            name: Name of the kernel.
            blocks: Number of blocks.
            threads: Threads per block.
            arguments: Objects of ctypes of the widths of the kernel's parameters.

        Raises:
            DeviceError: It cannot be launched; an error of the running kernel is raised by the next wait.
        """
        call, names = self._driver.call, self._driver.names
        function = ctypes.c_void_p()
        call(names.get_function, ctypes.byref(function), self._handle, ctypes.c_char_p(name.encode()))
        places = (ctypes.c_void_p * len(arguments))(*map(ctypes.addressof, arguments))
        one, no_shared_memory, nothing = ctypes.c_uint(1), ctypes.c_uint(0), ctypes.c_void_p()
        grid, block = (ctypes.c_uint(blocks), one, one), (ctypes.c_uint(threads), one, one)
        call(names.launch, function, *grid, *block, no_shared_memory, self._stream, places, nothing)


class DeviceTimer:
    """Timer of the work on one stream, with the device's own clock."""

    def __init__(
        self, driver: GpuDriver, stream: ctypes.c_void_p, begin: ctypes.c_void_p, end: ctypes.c_void_p
    ) -> None:
        self._driver = driver
        self._stream = stream
        self._begin = begin
        self._end = end

    def time_ns(self, queue: Callable[[], None]) -> int:
        """Return the nanoseconds that the device takes for the work that ``queue`` queues.

        Earlier work should keep the device busy in the meantime; otherwise the time that it waits for the host counts,
        too.

        Raises:
            DeviceError: An event fails, or a kernel that was queued before.
        """
        call, names = self._driver.call, self._driver.names
        call(names.record_event, self._begin, self._stream)
        queue()
        call(names.record_event, self._end, self._stream)
        call(names.wait_for_event, self._end)
        milliseconds = ctypes.c_float()
        call(names.elapsed_time, ctypes.byref(milliseconds), self._begin, self._end)
        return round(milliseconds.value * 1e6)


class DriverDevice:
    """One GPU that is open in this thread, with a stream of its own."""

    def __init__(self, driver: GpuDriver, handle: ctypes.c_int, stream: ctypes.c_void_p) -> None:
        self._driver = driver
        self._handle = handle
        self._stream = stream

    def attribute(self, number: int) -> int:
        """Return the driver's attribute ``number`` of the device."""
        value = ctypes.c_int()
        self._driver.call(self._driver.names.get_attribute, ctypes.byref(value), ctypes.c_int(number), self._handle)
        return value.value

    def multiprocessors(self) -> int:
        """Return the number of multiprocessors, as the driver counts them."""
        return self.attribute(self._driver.names.multiprocessor_count)

    def free_bytes(self) -> int:
        """Return the free bytes of device memory."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        self._driver.call(self._driver.names.memory_info, ctypes.byref(free), ctypes.byref(total))
        return free.value

    @contextmanager
    def module(self, text: str) -> Iterator[KernelModule]:
        """Compile the kernels in ``text`` for this device, and unload them when the context ends.

        Raises:
            DeviceError: They cannot be compiled.
        """
        handle, code = ctypes.c_void_p(), self._driver.compile(text)
        self._driver.call(self._driver.names.load_module, ctypes.byref(handle), ctypes.c_char_p(code))
        try:
            yield KernelModule(self._driver, handle, self._stream)
        finally:
            self._driver.undo(self._driver.names.unload_module, handle)

    @contextmanager
    def memory(self, nbytes: int) -> Iterator[ctypes.c_uint64]:
        """Allocate ``nbytes`` of device memory, filled with zeros, and free it when the context ends.

        Raises:
            DeviceError: There is not enough memory.
        """
        address, size = ctypes.c_uint64(), ctypes.c_size_t(nbytes)
        self._driver.call(self._driver.names.allocate, ctypes.byref(address), size)
        try:
            self.clear(address, nbytes)
            yield address
        finally:
            self._driver.undo(self._driver.names.free, address)

    @contextmanager
    def stopwatch(self) -> Iterator[DeviceTimer]:
        """Make a timer of work on this device's stream, for as long as the context lasts.

        Raises:
            DeviceError: Its events cannot be created.
        """
        with self._event() as begin, self._event() as end:
            yield DeviceTimer(self._driver, self._stream, begin, end)

    @contextmanager
    def _event(self) -> Iterator[ctypes.c_void_p]:
        event = ctypes.c_void_p()
        self._driver.call(self._driver.names.create_event, ctypes.byref(event), ctypes.c_uint(0))
        try:
            yield event
        finally:
            self._driver.undo(self._driver.names.destroy_event, event)

    def clear(self, address: ctypes.c_uint64, nbytes: int) -> None:
        """Queue a write of ``nbytes`` zeros to ``address``."""
        size = ctypes.c_size_t(nbytes)
        self._driver.call(self._driver.names.fill, address, ctypes.c_ubyte(0), size, self._stream)

    def read(self, address: ctypes.c_uint64, nbytes: int) -> bytes:
        """Copy device memory after all queued work has ended.

        Raises:
            DeviceError: The copy fails, or a kernel that was queued before.
        """
        copy = ctypes.create_string_buffer(nbytes)
        self._driver.call(self._driver.names.copy_to_host, copy, address, ctypes.c_size_t(nbytes), self._stream)
        self.wait()
        return copy.raw

    def wait(self) -> None:
        """Wait until all queued work has ended.

        Raises:
            DeviceError: A queued kernel has failed.
        """
        self._driver.call(self._driver.names.wait_for_stream, self._stream)
