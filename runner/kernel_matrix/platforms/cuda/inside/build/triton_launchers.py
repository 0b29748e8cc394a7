"""The host's half of a Triton launch, compiled ahead: C that Triton gives a compiler when something is launched first.

That takes half a second for what calls the driver and, before Triton 3.7, as much again for each signature of a kernel.
What comes of it lies in ``TRITON_CACHE_DIR`` beside the kernels. It needs the driver's library, for which an idle one
stands in while it is linked, and so it cannot be loaded where there is no driver: nobody needs it there.
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

from kernel_matrix.platforms.cuda.inside.libcuda import LIBRARY

CompileLauncher = Callable[[Any], None]
"""Compiles what a launch of this kernel needs, which Triton has compiled."""

_PATIENCE_S = 60.0

_FUNCTION = re.compile(r"\bcu[A-Z]\w+")
"""A function of the driver, as C names it."""


@contextmanager
def compiled_ahead() -> Iterator[CompileLauncher]:
    """Inside, launchers can be compiled.

    Without a C compiler, or with a Triton that does it otherwise, nothing is compiled, and the first launch does it.
    """
    driver = _driver_module()
    if driver is None:
        yield lambda _kernel: None
        return
    with tempfile.TemporaryDirectory() as folder, ExitStack() as undo:
        once = _once(driver.compile_module_from_src, Path(folder))
        undo.enter_context(mock.patch.object(driver, "compile_module_from_src", once))
        undo.enter_context(mock.patch.object(driver, "library_dirs", return_value=[folder]))
        yield lambda kernel: _compile_launcher(driver, kernel)


def _driver_module() -> Optional[Any]:
    """Triton's module for NVIDIA's driver; null where it does not have what is wanted of it."""
    with suppress(ImportError):
        from triton.backends.nvidia import driver  # noqa: PLC0415  # only Triton's candidates need it

        if all(hasattr(driver, name) for name in ("compile_module_from_src", "library_dirs", "CudaUtils")):
            return driver
    return None


def _once(compile_source: Callable[..., Any], folder: Path) -> Callable[..., Any]:
    """``compile_source`` that links against a library in ``folder``, and compiles nothing a second time.

    Triton would: what it has compiled and cannot load it takes for broken.
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
    """A driver's library that has ``functions``, which do nothing: without any, a linker leaves it out as not needed.

    :raises subprocess.SubprocessError: when it does not compile.
    :raises OSError: when there is no compiler.
    """
    source = "".join(f"void {function}(void) {{}}\n" for function in sorted(functions))
    command = (os.environ.get("CC", "gcc"), "-shared", "-fPIC", f"-Wl,-soname,{LIBRARY}", "-x", "c", "-", "-o", LIBRARY)
    subprocess.run(command, cwd=folder, input=source.encode(), check=True, capture_output=True, timeout=_PATIENCE_S)
    alias = folder / "libcuda.so"  # older Tritons look for this one
    if not alias.is_symlink():
        alias.symlink_to(LIBRARY)


def _compile_launcher(driver: Any, kernel: Any) -> None:
    for compile_one in (driver.CudaUtils, lambda: driver.CudaLauncher(kernel.src, kernel.metadata)):
        with suppress(Exception):  # it is compiled, and cannot be loaded
            compile_one()
