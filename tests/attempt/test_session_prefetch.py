"""Sessions that a lane starts early, on a sandbox without processes."""

from __future__ import annotations

from contextlib import closing
from dataclasses import replace

import pytest

from kernel_matrix.attempt import Assignment, RunContext, SessionPrefetch
from kernel_matrix.attempt.prepared_session import SessionRequest
from kernel_matrix.attempt.session_prefetch import DEPTH
from kernel_matrix.errors import SandboxError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.model.enums import Role, Status
from kernel_matrix.scan import SourceScan
from tests.attempt.stage import FIRST, cannot_start, hangs, says, vanishes
from tests.baddays.living import until

PASSES = says(Status.PASSED)
NOTHING = SourceScan(own_kernels=(), findings=())


@pytest.fixture
def bench(stage):
    yield RunContext(
        run_id="run-1", sandbox=stage, sandbox_status=stage.status(), owner=owner_token(), scratch=stage.scratch
    )
    assert stage.alive == 0
    assert list(stage.scratch.iterdir()) == []


@pytest.fixture
def turn(stage):
    """Makes the first session of a cell whose contestants run until they are dismissed, as real ones do."""

    def made(name="a", judge=PASSES, **changes):
        cell = stage.cell(name, judge, source=f"{name} = 1\n")
        for contestant in ("candidate", "eager"):
            stage.plays[contestant, cell.id] = [changes.get(contestant, hangs)]
        return SessionRequest(of=Assignment(cell=cell, gpu=FIRST), session=0)

    return made


@pytest.fixture
def ahead(bench):
    with closing(SessionPrefetch(bench, lambda _count: ())) as made:
        yield made


def run(ahead, turn):
    with ahead.session(turn) as session:
        session.begin(NOTHING, lambda running: None)
        return session.processes.finish(20, lambda: False)


def judges(stage):
    return stage.launched.count(Role.JUDGE)


def test_what_was_started_serves_its_turn(ahead, turn, stage):
    ahead.start(turn())
    until(lambda: stage.alive == 3)
    assert run(ahead, turn()).report.status is Status.PASSED
    assert judges(stage) == 1


def test_a_judge_has_no_job_before_its_turn(ahead, turn, stage):
    ahead.start(turn())
    until(lambda: stage.alive == 3)
    (folder,) = stage.scratch.glob("*/judge")
    assert {path.name for path in folder.iterdir()} == {"problem.py", "pause.sock"}
    with ahead.session(turn()) as session:
        session.begin(NOTHING, lambda running: None)
        assert {path.name for path in folder.iterdir()} == {"problem.py", "pause.sock", "job.json"}


def test_another_turn_takes_it_away_and_starts_its_own(ahead, turn, stage):
    ahead.start(turn("a"))
    until(lambda: stage.alive == 3)
    assert run(ahead, turn("b")).report.cell_id == turn("b").of.cell.id
    assert judges(stage) == 2


def test_the_next_session_of_a_cell_is_another_turn(ahead, turn, stage):
    ahead.start(turn())
    assert run(ahead, replace(turn(), session=1)).report.session == 1
    assert judges(stage) == 2


def test_what_is_started_already_is_not_started_again(ahead, turn, stage):
    ahead.start(turn("a"))
    ahead.start(turn("a"))
    until(lambda: stage.alive == 3)
    assert judges(stage) == 1
    ahead.start(turn("b"))
    until(lambda: judges(stage) == 2)
    assert stage.alive <= 3


@pytest.mark.parametrize("play", [vanishes, cannot_start])
def test_one_of_whom_somebody_is_gone_is_replaced_by_a_new_one(play, ahead, turn, stage):
    doomed = turn()
    stage.plays["eager", doomed.of.cell.id] = [play, hangs]
    ahead.start(doomed)
    until(lambda: judges(stage) == 1 and stage.launched.count(Role.BASELINE) == 1)
    assert run(ahead, doomed).report.status is Status.PASSED
    assert judges(stage) == 2


def test_prefetch_staging_error_is_raised_in_its_turn(ahead, turn, stage):
    gone = turn()
    gone.of.cell.candidate.path.unlink()
    ahead.start(gone)
    assert (stage.launched, list(stage.scratch.iterdir())) == ([], [])
    with pytest.raises(FileNotFoundError):
        run(ahead, gone)


def test_what_cannot_be_started_is_told_in_its_turn(ahead, turn):
    ahead.start(turn(candidate=cannot_start))
    with pytest.raises(SandboxError, match="candidate cannot be started"):
        run(ahead, turn(candidate=cannot_start))


def test_prefetch_last_session_asks_for_the_next_cell(bench, turn, stage):
    following = turn("next")
    with closing(SessionPrefetch(bench, lambda _count: [following.of])) as ahead:
        ahead.start(None)
        until(lambda: stage.alive == 3)
        assert run(ahead, following).report.status is Status.PASSED
    assert judges(stage) == 1


@pytest.mark.parametrize("of_this_cell", [False, True])
def test_there_are_never_more_than_so_many_ahead(of_this_cell, bench, turn, stage):
    asked, following = [], [turn(name).of for name in ("a", "b", "c")]

    def next_assignments(count):
        asked.append(count)
        return following[:count]

    with closing(SessionPrefetch(bench, next_assignments)) as ahead:
        ahead.start(turn("this") if of_this_cell else None)
        until(lambda: stage.alive == 3 * DEPTH)
        assert (asked, judges(stage)) == ([DEPTH - of_this_cell], DEPTH)


def test_each_serves_its_turn_while_the_next_is_started(bench, turn, stage):
    coming = [turn(name) for name in ("a", "b", "c")]
    with closing(SessionPrefetch(bench, lambda count: [one.of for one in coming[:count]])) as ahead:
        ahead.start(None)
        for _ in range(3):
            present = coming.pop(0)
            assert run(ahead, present).report.cell_id == present.of.cell.id
            ahead.start(None)
        assert judges(stage) == 3


def test_where_nothing_follows_what_was_started_is_taken_away(ahead, turn, stage):
    ahead.start(turn())
    ahead.start(None)
    assert stage.alive == 0
