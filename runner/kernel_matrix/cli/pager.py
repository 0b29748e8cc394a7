"""Long output on a terminal, shown by the program that ``PAGER`` names."""

from __future__ import annotations

import io
import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout, suppress

_LESS = "FRX"  # git's: leave at once what fits, keep colours, keep the text on the screen


class TerminalBuffer(io.StringIO):
    """Text on its way to a terminal."""

    def isatty(self) -> bool:
        """Return ``True``, so that what is written has colours and the terminal's width."""
        return True


@contextmanager
def paged(*, wanted: bool) -> Iterator[None]:
    """Keep what is printed in the context, then show it: in a pager if it is longer than the screen.

    Nothing is kept unless standard output is a terminal and there is a pager.
    """
    command = _pager() if wanted and sys.stdout.isatty() else []
    if not command:
        yield
        return
    buffer = TerminalBuffer()
    try:
        with redirect_stdout(buffer):
            yield
    except BaseException:
        sys.stdout.write(buffer.getvalue())
        raise
    text = buffer.getvalue()
    if text.count("\n") < shutil.get_terminal_size().lines or not _show(command, text):
        sys.stdout.write(text)


def _pager() -> Sequence[str]:
    """Return the command of the pager; empty where none is wanted or there."""
    command = shlex.split(os.environ.get("PAGER", "less"))
    return command if command and command[0] != "cat" and shutil.which(command[0]) else []


def _show(command: Sequence[str], text: str) -> bool:
    """Show ``text`` until the reader has seen enough; return ``False`` if the pager could not be started."""
    try:
        pager = subprocess.Popen(command, stdin=subprocess.PIPE, env={"LESS": _LESS, **os.environ})
    except OSError:
        return False
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the pager's while it shows the text
    try:
        with suppress(BrokenPipeError):  # it was left before its end
            pager.communicate(text.encode(errors="replace"))
        pager.wait()
    finally:
        signal.signal(signal.SIGINT, before)
    return True
