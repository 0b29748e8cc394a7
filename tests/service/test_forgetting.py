"""Old evaluations leave the queue of a service, with their keys, and everything else stays."""

from __future__ import annotations

import threading
import time

import pytest

from kernel_matrix.errors import StoreError
from kernel_matrix.service.evaluation_queue import EvaluationQueue, NewEvaluation
from kernel_matrix.service.forgetting import forget_old, forgetting

DAY_S = 86_400


@pytest.fixture
def queue(tmp_path):
    made = EvaluationQueue(tmp_path / "queue.sqlite")
    yield made
    made.close()


def later_s(days):
    """The clock of another day."""
    return lambda: time.time() + days * DAY_S


def submit(queue, *digests, key=None):
    wanted = [NewEvaluation(digest=digest, place="cpu", kind="k", request="{}", key=key) for digest in digests]
    return queue.submit("ann", wanted)


def judge(queue, most=99):
    for work in queue.claim("cpu", most):
        queue.finish(work.digest, "passed")


def test_old_evaluations_are_forgotten_with_their_keys(queue):
    (old,) = submit(queue, "a", key="k")
    judge(queue)
    assert forget_old(queue, 2, now_s=later_s(1.9)) == 0
    assert queue.find("ann", [old.id]) != []
    assert forget_old(queue, 2, now_s=later_s(2.1)) == 1
    assert queue.find("ann", [old.id]) == []
    (new,) = submit(queue, "b", key="k")  # of something else
    assert new.number > old.number


def test_what_has_not_ended_is_kept(queue):
    submit(queue, "waits", "runs")
    queue.claim("cpu", 1)
    assert forget_old(queue, 1, now_s=later_s(9)) == 0
    assert len(queue.page("ann")) == 2


def test_answer_stays_while_an_evaluation_has_it(queue):
    submit(queue, "a")
    judge(queue)
    (late,) = submit(queue, "a")
    assert queue.forget("9999", 1) == 1
    assert [(one.id, one.answer) for one in queue.page("ann")] == [(late.id, "passed")]
    assert submit(queue, "a")[0].answer == "passed"


def test_forgotten_candidate_is_judged_anew(queue):
    submit(queue, "a")
    judge(queue)
    forget_old(queue, 1, now_s=later_s(2))
    assert submit(queue, "a")[0].answer is None
    assert [work.digest for work in queue.claim("cpu", 1)] == ["a"]


def test_cancelled_evaluation_of_running_work_waits(queue):
    (cancelled,) = submit(queue, "a")
    queue.cancel("ann", [cancelled.id])
    submit(queue, "a")
    queue.claim("cpu", 1)
    assert forget_old(queue, 1, now_s=later_s(2)) == 0
    queue.finish("a", "passed")
    assert forget_old(queue, 1, now_s=later_s(2)) == 2


def test_many_are_forgotten_in_small_steps(queue, monkeypatch):
    steps = []
    forget = queue.forget
    monkeypatch.setattr(queue, "forget", lambda before, most: steps.append(most) or forget(before, most), raising=False)
    submit(queue, *map(str, range(1000)))
    judge(queue, 1000)
    assert forget_old(queue, 1, now_s=later_s(2)) == 1000
    assert len(steps) > 4
    assert max(steps) <= 200


def test_stopped_service_does_not_wait_for_all(queue):
    submit(queue, "a")
    judge(queue)
    stop = threading.Event()
    stop.set()
    assert forget_old(queue, 1, now_s=later_s(2), stop=stop) == 0


def test_service_goes_on_if_nothing_can_be_removed(queue, monkeypatch, caplog):
    failed = threading.Event()

    def fail(*_):
        failed.set()
        raise StoreError("the queue cannot be used: disk I/O error")

    monkeypatch.setattr(queue, "forget", fail)
    with forgetting(queue, 1):
        assert failed.wait(30)
    assert caplog.messages == ["old evaluations stay: the queue cannot be used: disk I/O error"]
