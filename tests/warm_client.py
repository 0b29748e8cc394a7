"""Asks the process of :mod:`tests.warm_command` to run a command, for tests and for shell scripts.

A script runs it in place of ``kernel-matrix``, so it imports little:
``python -IS warm_client.py SOCKET PROGRAM … -- ARGUMENT …``.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import sys
from collections.abc import Mapping, Sequence

MOST_BYTES = 1 << 17
"""Largest order: program, arguments, folder and environment."""
NUMBER = struct.Struct("<i")


def start(
    path: str,
    program: Sequence[str],
    arguments: Sequence[str],
    *,
    streams: tuple[int, int, int],
    folder: str,
    environment: Mapping[str, str],
) -> tuple[socket.socket, int]:
    """Ask for a command to be started.

    Returns:
        The connection, on which the exit code will follow (:func:`read_number`), and the command's process ID.
    """
    asking = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    asking.connect(path)
    order = json.dumps([list(program), list(arguments), folder, dict(environment)]).encode()
    assert len(order) < MOST_BYTES
    socket.send_fds(asking, [order], streams)
    return asking, read_number(asking)


def read_number(asking: socket.socket) -> int:
    """Wait for the next number from the server: the command's process ID, then its exit code."""
    return int(NUMBER.unpack(asking.recv(NUMBER.size))[0])


def main() -> int:
    """Run the command with this program's streams, folder and environment, and pass signals on to it."""
    path, words = sys.argv[1], sys.argv[2:]
    end = words.index("--")
    folder = os.getcwd()  # noqa: PTH109  # pathlib would be most of the start
    program, arguments = words[:end], words[end + 1 :]
    asking, process = start(path, program, arguments, streams=(0, 1, 2), folder=folder, environment=os.environ)
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, lambda number, _: os.kill(process, number))
    code = read_number(asking)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
