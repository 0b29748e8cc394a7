"""The host's side of pausing a candidate, with the judge's own half at the other end."""

from __future__ import annotations

import socket

import pytest

from kernel_matrix.attempt.pausing import pausing_on_request
from kernel_matrix.errors import SandboxError
from kernel_matrix.inside.judge.pause import PAUSE_SOCKET, open_pause
from kernel_matrix.inside.wire import Channel, FrameKind, PeerGoneError


class Running:
    """A process that records what is done to it."""

    def __init__(self, error=None):
        self.done = []
        self._error = error

    def pause(self):
        self.done.append("pause")
        if self._error is not None:
            raise self._error

    def resume(self):
        self.done.append("resume")


def test_pausing_does_what_the_judge_asks(tmp_path):
    running = Running()
    with pausing_on_request(tmp_path, lambda: running), open_pause(tmp_path) as pause:
        pause.pause()
        assert running.done == ["pause"]
        pause.resume()
        assert running.done == ["pause", "resume"]
        assert pause.works


def test_pausing_ends_resumed_when_the_judge_is_gone(tmp_path):
    running = Running()
    with pausing_on_request(tmp_path, lambda: running), open_pause(tmp_path) as pause:
        pause.pause()
    assert running.done == ["pause", "resume"]


def test_pausing_refused_leaves_the_candidate_running(tmp_path):
    running = Running(SandboxError("not permitted"))
    with pausing_on_request(tmp_path, lambda: running), open_pause(tmp_path) as pause:
        pause.pause()
        assert not pause.works
    assert running.done == ["pause", "resume"]


@pytest.mark.parametrize("sent", [b"\0" * 20, b"KMX1" + b"\xff" * 16])
def test_pausing_malformed_request_ends_the_connection(sent, tmp_path):
    running = Running()
    with pausing_on_request(tmp_path, lambda: running), socket.socket(socket.AF_UNIX) as judge:
        judge.connect(str(tmp_path / PAUSE_SOCKET))
        judge.sendall(sent)
        assert judge.recv(1) == b""
    assert running.done == ["resume"]


def test_pausing_other_request_ends_the_connection(tmp_path):
    running = Running()
    with pausing_on_request(tmp_path, lambda: running), socket.socket(socket.AF_UNIX) as judge:
        judge.connect(str(tmp_path / PAUSE_SOCKET))
        channel = Channel(judge, 0)
        channel.send(FrameKind.BYE)
        with pytest.raises(PeerGoneError):
            channel.receive()
    assert running.done == ["resume"]


def test_pausing_candidate_that_did_not_start_is_refused(tmp_path):
    def candidate():
        raise SandboxError("cannot be started")

    with pausing_on_request(tmp_path, candidate), open_pause(tmp_path) as pause:
        pause.pause()
        assert not pause.works


def test_pausing_without_a_judge_ends(tmp_path):
    with pausing_on_request(tmp_path, Running):
        pass
