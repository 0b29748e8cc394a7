"""Programs whose output comes through pipes, and reading it without losing what they say next."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from typing import Any


class Program(subprocess.Popen[str]):
    """A program in a process group of its own; a ``with`` that fails kills the group and does not wait for ever."""

    def __init__(self, argv: tuple[str, ...], **options: Any) -> None:
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        super().__init__(argv, start_new_session=True, **pipes, **options)

    def __exit__(self, kind: type[BaseException] | None, *details: object) -> None:
        if kind is not None and self.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)
        super().__exit__(kind, *details)


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
