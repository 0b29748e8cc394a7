"""Classifying exceptions of candidates and problems: kind of failure, and missing packages."""

from __future__ import annotations

import importlib.util
import re
import sys
import traceback
from pathlib import Path
from typing import Collection

from kernel_matrix.inside.wire import CallFailure

# Packages that kernels are written in or built on: an image without one cannot run a candidate that needs it. Any other
# name that a candidate fails to import is the candidate's own mistake.
KERNEL_PACKAGES = frozenset(
    {
        *("triton", "tilelang", "cutlass", "cuda", "cupy", "numba", "warp", "taichi", "tvm", "jax", "helion"),
        *("flash_attn", "flashinfer", "deep_gemm", "transformer_engine", "liger_kernel", "apex", "xformers", "vllm"),
    }
)

# A driver's message, as it appears when code calls the driver directly or through Triton: of CUDA, HIP and others.
_DEVICE_MEMORY = re.compile(r"(_ERROR| error|\]).{0,20}out.of.memory", re.IGNORECASE)
# Messages of torch, the system, Python and C++. ``OutOfMemoryError`` is torch's name for the device's memory.
_HOST_MEMORY = re.compile(
    r"can't allocate memory|cannot allocate memory|(?<!OutOf)MemoryError|bad_alloc|not enough memory", re.IGNORECASE
)
# Messages of ``load_inline`` and of a pass of Triton's compiler, which have no exception of their own.
_COMPILERS = ("Error building extension", "PassManager::run failed")
_NOT_FOUND = re.compile(r"ModuleNotFoundError: No module named '(?P<name>\w+)'\Z")


def classify(error: BaseException) -> CallFailure:
    """Return the kind of failure for an exception of candidate code."""
    name = type(error).__name__
    module = type(error).__module__ or ""
    if isinstance(error, MemoryError) or name == "OutOfMemoryError":
        return CallFailure.MEMORY
    if _DEVICE_MEMORY.search(str(error)) or tells_of_host_memory(str(error)):
        return CallFailure.MEMORY
    if isinstance(error, SyntaxError) or any(text in str(error) for text in _COMPILERS):
        return CallFailure.COMPILE
    # Triton's interpreter raises its own error for source that the compiler would reject on a GPU.
    if name in ("CompilationError", "InterpreterError", "PTXASError") or module.startswith("triton.compiler"):
        return CallFailure.COMPILE
    return CallFailure.RUNTIME


def tells_of_host_memory(text: str) -> bool:
    """Return True if ``text`` says that the host refused memory."""
    return bool(_HOST_MEMORY.search(text))


def missing_package(error: BaseException) -> str:
    """Return the package that ``error`` says is not installed; empty if it says something else.

    A missing submodule of an installed package, and a file beside the importing one, are mistakes of the author of the
    import, not missing packages.
    """
    name = error.name if isinstance(error, ModuleNotFoundError) else None
    if not name or "." in name:
        return ""
    files = [frame.filename for frame in traceback.extract_tb(error.__traceback__)]
    # Python's own import frames come last; their names, such as ``<frozen importlib>``, are no files.
    importing = [Path(file).parent for file in files if not file.startswith("<")][-1:]
    own = any((folder / file).exists() for folder in importing for file in (f"{name}.py", name))
    return "" if own else name


def claimed_package(text: str) -> str:
    """Return the package of :data:`KERNEL_PACKAGES` whose absence ends a traceback; empty if none. It is a claim."""
    found = _NOT_FOUND.match((text.strip().splitlines() or [""])[-1])
    name = found["name"] if found else ""
    return name if name in KERNEL_PACKAGES else ""


def missing_kernel_package(text: str, imports: Collection[str]) -> str:
    """Return the package whose absence ends a candidate's traceback if it is imported and not installed; else empty.

    The traceback is a claim, and ``unsupported`` does not count against a candidate. A candidate that knows it will
    fail must not gain that status by raising the right exception. So this process, which must run in the same image,
    looks up whether the package is installed. ``imports`` comes from a trusted process that has read the source.
    """
    name = claimed_package(text)
    return name if name in imports and not _is_installed(name) else ""


def _is_installed(package: str) -> bool:
    # A module that was put into ``sys.modules`` by hand may have no spec to find.
    return sys.modules.get(package) is not None or importlib.util.find_spec(package) is not None
