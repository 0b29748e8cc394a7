"""Pausing the candidate while another contestant is timed, because a judge asks for it.

A judge can reach no process but its own, so it asks the host over a socket in its private folder.
"""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from kernel_matrix.errors import InfrastructureError
from kernel_matrix.inside.judge.pause import PAUSE_SOCKET
from kernel_matrix.inside.wire import Channel, FrameKind, PeerGoneError, WireError
from kernel_matrix.sandboxes import RunningProcess
from kernel_matrix.sandboxes.open_socket import listening_for_all

_MAX_PAYLOAD = 0  # the judge runs the code of problems; its requests have no content


@contextmanager
def pausing_on_request(folder: Path, candidate: Callable[[], RunningProcess]) -> Iterator[None]:
    """Pause and resume the candidate whenever the judge of a session asks for it.

    Args:
        folder: The judge's private folder.
        candidate: Function that returns the candidate's process once it has started.
    """
    with listening_for_all(folder / PAUSE_SOCKET) as listener:
        server = _PauseServer(listener, candidate)
        thread = threading.Thread(target=server.serve, name="pause", daemon=True)
        thread.start()
        try:
            yield
        finally:
            server.stop()
            thread.join()


class _PauseServer:
    def __init__(self, listener: socket.socket, candidate: Callable[[], RunningProcess]) -> None:
        self._listener = listener
        self._candidate = candidate
        self._connection: socket.socket | None = None
        self._over = False

    def stop(self) -> None:
        """Wake the thread that waits for the judge, which may run on for another cell."""
        self._over = True
        for waiting in (self._listener, self._connection):
            if waiting is not None:
                with suppress(OSError):  # it is closed already
                    waiting.shutdown(socket.SHUT_RDWR)

    def serve(self) -> None:
        """Serve one judge until it disconnects, asks for anything else, or asks for something that fails.

        Whatever ends this, the candidate runs on, if that is possible.
        """
        with suppress(OSError, PeerGoneError, WireError, InfrastructureError), ExitStack() as undo:
            connection, _ = self._listener.accept()
            self._connection = undo.enter_context(connection)
            channel, running = Channel(connection, _MAX_PAYLOAD), self._candidate()
            undo.callback(running.resume)
            requests = {FrameKind.PAUSE: running.pause, FrameKind.RESUME: running.resume}
            while not self._over and (kind := channel.receive()[0]) in requests:
                requests[kind]()
                channel.send(FrameKind.READY)
