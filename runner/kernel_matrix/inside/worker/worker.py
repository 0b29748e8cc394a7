"""The process of a candidate, a baseline or a rival: connects to the judge and answers it.

Run as ``python -m kernel_matrix.inside.worker.worker --channel DIR --code DIR --device cuda [--artifact FILE]
[--preload MODULE …] [--ranks N]``. It may start long before its session: it imports slow modules, and waits for the
judge's order before it opens the device and unpacks the artifact.
"""

from __future__ import annotations

import argparse
import importlib
import socket
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Optional, Sequence

from kernel_matrix.inside.confine import refuse_connections
from kernel_matrix.inside.hard_exit import leave
from kernel_matrix.inside.wire import MAX_FROM_JUDGE, Channel, short_name

SOCKET_NAME = "judge.sock"  # name of the judge's socket in a contestant's folder

PATIENCE_S = 900.0  # default time that a process started early waits for its session


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Serve one judge; the judge ignores the exit code."""
    parser = argparse.ArgumentParser(prog="worker")
    parser.add_argument("--channel", type=Path, required=True)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--device", default="cpu", help="name of the platform")
    parser.add_argument("--artifact", type=Path)
    parser.add_argument("--ranks", type=int, default=1, help="number of processes that make calls together")
    parser.add_argument("--preload", metavar="MODULE", action="append", default=[])
    parser.add_argument("--connect-timeout", type=float, default=PATIENCE_S)
    arguments = parser.parse_args(argv)
    # Beside the import of torch: a judge that is kept has no socket for this worker before its session.
    with ThreadPoolExecutor(1) as thread:
        connected = thread.submit(_connect, arguments.channel / SOCKET_NAME, arguments.connect_timeout)
        from kernel_matrix.inside.worker.service import serve  # noqa: PLC0415  # imports torch

        _import_ahead(arguments.preload)
        channel = Channel(connected.result(), MAX_FROM_JUDGE)
    refuse_connections()
    if arguments.ranks == 1:
        serve(channel, arguments.code, arguments.device, arguments.artifact)
    else:
        from kernel_matrix.inside.worker.rank_leader import serve_ranks  # noqa: PLC0415  # few cells need it

        serve_ranks(channel, arguments.code, arguments.device, arguments.artifact, arguments.ranks)
    return 0


def _connect(path: Path, patience_s: float) -> socket.socket:
    """Connect to the judge, which starts at the same time and makes the socket file."""
    deadline = time.monotonic() + patience_s
    with ExitStack() as undo:
        connection = undo.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        name = undo.enter_context(short_name(path))
        while True:
            try:
                connection.connect(name)
            except (FileNotFoundError, ConnectionRefusedError):  # noqa: PERF203  # retrying is what this loop is for
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)
            else:
                return connection.dup()


def _import_ahead(modules: Sequence[str]) -> None:
    """Import slow modules that the source needs; the source reports one that is missing."""
    for name in modules:
        with suppress(ImportError):
            importlib.import_module(name)
    if "triton" in sys.modules:
        _hash_triton()


def _hash_triton() -> None:
    """Let Triton hash its own files: it does that once, before its first kernel, and needs a third of a second."""
    for module in ("triton.runtime.cache", "triton.compiler.compiler"):  # since 3.5, and before
        with suppress(ImportError, AttributeError):
            importlib.import_module(module).triton_key()
            return


if __name__ == "__main__":
    leave(main())
