"""A stand-in for ``nvcc`` that keeps what ptxas says, for torch to call in its place (``PYTORCH_NVCC``).

torch throws the compiler's words away when all went well, and registers and spills are told there alone. So the builder
lets torch call this file, which adds ``-Xptxas -v``, leaves device code uncompressed (it is read afterwards), and
writes ptxas's remarks aside. Whoever uses the artefact must name the same compiler, for ninja compiles again whatever
was made by another command: there, where no log is asked for, this file is ``nvcc`` and nothing more.
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
"""Name of torch's setting."""
LOG = "KERNEL_MATRIX_PTXAS_LOG"
"""Setting: the file that ptxas's remarks are appended to."""

_ADDED = ("-Xptxas=-v", "--no-compress")


def stand_in() -> Dict[str, str]:
    """Settings under which torch compiles through this file; empty where there is no nvcc to stand in for."""
    return {COMPILER: shlex.join((sys.executable, "-I", str(Path(__file__).resolve())))} if find_nvcc() else {}


def find_nvcc() -> Optional[str]:
    """The compiler that torch would take: of ``CUDA_HOME``, of the search path, or of the usual folder."""
    home = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH")
    named = str(Path(home) / "bin" / "nvcc") if home else ""
    return shutil.which(named) or shutil.which("nvcc") or shutil.which("/usr/local/cuda/bin/nvcc")


def main(arguments: Sequence[str]) -> int:
    """Compile; the exit code is the compiler's."""
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
    """Whether a line is one of those that ``-v`` adds, and not an error or a warning."""
    return line.startswith("ptxas info") or "bytes spill stores" in line


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
