"""Reading from a running program without losing what it says next."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator


def read_line(process: subprocess.Popen[str]) -> str:
    """Return the next line of a program's output, or an empty text at its end.

    ``process.stdout.readline()`` reads ahead into a buffer that ``communicate`` does not look at: lines that come
    together would be lost. This reads one byte at a time and leaves the rest in the pipe.
    """
    assert process.stdout is not None
    line = bytearray()
    while not line.endswith(b"\n"):
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            break
        line += byte
    return line.decode()


def lines_of(process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the lines of a program's output as they come, until it ends."""
    return iter(lambda: read_line(process), "")
