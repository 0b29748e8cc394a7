"""Wrapper of ``nvcc`` that keeps the remarks of ptxas; torch calls it in place of nvcc (``PYTORCH_NVCC``).

torch discards the compiler's output if the compilation succeeds, and only that output has the spills of a kernel. The
builder therefore lets torch call this file, which adds ``-Xptxas -v``, leaves device code uncompressed (it is read
afterwards), and writes ptxas's remarks to a log. A worker that uses the artefact must name the same compiler, because
ninja compiles again if the command differs. It sets no log, and then this file only runs ``nvcc``.
"""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Dict, Optional, Sequence

COMPILER = "PYTORCH_NVCC"
"""Variable in which torch expects the compiler."""
LOG = "KERNEL_MATRIX_PTXAS_LOG"
"""Variable with the path of the file to which ptxas's remarks are appended."""

_ADDED = ("-Xptxas=-v", "--no-compress")


def wrapper_settings() -> Dict[str, str]:
    """Return settings under which torch compiles through this file; empty if there is no nvcc."""
    return {COMPILER: shlex.join((sys.executable, "-I", str(Path(__file__).resolve())))} if find_nvcc() else {}


def find_nvcc() -> Optional[str]:
    """Find the compiler that torch would use: in ``CUDA_HOME``, on the search path, or in the usual folder."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    named = str(Path(home) / "bin" / "nvcc") if home else ""
    return shutil.which(named) or shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def main(arguments: Sequence[str]) -> int:
    """Run the compiler, and return its exit code."""
    nvcc = find_nvcc()
    if nvcc is None:
        sys.stderr.write("nvcc: there is none in CUDA_HOME, on the PATH or in /usr/local/cuda\n")
        return 127
    if LOG not in os.environ:
        os.execv(nvcc, [nvcc, *arguments])  # noqa: S606  # argv is a tuple of its own, as everywhere
    done = subprocess.run([nvcc, *arguments, *_ADDED], stderr=subprocess.PIPE, text=True, errors="replace", check=False)
    lines = done.stderr.splitlines(keepends=True)
    with Path(os.environ[LOG]).open("a", encoding="utf-8") as log:
        log.write("".join(filter(_is_remark, lines)))
    sys.stderr.write("".join(line for line in lines if not _is_remark(line)))
    return done.returncode


def _is_remark(line: str) -> bool:
    """Return whether a line is a remark that ``-v`` adds, and not an error or a warning."""
    return line.startswith("ptxas info") or "bytes spill stores" in line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
