"""The queue of a service: nothing that was accepted is lost, nothing has two answers, and clients have equal shares."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from kernel_matrix.errors import StoreError
from kernel_matrix.service.evaluation_queue import (
    MOST_LOSSES,
    EvaluationQueue,
    EvaluationState,
    KeyReusedError,
    NewEvaluation,
    QueueFullError,
)

ROOT = Path(__file__).parents[2]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "service" / "queue.sqlite"


@pytest.fixture
def queue(path):
    made = EvaluationQueue(path)
    yield made
    made.close()


def wanted(digest, *, place="h200", kind="softmax", **changes):
    """A request whose text is that of its work."""
    return NewEvaluation(digest=digest, place=place, kind=kind, request=f"judge {digest}", **changes)


def submit(queue, client, *digests, **changes):
    return queue.submit(client, [wanted(digest, **changes) for digest in digests])


def claimed(queue, most=1, place="h200"):
    return [work.digest for work in queue.claim(place, most)]


def answers(queue, client):
    return {one.digest: one.answer for one in queue.page(client)}


def test_answer_comes_to_who_asked(queue):
    (asked,) = submit(queue, "ann", "a")
    assert (asked.state, asked.answer) == (EvaluationState.QUEUED, None)
    (work,) = queue.claim("h200", 5)
    assert (work.digest, work.request, work.losses) == ("a", "judge a", 0)
    assert queue.find("ann", [asked.id])[0].state is EvaluationState.RUNNING
    assert queue.finish("a", "passed")
    (found,) = queue.find("ann", [asked.id])
    assert (found.state, found.answer) == (EvaluationState.ENDED, "passed")
    assert found.ended_at >= found.created_at
    assert claimed(queue) == []


def test_others_see_nothing_of_a_clients_evaluations(queue):
    (asked,) = submit(queue, "ann", "a")
    assert queue.find("bob", [asked.id]) == []
    assert queue.page("bob") == []
    assert queue.cancel("bob", [asked.id]) == 0


def test_same_work_is_done_once(queue):
    submit(queue, "ann", "a", "a")
    submit(queue, "bob", "a")
    assert claimed(queue, 9) == ["a"]
    submit(queue, "eve", "a")  # while it runs
    queue.finish("a", "passed")
    (late,) = submit(queue, "dan", "a")
    assert (late.state, late.answer, late.ended_at) == (EvaluationState.ENDED, "passed", late.created_at)
    assert [answers(queue, client) for client in ("ann", "bob", "eve", "dan")] == [{"a": "passed"}] * 4
    assert claimed(queue) == []


def test_second_answer_is_not_taken(queue):
    submit(queue, "ann", "a")
    queue.claim("h200", 1)
    queue.finish("a", "passed")
    assert not queue.finish("a", "wrong")
    assert not queue.finish("never asked for", "wrong")
    assert answers(queue, "ann") == {"a": "passed"}


def test_work_that_the_machine_fails_is_done_again_and_then_told(queue):
    submit(queue, "ann", "a")
    for losses in range(MOST_LOSSES):
        (work,) = queue.claim("h200", 1)
        assert work.losses == losses
        assert queue.finish("a", "no GPU", is_final=False) is (losses == MOST_LOSSES - 1)
    (lost,) = queue.page("ann")
    assert (lost.state, lost.answer) == (EvaluationState.ENDED, "no GPU")

    submit(queue, "ann", "a")  # it is no answer to the next request
    assert claimed(queue) == ["a"]
    queue.finish("a", "passed")
    assert [one.answer for one in queue.page("ann")] == ["no GPU", "passed"]


def test_key_and_list_know_what_the_machine_failed(queue):
    (kept,) = submit(queue, "ann", "a", key="k")
    (left,) = submit(queue, "ann", "a")
    queue.cancel("ann", [left.id])
    for _ in range(MOST_LOSSES):
        queue.claim("h200", 1)
        queue.finish("a", "no GPU", is_final=False)
    assert submit(queue, "ann", "a", key="k")[0].id == kept.id
    states = [EvaluationState.ENDED, EvaluationState.CANCELLED]
    assert [(one.digest, one.state) for one in queue.page("ann")] == [("a", state) for state in states]


def test_key_names_one_evaluation_of_a_client(queue):
    (first,) = submit(queue, "ann", "a", key="k")
    assert submit(queue, "ann", "a", key="k") == [first]
    assert submit(queue, "bob", "b", key="k")[0].id != first.id
    with pytest.raises(KeyReusedError, match=f"the key 'k' names evaluation {first.id}, which is of something else"):
        submit(queue, "ann", "c", "b", key="k")
    assert len(queue.page("ann")) == 1


def test_queue_has_an_end(path):
    queue = EvaluationQueue(path, most=5, most_each=3)
    submit(queue, "ann", "a", "b", "c")
    with pytest.raises(QueueFullError, match="3 evaluations of this client have not ended, and 3 are allowed"):
        submit(queue, "ann", "d")
    with pytest.raises(QueueFullError, match="3 evaluations of all clients have not ended, and 5 are allowed"):
        submit(queue, "bob", "d", "e", "f")
    assert queue.page("bob") == []
    queue.claim("h200", 9)
    queue.finish("a", "passed")
    submit(queue, "ann", "d")
    assert queue.unfinished() == {EvaluationState.QUEUED: 1, EvaluationState.RUNNING: 2}
    queue.close()


def test_cancelled_evaluation_does_not_run(queue):
    first, second = submit(queue, "ann", "a", "b")
    submit(queue, "bob", "b")
    assert queue.cancel("ann", [first.id, second.id, "ev-unknown"]) == 2
    assert claimed(queue, 9) == ["b"]
    queue.finish("b", "passed")
    assert [one.state for one in queue.page("ann")] == [EvaluationState.CANCELLED] * 2
    assert answers(queue, "ann") == {"a": None, "b": None}
    assert answers(queue, "bob") == {"b": "passed"}
    submit(queue, "ann", "a")
    assert claimed(queue) == ["a"]


def test_evaluation_that_does_not_begin_in_time_expires(queue):
    (late,) = submit(queue, "ann", "a", timeout_s=1e-9)
    (other,) = submit(queue, "ann", "b", timeout_s=3600)
    assert queue.expire() == 1
    assert queue.find("ann", [late.id])[0].state is EvaluationState.EXPIRED
    assert claimed(queue, 2) == ["b"]
    assert queue.expire() == 0
    assert queue.find("ann", [other.id])[0].state is EvaluationState.RUNNING


def test_what_runs_is_not_cancelled(queue):
    (asked,) = submit(queue, "ann", "a")
    queue.claim("h200", 1)
    assert queue.cancel("ann", [asked.id]) == 0


def test_clients_have_equal_shares(queue):
    submit(queue, "ann", *(f"a{number}" for number in range(50)))
    submit(queue, "bob", *(f"b{number}" for number in range(5)))
    first = [digest[0] for _ in range(10) for digest in claimed(queue)]
    assert Counter(first) == {"a": 5, "b": 5}
    submit(queue, "eve", *(f"e{number}" for number in range(5)))  # neither waits for what ann had, nor ann for her
    later = [digest[0] for _ in range(10) for digest in claimed(queue)]
    assert Counter(later) == {"a": 5, "e": 5}


def test_client_that_comes_back_has_saved_nothing(queue):
    submit(queue, "ann", *(f"a{number}" for number in range(30)))
    submit(queue, "bob", "b")
    assert "b" in [claimed(queue)[0], claimed(queue)[0]]
    for _ in range(20):
        queue.claim("h200", 1)
    submit(queue, "bob", *(f"b{number}" for number in range(9)))
    assert Counter(claimed(queue)[0][0] for _ in range(8)) == {"a": 4, "b": 4}


def test_priority_orders_the_evaluations_of_a_client(queue):
    submit(queue, "ann", "low", priority=-1)
    submit(queue, "ann", "first", "second")
    submit(queue, "ann", "high", priority=5)
    assert [claimed(queue)[0] for _ in range(4)] == ["high", "first", "second", "low"]


def test_works_of_one_kind_are_claimed_together(queue):
    submit(queue, "ann", "a", "b", kind="relu")
    submit(queue, "ann", "c", kind="softmax")
    submit(queue, "bob", "d", kind="relu")
    assert sorted(claimed(queue, 9)) == ["a", "b", "d"]
    assert claimed(queue, 9) == ["c"]


def test_work_waits_for_its_place(queue):
    submit(queue, "ann", "a", place="l40s")
    submit(queue, "ann", "b")
    assert claimed(queue, 9) == ["b"]
    assert claimed(queue, 9, place="l40s") == ["a"]


def test_pages_are_read_by_cursor(queue):
    digests = [f"a{number}" for number in range(7)]
    submit(queue, "ann", *digests)
    seen, after = [], 0
    while page := queue.page("ann", after=after, limit=3):
        seen += [one.digest for one in page]
        after = page[-1].number
    assert seen == digests


def test_running_work_is_done_again_after_a_restart(path):
    queue = EvaluationQueue(path)
    submit(queue, "ann", "a", "b")
    assert len(queue.claim("h200", 1)) == 1
    queue.close()
    queue = EvaluationQueue(path)
    assert sorted(claimed(queue, 9)) == ["a", "b"]
    queue.close()


def test_one_service_has_a_queue(path, queue):
    with pytest.raises(StoreError, match="is in use by another service"):
        EvaluationQueue(path)
    assert submit(queue, "ann", "a")


def test_file_of_something_else_is_refused(path):
    path.parent.mkdir()
    path.write_text("a page of text that is no database, and longer than the header of one" * 20)
    with pytest.raises(StoreError, match="is no queue of a service: file is not a database"):
        EvaluationQueue(path)


def test_file_of_a_later_version_is_refused_and_kept(path):
    EvaluationQueue(path).close()
    database = sqlite3.connect(path)
    database.execute("PRAGMA user_version = 99")
    database.close()
    with pytest.raises(StoreError, match="was written by a later version\n  → upgrade kernel-matrix"):
        EvaluationQueue(path)


def test_folder_that_cannot_be_made_is_told(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="cannot be written: "):
        EvaluationQueue(tmp_path / "file" / "queue.sqlite")


WORKER = """
import sys
from pathlib import Path
sys.path.insert(0, {runner!r})
from kernel_matrix.service.evaluation_queue import EvaluationQueue, NewEvaluation
queue, first = EvaluationQueue(Path({path!r})), int(sys.argv[1])
for number in range(first, first + 10_000):
    digest = str(number % 97)
    wanted = NewEvaluation(digest=digest, place="h200", kind="k", request="r", key=str(number))
    (one,) = queue.submit(f"client-{{number % 3}}", [wanted])
    print("accepted", one.id, flush=True)
    for work in queue.claim("h200", 2):
        if queue.finish(work.digest, f"{{work.digest}} by {{first}}"):
            print("answered", work.digest, flush=True)
