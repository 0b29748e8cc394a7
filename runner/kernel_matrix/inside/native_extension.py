"""Compiling a candidate's C++ or CUDA files through :mod:`torch.utils.cpp_extension`.

Used by adapters, which are staged beside such files; see ``sources/native/adapter.py``.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Any, Mapping, Optional, Sequence


def load_extension(
    beside: Path,
    name: str,
    files: Sequence[str],
    sources: Sequence[str],
    *,
    written: Optional[Mapping[str, str]] = None,
    flags: Optional[Mapping[str, Sequence[str]]] = None,
    with_cuda: bool = True,
) -> Any:
    """Compile the sources, unless that was done before, and return their Python module.

    The files are copied to the build folder only if they changed: ninja compares their modification times.

    Args:
        beside: Folder of the files.
        name: Name of the module and its build folder, derived from everything that is compiled, so that it is unique.
        files: All files that are needed, headers included, by file name.
        sources: Those of ``files`` and ``written`` to compile.
        written: Further files, name → text.
        flags: ``cflags``, ``cuda_cflags`` and ``ld_flags``, each for its compiler or linker.
        with_cuda: True if the sources need nvcc.

    Raises:
        RuntimeError: If it does not compile, with the compiler's output.
    """
    from torch.utils import cpp_extension  # noqa: PLC0415  # needs a compiler, which only such candidates do

    folder = Path(os.environ.get("TORCH_EXTENSIONS_DIR") or tempfile.gettempdir()) / name
    folder.mkdir(parents=True, exist_ok=True)
    texts = {file: text.encode() for file, text in (written or {}).items()}
    for file, content in {**{file: (beside / file).read_bytes() for file in files}, **texts}.items():
        if not (folder / file).exists() or (folder / file).read_bytes() != content:
            (folder / file).write_bytes(content)
    given = flags or {}
    return cpp_extension.load(
        name=name,
        sources=[str(folder / source) for source in sources],
        extra_cflags=list(given.get("cflags", ())),
        extra_cuda_cflags=list(given.get("cuda_cflags", ())),
        extra_ldflags=list(given.get("ld_flags", ())),
        build_directory=str(folder),
        with_cuda=with_cuda or None,
    )
