"""Which kind of failure an exception of somebody else's code is, and whether it lacks a package and no more."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from pathlib import Path
from typing import Collection

from kernel_matrix.inside.wire import CallFailure

KERNEL_PACKAGES = frozenset(
    {
        *("triton", "tilelang", "cutlass", "cuda", "cupy", "numba", "warp", "taichi", "tvm", "jax", "helion"),
        *("flash_attn", "flashinfer", "deep_gemm", "transformer_engine", "liger_kernel", "apex", "xformers", "vllm"),
    }
)
"""Packages that kernels are written in or built on: an image without one cannot run a candidate that needs it. Any
other name that a candidate imports in vain is taken for its own mistake."""

_DEVICE_MEMORY = re.compile(r"CUDA(_ERROR| error|\]).{0,20}out.of.memory", re.IGNORECASE)
"""The driver's own words, as they reach code that calls it by itself or through Triton."""
_HOST_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|(?<!OutOf)MemoryError|bad_alloc|not enough memory", re.IGNORECASE
)
"""torch, the system, Python and C++, each in its own words. ``OutOfMemoryError`` is torch's for the device's memory."""
_NOT_FOUND = re.compile(r"ModuleNotFoundError: No module named '(?P<name>\w+)'\Z")


def classify(error: BaseException) -> CallFailure:
    """Which kind of failure an exception of candidate code is."""
    name = type(error).__name__
    module = type(error).__module__ or ""
    if isinstance(error, MemoryError) or name == "OutOfMemoryError":
        return CallFailure.MEMORY
    if _DEVICE_MEMORY.search(str(error)) or tells_of_host_memory(str(error)):
        return CallFailure.MEMORY
    if isinstance(error, SyntaxError) or "Error building extension" in str(error):
        return CallFailure.COMPILE
    # The interpreter's error stands for the compiler's, which says the same of the same source on a GPU.
    if name in ("CompilationError", "InterpreterError", "PTXASError") or module.startswith("triton.compiler"):
        return CallFailure.COMPILE
    return CallFailure.RUNTIME


def tells_of_host_memory(text: str) -> bool:
    """Whether ``text`` says that the host refused memory."""
    return bool(_HOST_MEMORY.search(text))


def missing_package(error: BaseException) -> str:
    """The package that ``error`` says is not installed; empty where that is not what it says.

    A missing part of a package that is there, and a file that lies beside the one that imports it, are mistakes of
    whoever wrote the import.
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if not name or "." in name:
        return ""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    # Python's own frames come last; what they say they are from is no file.
    importing = [Path(file).parent for file in files if not file.startswith("<")][-1:]
    own = any((folder / file).exists() for folder in importing for file in (f"{name}.py", name))
    return "" if own else name


def claimed_package(text: str) -> str:
    """Which of :data:`KERNEL_PACKAGES` a traceback ends with, as not to be found; else empty. A claim."""
    found = _NOT_FOUND.match((text.strip().splitlines() or [""])[-1])
    name = found["name"] if found else ""
    return name if name in KERNEL_PACKAGES else ""


def missing_kernel_package(text: str, imports: Collection[str]) -> str:
    """The package that a candidate's traceback ends with, where it must have it and it is not here; else empty.

    The text is a claim, and what is unsupported counts against nobody: a candidate that knows it will fail must not get
    out of the denominators by raising the right exception. That the package is not installed is therefore looked up in
    this process, which must run in the same image.

    :param imports: packages that the candidate's source imports, as somebody else has read it.
    """
    name = claimed_package(text)
    return name if name in imports and not _is_here(name) else ""


def _is_here(package: str) -> bool:
    # Nothing can be found out about a module that was put there by hand, but that it is there.
    return sys.modules.get(package) is not None or importlib.util.find_spec(package) is not None
