"""Start a worker under compute-sanitizer if the image has it, else directly.

Run as ``python -m kernel_matrix.platforms.cuda.inside.sanitized --tool memcheck -- <arguments of
kernel_matrix.inside.worker.worker>``. The tool prints its findings and then a summary. Without a summary the tool did
not run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
from pathlib import Path
from typing import List, NoReturn, Optional, Sequence

_PROGRAM = "compute-sanitizer"
_TOOLKIT = "/usr/local/cuda/bin"
_PRINTED = 20  # findings that are printed in full; the summary counts all


def find_sanitizer() -> Optional[str]:
    """Find the program in ``PATH``, in the CUDA toolkit's folder, or in a package that is installed beside torch."""
    packages = [path for entry in sys.path if entry for path in Path(entry).glob("nvidia/*/bin")]
    places = [os.environ.get("PATH", os.defpath), _TOOLKIT, *map(str, packages)]
    return shutil.which(_PROGRAM, path=os.pathsep.join(places))


def command_line(sanitizer: Optional[str], tool: str, arguments: Sequence[str]) -> List[str]:
    """Return the command of the worker, under ``tool`` if the sanitizer was found."""
    worker = [sys.executable, "-s", "-B", "-m", "kernel_matrix.inside.worker.worker", *arguments]
    if sanitizer is None:
        return worker
    limits = ["--print-limit", str(_PRINTED), "--show-backtrace", "no"]
    return [sanitizer, "--tool", tool, *limits, "--require-cuda-init", "no", *worker]


def main(argv: Optional[Sequence[str]] = None) -> NoReturn:
    """Replace this process by the worker's command."""
    parser = argparse.ArgumentParser(prog="sanitized")
    parser.add_argument("--tool", required=True)
    parser.add_argument("arguments", nargs="*")
    options = parser.parse_args(argv)
    command = command_line(find_sanitizer(), options.tool, options.arguments)
    os.execv(command[0], command)  # noqa: S606  # no shell is wanted here


if __name__ == "__main__":
    main()