"""


def test_nothing_is_lost_or_answered_twice_by_kill_9(path):
    dice, accepted, answered = random.Random(1), [], Counter()
    script = WORKER.format(runner=str(ROOT / "runner"), path=str(path))
    for turn in range(8):
        argv = (sys.executable, "-c", script, str(turn * 10_000))
        with subprocess.Popen(argv, stdout=subprocess.PIPE, text=True) as worker:
            lines = (worker.stdout.readline() for _ in range(dice.randrange(5, 120)))
            said = [line.split() for line in lines]
            worker.send_signal(signal.SIGKILL)
            said += [line.split() for line in worker.stdout.read().splitlines()]
        accepted += [word[1] for word in said if word[0] == "accepted"]
        answered.update(word[1] for word in said if word[0] == "answered")
    assert set(answered.values()) == {1}

    queue = EvaluationQueue(path)
    while works := queue.claim("h200", 50):
        for work in works:
            queue.finish(work.digest, f"{work.digest} at the end")
    everything = [one for client in range(3) for one in queue.page(f"client-{client}", limit=10_000)]
    queue.close()
    assert {one.id for one in everything} >= set(accepted)
    assert {one.state for one in everything} == {EvaluationState.ENDED}
    assert all(len({one.answer for one in everything if one.digest == digest}) == 1 for digest in answered)
