"""The command in a process of its own: on a terminal, or between pipes."""

import os
import pty
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

from tests.baddays.field import PRELOADED
from tests.sim.preloaded import warm_sources
from tests.warm_command import PACKAGES, ROOT, run_command, run_piped


def on_terminal(folder: Path, *arguments: str, **environment: str) -> str:
    """Return the output of ``kernel-matrix`` with ``arguments`` on a terminal of 200 columns."""
    mine, its = pty.openpty()
    said = bytearray()
    reader = threading.Thread(target=_read_all, args=(mine, said))
    reader.start()
    own = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "200", "PAGER": "cat"}
    try:
        with Path(os.devnull).open() as nothing:
            streams = (nothing.fileno(), its, its)
            run_command(arguments, streams, folder, {**os.environ, **environment, **own})
    finally:
        os.close(its)
        reader.join()
        os.close(mine)
    return said.decode()


def piped(folder: Path, *arguments: str, stdin: str = "", **environment: str) -> subprocess.CompletedProcess[str]:
    """Run ``kernel-matrix`` with ``arguments`` to its end in ``folder``, its output no terminal."""
    return run_piped(arguments, folder, {**os.environ, "PYTHONPATH": str(ROOT), **environment}, stdin=stdin)


def judging(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """The same for a command that judges candidates, whose processes are forked, too."""
    places = {**os.environ, "PYTHONPATH": PACKAGES, **warm_sources(), **environment}
    return run_piped(arguments, folder, places, program=PRELOADED)


def _read_all(descriptor: int, said: bytearray) -> None:
    with suppress(OSError):  # the other end is closed
        while True:
            said += os.read(descriptor, 65_536)
