"""The judge's request to the host to pause the candidate while another contestant is timed.

A candidate that is paused cannot disturb others, and cannot use their time for its own work.
"""

from __future__ import annotations

import socket
from contextlib import contextmanager
from pathlib import Path
from typing import Iterator, Optional

from kernel_matrix.inside.wire import Channel, FrameKind, PeerGoneError, WireError, short_name

PAUSE_SOCKET = "pause.sock"
"""Name of the host's socket in the judge's folder."""

NOT_PAUSED = "candidate_not_paused"
"""Label: the candidate's processes could run while other contestants were timed."""

_ANSWER_S = 10.0  # a daemon on an overloaded host may take seconds


class CandidatePause:
    """Pauses the candidate while others are timed, as long as the host can do it."""

    def __init__(self, channel: Optional[Channel]) -> None:
        """Create the pause over a ``channel`` to the host; ``None`` if there is no host to ask."""
        self._channel = channel
        self.is_paused = False
        """True between :meth:`pause` and :meth:`resume`, whether or not the host could do it."""

    @property
    def works(self) -> bool:
        """False once the host could not pause or resume the candidate; then it is asked no more."""
        return self._channel is not None

    @contextmanager
    def ending_resumed(self) -> Iterator[None]:
        """Let the candidate run on at the end of this context."""
        try:
            yield
        finally:
            self.resume()

    def pause(self) -> None:
        """Pause the candidate, if it is not paused."""
        if not self.is_paused:
            self.is_paused = True
            self._ask(FrameKind.PAUSE)

    def resume(self) -> None:
        """Let the candidate run on, if it is paused."""
        if self.is_paused:
            self.is_paused = False
            self._ask(FrameKind.RESUME)

    def _ask(self, kind: FrameKind) -> None:
        if self._channel is None:
            return
        try:
            self._channel.send(kind)
            if self._channel.receive()[0] is not FrameKind.READY:
                self._channel = None
        except (OSError, PeerGoneError, WireError):
            self._channel = None


@contextmanager
def open_pause(folder: Path) -> Iterator[CandidatePause]:
    """Connect to the host's socket in ``folder``; where there is none, nothing is ever paused."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connected = _connect(connection, folder / PAUSE_SOCKET)
        yield CandidatePause(Channel(connection, 0) if connected else None)


def _connect(connection: socket.socket, path: Path) -> bool:
    connection.settimeout(_ANSWER_S)
    try:
        with short_name(path) as name:
            connection.connect(name)
    except OSError:
        return False
    return True
