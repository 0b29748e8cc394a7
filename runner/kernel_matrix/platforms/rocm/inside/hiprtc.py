"""ROCm's compiler at run time, ``libhiprtc``: from HIP C++ to code for the device of this thread."""

from __future__ import annotations

import ctypes
from typing import Any

from kernel_matrix.inside.platform import DeviceError
from kernel_matrix.platforms.rocm.inside.rocm_libraries import load_library


def compile_text(text: str) -> bytes:
    """Compile kernels for the device of this thread, which the compiler finds itself.

    Raises:
        DeviceError: There is no compiler, or it fails. The error has no code, because it says nothing about the device.
    """
    program, size = ctypes.c_void_p(), ctypes.c_size_t()
    source = (ctypes.c_char_p(text.encode()), ctypes.c_char_p(b"kernel_matrix.hip"))
    _call("hiprtcCreateProgram", ctypes.byref(program), *source, ctypes.c_int(0), None, None)
    try:
        _compile(program)
        _call("hiprtcGetCodeSize", program, ctypes.byref(size))
        code = ctypes.create_string_buffer(size.value)
        _call("hiprtcGetCode", program, code)
        return code.raw
    finally:
        load_library("libhiprtc").hiprtcDestroyProgram(ctypes.byref(program))


def _compile(program: ctypes.c_void_p) -> None:
    try:
        _call("hiprtcCompileProgram", program, ctypes.c_int(0), None)
    except DeviceError as error:
        raise DeviceError(f"{error}: {_log(program)}") from None


def _log(program: ctypes.c_void_p) -> str:
    """Return the last line of what the compiler said."""
    size = ctypes.c_size_t()
    _call("hiprtcGetProgramLogSize", program, ctypes.byref(size))
    text = ctypes.create_string_buffer(size.value + 1)
    _call("hiprtcGetProgramLog", program, text)
    lines = text.value.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else "it says no more"


def _call(function: str, *arguments: Any) -> None:
    try:
        code = getattr(load_library("libhiprtc"), function)(*arguments)
    except AttributeError:
        raise DeviceError(f"this HIP compiler has no {function}") from None
    if code != 0:
        raise DeviceError(f"{function} failed with hiprtc error {code}")
