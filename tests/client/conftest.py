"""A service whose judge is played, over real HTTP."""

from __future__ import annotations

import json
import threading
from contextlib import contextmanager

import pytest

from kernel_matrix.service.clients import RequestLimit
from kernel_matrix.service.evaluation_queue import EvaluationQueue
from kernel_matrix.service.http_app import Service
from tests.service.test_http_app import TOKENS, PlayedJudge, listening


@pytest.fixture
def queue(tmp_path):
    made = EvaluationQueue(tmp_path / "queue.sqlite")
    yield made
    made.close()


@pytest.fixture
def service(queue, monkeypatch):
    """The address of a service; its clients are ann, who is the one by default, and bob."""
    monkeypatch.setenv("KERNEL_MATRIX_TOKEN", "ann")
    parts = Service(queue=queue, evaluator=PlayedJudge(), tokens=TOKENS, limit=RequestLimit(10_000, 10_000))
    with listening(parts) as address:
        yield address


@contextmanager
def judging(queue, answers):
    """Judge what is in the queue until the end: the source is the key of the answer, or the answer is passed."""
    stop = threading.Event()

    def judge():
        while not stop.wait(0.01):
            for work in queue.claim("cpu", 99):
                answer = answers.get(work.digest, {"status": "passed", "fault": "none"})
                queue.finish(work.digest, json.dumps(answer))

    thread = threading.Thread(target=judge)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()


@pytest.fixture
def answers(queue):
    """Source → answer; while this is used, everything that is sent is judged."""
    known = {}
    with judging(queue, known):
        yield known
