"""The command in a process of its own: on a terminal, or between pipes."""

import os
import pty
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def on_terminal(folder: Path, *arguments: str, **environment: str) -> str:
    """Return the output of ``kernel-matrix`` with ``arguments`` on a terminal of 200 columns."""
    mine, its = pty.openpty()
    own = {"PYTHONPATH": str(ROOT), "TERM": "xterm-256color", "COLUMNS": "200", "PAGER": "cat"}
    with subprocess.Popen(
        (sys.executable, "-m", "kernel_matrix", *arguments),
        cwd=folder,
        env={**os.environ, **environment, **own},
        stdout=its,
        stderr=its,
    ) as process:
        os.close(its)
        said = b""
        while chunk := _read(mine):
            said += chunk
        process.wait()
    os.close(mine)
    return said.decode()


def piped(folder: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """``kernel-matrix`` with ``arguments``, run to its end in ``folder``."""
    return subprocess.run(
        (sys.executable, "-m", "kernel_matrix", *arguments),
        check=False,
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )


def _read(descriptor: int) -> bytes:
    try:
        return os.read(descriptor, 65_536)
    except OSError:  # the other end is closed
        return b""
