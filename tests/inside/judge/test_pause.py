"""Pausing the candidate: what the judge asks, and what it does when the host does not answer."""

from __future__ import annotations

import socket
from contextlib import suppress

import pytest

from kernel_matrix.inside.judge.pause import PAUSE_SOCKET, CandidatePause, open_pause
from kernel_matrix.inside.wire import Channel, FrameKind


@pytest.fixture
def host():
    """The host's end, and a pause on the judge's."""
    ours, theirs = socket.socketpair()
    ours.settimeout(0.2)
    with ours, theirs:
        theirs.settimeout(0.05)
        yield Channel(theirs, 0), CandidatePause(Channel(ours, 0))


def requests(channel):
    """Return the kinds of frames that have arrived."""
    found = []
    with suppress(TimeoutError):
        while True:
            found.append(channel.receive()[0])
    return found


def test_pause_asks_once_per_change(host):
    channel, pause = host
    for _ in range(4):
        channel.send(FrameKind.READY)
    for change in (pause.pause, pause.pause, pause.resume, pause.resume, pause.pause):
        change()
    assert requests(channel) == [FrameKind.PAUSE, FrameKind.RESUME, FrameKind.PAUSE]
    assert pause.works


def test_pause_context_ends_resumed(host):
    channel, pause = host
    for _ in range(2):
        channel.send(FrameKind.READY)
    with suppress(KeyError), pause.ending_resumed():
        pause.pause()
        raise KeyError
    assert requests(channel) == [FrameKind.PAUSE, FrameKind.RESUME]


def test_pause_without_an_answer_asks_no_more(host):
    channel, pause = host
    pause.pause()
    assert not pause.works
    pause.resume()
    pause.pause()
    assert requests(channel) == [FrameKind.PAUSE]


def test_open_pause_without_a_host_pauses_nothing(tmp_path):
    with open_pause(tmp_path) as pause:
        pause.pause()
        assert not pause.works


def test_open_pause_connects_to_the_host(tmp_path):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / PAUSE_SOCKET))
        listener.listen(1)
        with open_pause(tmp_path) as pause:
            assert pause.works
