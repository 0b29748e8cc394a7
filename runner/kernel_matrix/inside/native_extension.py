"""Compiling what a candidate brings as C++ or CUDA files, through :mod:`torch.utils.cpp_extension`.

For adapters, which are staged beside such files; see ``sources/native/adapter.py``.
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
    """The Python module that the sources make, compiled unless that was done before.

    The files are copied once to where it is built: a compiler's log knows them by their times, which must stay.

    :param beside: the folder that the files are in.
    :param name: the module's, and the build folder's; to be made from all that is compiled, so that no other is taken.
    :param files: all that is needed, headers included, by file name.
    :param sources: of those and of ``written``, the ones to compile.
    :param written: further files, by name: their text.
    :param flags: ``cflags``, ``cuda_cflags`` and ``ld_flags``, each for its compiler or linker.
    :param with_cuda: there is CUDA in it, so that nvcc is needed.
    :raises RuntimeError: when it does not compile, with what the compiler says.
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
