"""Sessions that a lane starts early, on a sandbox without processes."""

from __future__ import annotations

from contextlib import closing, suppress
from dataclasses import replace

import pytest

from kernel_matrix.attempt import Assignment, RunContext, SessionPrefetch
from kernel_matrix.attempt.prepared_session import SessionRequest
from kernel_matrix.attempt.session_prefetch import DEPTH
from kernel_matrix.errors import SandboxError
from kernel_matrix.hosts.process_token import owner_token
from kernel_matrix.matrix import Policy, Protocol
from kernel_matrix.model.enums import Dtype, Role, Status
from kernel_matrix.scan import SourceScan
from tests.attempt.stage import FIRST, cannot_start, hangs, keeps, says, vanishes
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
    assert {path.name for path in folder.iterdir()} == {"problem.py"}
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
    assert (stage.alive, list(stage.scratch.iterdir())) == (0, [])
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


# ---- judges that are kept


@pytest.fixture
def cells(turn):
    """Makes the first sessions of cells that differ in their candidates alone, whose judge reports these statuses."""

    def made(*names, statuses=(Status.PASSED,) * 9):
        first, *others = [turn(name, keeps(*statuses)) for name in names]
        problem = first.of.cell.problem
        return [first, *(replace(t, of=replace(t.of, cell=replace(t.of.cell, problem=problem))) for t in others)]

    return made


def test_prefetch_kept_judge_serves_the_cells_of_a_problem(ahead, cells, stage):
    turns = cells("a", "b", "c")
    for turn in turns:
        result = run(ahead, turn)
        assert (result.report.status, result.report.cell_id) == (Status.PASSED, turn.of.cell.id)
        assert stage.alive == 2
    assert stage.launched.count(Role.CANDIDATE) == 3
    assert (judges(stage), stage.launched.count(Role.BASELINE)) == (1, 1)


def test_prefetch_kept_judge_gets_candidates_started_early(bench, cells, stage):
    first, *coming = cells("a", "b", "c")
    with closing(SessionPrefetch(bench, lambda count: [one.of for one in coming[:count]])) as ahead:
        with ahead.session(first) as session:
            session.begin(NOTHING, lambda running: None)
            ahead.start(None)
            until(lambda: stage.alive == 5)
            session.processes.finish(20, lambda: False)
        for turn in coming:
            assert run(ahead, turn).report.cell_id == turn.of.cell.id
        assert (judges(stage), stage.launched.count(Role.CANDIDATE)) == (1, 3)


@pytest.mark.parametrize("change", ["problem", "dtype", "policy", "protocol", "attempt", "sessions"])
def test_prefetch_kept_judge_ends_before_another_kind_of_cell(change, ahead, cells, stage):
    first, second = cells("a", "b")
    run(ahead, first)
    cell = second.of.cell
    changed = {
        "problem": replace(cell, problem=replace(cell.problem, digest="b" * 64)),
        "dtype": replace(cell, dtype=Dtype.FP16),
        "policy": replace(cell, policy=Policy(gpu_wait_s=21, session_timeout_s=20)),
        "protocol": replace(cell, protocol=Protocol(seed=3)),
        "sessions": replace(cell, protocol=Protocol(max_sessions=2)),
    }.get(change, cell)
    another = replace(second.of, cell=changed, attempt=2 if change == "attempt" else 1)
    ahead.end_unsuited(replace(second, of=another))
    assert stage.alive == 0
    run(ahead, replace(second, of=another))
    assert judges(stage) == 2


@pytest.mark.parametrize(
    ("weaker", "started"),
    [
        ({"user": "shared"}, 1),
        ({"filesystem": "shared", "processes": "shared"}, 1),
        ({"user": "shared", "filesystem": "shared"}, 2),
        ({"user": "shared", "processes": "shared"}, 2),
    ],
)
def test_prefetch_keeps_judges_only_of_confined_candidates(weaker, started, ahead, cells, stage):
    isolation = replace(stage.isolation(None), **weaker)
    stage.isolation = lambda _spec: isolation
    turns = cells("a", "b")
    if started == 2:
        for turn in turns:
            stage.plays["judge", turn.of.cell.id] = [PASSES]
    for turn in turns:
        with ahead.session(turn) as session:
            assert session.keep is (started == 1)
            session.begin(NOTHING, lambda running: None)
            session.processes.finish(20, lambda: False)
    assert judges(stage) == started


