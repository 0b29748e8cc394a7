"""Libraries of ROCm, which images have in several places."""

from __future__ import annotations

import ctypes
import importlib.util
from functools import lru_cache
from pathlib import Path
from typing import Iterator

from kernel_matrix.inside.loaded_libraries import mapped_library
from kernel_matrix.inside.platform import DeviceError

_PACKAGES = ("torch", "_rocm_sdk_core")
"""Packages that may have ROCm's libraries in a folder ``lib`` of theirs."""
_VERSIONS = (".7", ".6", "")
"""Ends of a library's name that the loader is asked for."""


@lru_cache(maxsize=None)
def load_library(stem: str) -> ctypes.CDLL:
    """Load a library: the one that torch has loaded or would load, because a process can have only one HIP runtime.

    Args:
        stem: Name without its end, such as ``libamdhip64``.

    Raises:
        DeviceError: There is none.
    """
    loaded = mapped_library(rf"{stem}\S*\.so\S*")
    why: object = "it was not found"
    for path in [str(loaded)] if loaded is not None else _places(stem):
        try:
            return ctypes.CDLL(path)
        except OSError as error:  # noqa: PERF203  # the next path may be right
            why = error
    raise DeviceError(f"{stem} cannot be loaded: {why}")


def _places(stem: str) -> Iterator[str]:
    for package in _PACKAGES:
        found = importlib.util.find_spec(package)
        for folder in (found.submodule_search_locations or ()) if found is not None else ():
            yield from map(str, sorted(Path(folder, "lib").glob(f"{stem}*.so*")))
    yield from (f"{stem}.so{version}" for version in _VERSIONS)
    yield f"/opt/rocm/lib/{stem}.so"
