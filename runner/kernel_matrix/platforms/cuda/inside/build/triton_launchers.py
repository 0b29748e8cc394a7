"""Compilation ahead of time of Triton's launchers: C code that Triton otherwise compiles at the first launch.

That takes half a second for the code that calls the driver and, before Triton 3.7, as much again for each signature of
a kernel. The results are stored in ``TRITON_CACHE_DIR`` beside the kernels. They are linked against a stub of the
driver's library, so they cannot be loaded on a machine without a driver, where they are not needed.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Callable, Iterator, Optional, Set
from unittest import mock

from kernel_matrix.inside.build.triton_ahead import CompileLauncher
from kernel_matrix.platforms.cuda.inside.libcuda import LIBRARY

_COMPILE_TIMEOUT_S = 60.0  # the stub compiles in milliseconds

_FUNCTION = re.compile(r"\bcu[A-Z]\w+")
"""Name of a function of the driver in C."""


@contextmanager
def compiled_ahead() -> Iterator[CompileLauncher]:
    """Yield a function that compiles launchers.

    It does nothing without a C compiler, or with a version of Triton that works differently; the first launch then
    compiles the launcher.
    """
    driver = _driver_module()
    if driver is None:
        yield lambda _kernel: None
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as undo:
        once = _compile_each_once(driver.compile_module_from_src, Path(folder))
        undo.enter_context(mock.patch.object(driver, "compile_module_from_src", once))
        undo.enter_context(mock.patch.object(driver, "library_dirs", return_value=[folder]))
        yield lambda kernel: _compile_launcher(driver, kernel)


def _driver_module() -> Optional[Any]:
    """Return Triton's module for NVIDIA's driver; None if it lacks a function that is used here."""
    with suppress(ImportError):
        from triton.backends.nvidia import driver  # noqa: PLC0415  # only Triton's candidates need it

        if all(hasattr(driver, name) for name in ("compile_module_from_src", "library_dirs", "CudaUtils")):
            return driver
    return None


def _compile_each_once(compile_source: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """Make a ``compile_source`` that links against a stub in ``folder`` and compiles each source only once.

    Triton itself would compile again, because it takes a result that it cannot load for broken.
    """
    compiled: Set[str] = set()

    def compile_module_from_src(src: str, name: str, *more: Any, **options: Any) -> Any:
        if src in compiled:
            raise ImportError(f"{name} is compiled, and cannot be loaded here")
        compiled.add(src)
        _make_library(folder, set(_FUNCTION.findall(src)))
        return compile_source(src, name, *more, **options)

    return compile_module_from_src


def _make_library(folder: Path, functions: Set[str]) -> None:
    """Make a stub of the driver's library with empty ``functions``.

    A linker would drop a stub without the functions that are used, because it would not be needed.

    Raises:
        subprocess.SubprocessError: if it does not compile.
        OSError: if there is no compiler.
    """
    source = "".join(f"void {function}(void) {{}}\n" for function in sorted(functions))
    command = (os.environ.get("CC", "gcc"), "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-x", "c", "-", "-o", LIBRARY)
    subprocess.run(
        command, cwd=folder, input=source.encode(), check=True, capture_output=True, timeout=_COMPILE_TIMEOUT_S
    )
    alias = folder / "libcuda.so"  # name that older versions of Triton link against
    if not alias.is_symlink():
        alias.symlink_to(LIBRARY)


def _compile_launcher(driver: Any, kernel: Any) -> None:
    for compile_one in (driver.CudaUtils, lambda: driver.CudaLauncher(kernel.src, kernel.metadata)):
        with suppress(Exception):  # compilation works, but loading the result fails
            compile_one()