def test_prefetch_kept_judge_that_is_gone_is_replaced(ahead, cells, stage):
    first, second = cells("a", "b")
    stage.plays["eager", first.of.cell.id] = [vanishes]
    run(ahead, first)
    assert run(ahead, second).report.status is Status.PASSED
    assert judges(stage) == 2


def test_prefetch_judge_ends_after_a_session_that_is_left(ahead, cells, stage):
    first, second = cells("a", "b")
    stage.plays["judge", first.of.cell.id] = [hangs]
    with suppress(KeyboardInterrupt), ahead.session(first) as session:
        session.begin(NOTHING, lambda running: None)
        raise KeyboardInterrupt
    assert stage.alive == 0
    assert run(ahead, second).report.status is Status.PASSED


def test_prefetch_kept_judge_serves_so_many_cells_at_most(ahead, cells, stage, monkeypatch):
    monkeypatch.setattr("kernel_matrix.attempt.session_prefetch.MOST_CELLS", 2)
    for turn in cells("a", "b", "c"):
        run(ahead, turn)
    assert judges(stage) == 2


def test_prefetch_starts_nothing_early_at_depth_zero(bench, cells, stage):
    turns = cells("a", "b")
    with closing(SessionPrefetch(bench, lambda _count: [turns[1].of], depth=0)) as ahead:
        ahead.start(turns[1])
        assert stage.launched == []


def test_where_nothing_follows_what_was_started_is_taken_away(ahead, turn, stage):
    ahead.start(turn())
    ahead.start(None)
    assert stage.alive == 0


# ---- processes for a cell that may come


def test_prefetch_spares_serve_the_next_cell_of_a_problem(ahead, cells, stage):
    first, second = cells("a", "b")
    run(ahead, first)
    ahead.start_spares()
    until(lambda: stage.alive == 6)  # judge and baseline, others like them, and a candidate for each
    started = len(stage.launched)
    assert run(ahead, second).report.cell_id == second.of.cell.id
    assert len(stage.launched) == started


def test_prefetch_spares_serve_a_cell_of_another_problem(ahead, cells, turn, stage):
    (first,) = cells("a")
    run(ahead, first)
    ahead.start_spares()
    until(lambda: stage.alive == 6)
    started = len(stage.launched)
    (folder,) = (path for path in stage.scratch.glob("*/judge") if not list(path.iterdir()))
    other = turn("b")
    with ahead.session(other) as session:
        assert [path.name for path in folder.iterdir()] == ["problem.py"]
        session.begin(NOTHING, lambda running: None)
        assert session.processes.finish(20, lambda: False).report.cell_id == other.of.cell.id
    assert len(stage.launched) == started


def test_prefetch_spares_that_ended_are_replaced(ahead, cells, stage):
    first, second = cells("a", "b")
    run(ahead, first)
    stage.plays["eager", first.of.cell.id] = [vanishes, hangs]
    ahead.start_spares()
    until(lambda: stage.launched.count(Role.BASELINE) == 2)
    ahead.start_spares()
    until(lambda: stage.launched.count(Role.BASELINE) == 3 and stage.alive == 6)
    assert run(ahead, second).report.status is Status.PASSED


def test_prefetch_spares_do_not_serve_what_is_unlike(ahead, cells, turn, stage):
    (first,) = cells("a")
    run(ahead, first)
    ahead.start_spares()
    until(lambda: stage.alive == 6)
    other = turn("b")
    policy = replace(other.of.cell.policy, memory_mib=123)
    other = replace(other, of=replace(other.of, cell=replace(other.of.cell, policy=policy)))
    started = judges(stage)
    assert run(ahead, other).report.status is Status.PASSED
    assert judges(stage) == started + 1
