"""Sockets of this program that processes of any user may connect to."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kernel_matrix.inside.wire import short_name


@contextmanager
def listening_for_all(path: Path) -> Iterator[socket.socket]:
    """Open a new listening socket at ``path`` that any user may connect to."""
    path.unlink(missing_ok=True)
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
        with short_name(path) as name:
            listener.bind(name)
        path.chmod(0o666)
        listener.listen(1)
        yield listener
