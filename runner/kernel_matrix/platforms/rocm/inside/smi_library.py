"""Bindings of AMD's management library, ``libamd_smi.so``, for the few functions that this program calls.

AMD's own Python package resolves all of the library's functions when it is imported, and fails where a release lacks
one. Here a function is looked up when it is called, so that a release without it is like a device without the answer.
"""

from __future__ import annotations

import ctypes
from ctypes import byref, c_float, c_uint32, c_uint64, c_void_p, create_string_buffer
from enum import IntEnum
from functools import lru_cache
from typing import Any, TypeVar

from kernel_matrix.platforms.rocm.inside.smi_structs import KNOWN_VERSIONS, ProcessInfo, member

_PATHS = ("libamd_smi.so", "/opt/rocm/lib/libamd_smi.so")
"""Where the library is looked for: by the loader, then in the usual folder."""

_AMD_GPUS = c_uint64(2)
_TEXT_BYTES = 256

_Answer = TypeVar("_Answer", bound=ctypes.Structure)


class SmiStatus(IntEnum):
    """Codes of the library that have a meaning here, and further ones of these bindings."""

    NOT_SUPPORTED = 2
    NOT_YET_IMPLEMENTED = 3
    NO_PERM = 10
    OUT_OF_RESOURCES = 15
    NOT_FOUND = 31
    NOT_INIT = 32
    DRIVER_NOT_LOADED = 34
    NO_DATA = 40
    SETTING_UNAVAILABLE = 55
    # Codes of these bindings are beyond the library's.
    LIBRARY_NOT_FOUND = 1_000_001
    FUNCTION_NOT_FOUND = 1_000_002
    UNKNOWN_LAYOUT = 1_000_003
    NOT_REPORTED = 1_000_004


class SmiError(Exception):
    """A function of the library failed.

    Args:
        code: the library's code, or one of these bindings.
        function: the function.
    """

    def __init__(self, code: int, function: str) -> None:
        super().__init__(f"{function}: {_describe(code)} (AMD SMI error {code})")
        self.code = code


def call(function: str, *arguments: Any) -> None:
    """Call a function of the library.

    Args:
        function: its name.
        arguments: its arguments; a number that is no ``int`` of C must have its type of ctypes.

    Raises:
        SmiError: if it is absent or fails.
    """
    try:
        found = getattr(_library(), function)
    except AttributeError:
        raise SmiError(SmiStatus.FUNCTION_NOT_FOUND, function) from None
    found.restype = c_uint32
    if code := found(*arguments):
        raise SmiError(code, function)


def is_installed() -> bool:
    """Return whether the library is installed; if it is, a driver that does not answer is a fault."""
    try:
        _library()
    except SmiError:
        return False
    return True


def init() -> None:
    """Open the library for GPUs."""
    call("amdsmi_init", _AMD_GPUS)


def version() -> tuple[int, int, int]:
    """Return the version of the open library; until ROCm 6 its first number is a year, such as 25."""
    numbers = (c_uint32 * 64)()
    call("amdsmi_get_lib_version", byref(numbers))
    return numbers[0], numbers[1], numbers[2]


def devices() -> list[c_void_p]:
    """Return the handles of all GPUs, in the driver's order."""
    sockets = _handles("amdsmi_get_socket_handles")
    return [device for socket in sockets for device in _handles("amdsmi_get_processor_handles", socket)]


def uuid(handle: c_void_p) -> str:
    """Return the UUID of a device."""
    length, buffer = c_uint32(_TEXT_BYTES), create_string_buffer(_TEXT_BYTES)
    call("amdsmi_get_gpu_device_uuid", handle, byref(length), buffer)
    return buffer.value.decode()


def text(function: str, handle: c_void_p) -> str:
    """Return the answer of a function that fills a buffer."""
    buffer = create_string_buffer(_TEXT_BYTES)
    call(function, handle, buffer, c_uint32(_TEXT_BYTES))
    return buffer.value.decode()


def number(function: str, kind: type[c_uint32 | c_uint64], handle: c_void_p, *arguments: Any) -> int:
    """Return the answer of a function that fills a number of ctypes' type ``kind``."""
    answer = kind()
    call(function, handle, *arguments, byref(answer))
    return answer.value


def structure(function: str, kind: type[_Answer], handle: c_void_p, *arguments: Any) -> _Answer:
    """Return the answer of a function that fills a structure.

    Raises:
        SmiError: also if this version of the library may have another layout of the structure.
    """
    _check_layouts(function)
    answer = kind()
    call(function, handle, *arguments, byref(answer))
    return answer


def reported(answer: ctypes.Structure, name: str) -> Any:
    """Return a member of ``answer``.

    Raises:
        SmiError: if the device does not report it.
    """
    value = member(answer, name)
    if value is None:
        raise SmiError(SmiStatus.NOT_REPORTED, name)
    return value


def process_ids(handle: c_void_p) -> list[int]:
    """Return the host PIDs of the processes on a device."""
    function = "amdsmi_get_gpu_process_list"
    _check_layouts(function)
    room = 64
    while True:
        infos, count = (ProcessInfo * room)(), c_uint32(room)
        try:
            call(function, handle, byref(count), infos)
        except SmiError as error:
            if error.code != SmiStatus.OUT_OF_RESOURCES or count.value <= room:
                raise
            room = 2 * count.value  # processes may start until the next call
        else:
            return [info.pid for info in infos[: count.value]]


def energy_mj(handle: c_void_p) -> int:
    """Return the energy that a device has taken since the driver was loaded, in millijoules."""
    count, microjoules, at = c_uint64(), c_float(), c_uint64()
    call("amdsmi_get_energy_count", handle, byref(count), byref(microjoules), byref(at))
    return round(count.value * microjoules.value / 1000)


def _handles(function: str, *of: Any) -> list[c_void_p]:
    count = c_uint32()
    call(function, *of, byref(count), None)
    handles = (c_void_p * count.value)()
    call(function, *of, byref(count), handles)
    return [c_void_p(handle) for handle in handles[: count.value]]


@lru_cache(maxsize=1)
def _library() -> ctypes.CDLL:
    for path in _PATHS:
        try:
            return ctypes.CDLL(path)
        except OSError:  # noqa: PERF203  # the next path may be right
            continue
    raise SmiError(SmiStatus.LIBRARY_NOT_FOUND, _PATHS[0])


@lru_cache(maxsize=1)
def _first_version_number() -> int:
    return version()[0]


def _check_layouts(function: str) -> None:
    if _first_version_number() not in KNOWN_VERSIONS:
        raise SmiError(SmiStatus.UNKNOWN_LAYOUT, function)


def _describe(code: int) -> str:
    try:
        return SmiStatus(code).name.lower().replace("_", " ")
    except ValueError:
        return "failed"
