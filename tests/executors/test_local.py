"""The loop over cells, on a sandbox that plays what each test wrote for it."""

from __future__ import annotations

import os
import queue
import threading
import time
from dataclasses import replace

import pytest
from sim.nvml import H200

from kernel_matrix.errors import StoreError
from kernel_matrix.executors.local import EventKind, Rerun, Run, RunPolicy, cells_to_run
from kernel_matrix.lease import LeaseTerms, hold
from kernel_matrix.matrix import GpuAxis, Policy, Protocol
from kernel_matrix.model.enums import Dtype, Fault, Role, Status, Tier
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sandboxes import ProcessExit
from tests.attempt.gpu_stage import OTHER, UUID, on_driver
from tests.attempt.stage import AXES, FIRST, SECOND, cannot_start, hands_over, hangs, keeps, says, vanishes
from tests.baddays.living import until
from tests.results import factory

PASSED, WRONG = says(Status.PASSED), says(Status.INCORRECT_VALUES)
ACCUSED = says(Status.TIMING_MISMATCH)


@pytest.fixture
def store(tmp_path):
    return RecordStore(tmp_path / "results")


@pytest.fixture
def perform(stage, store):
    """Runs cells to the end; returns the session and what it told as (happening, candidate's name)."""

    def performed(cells, *gpus, while_running=None, is_open=False, **orders):
        session = Run(cells, stage.survey(*gpus), store, RunPolicy(run_id="run-1", **orders), is_open=is_open)
        told = []
        with session.running() as events:
            for event in events:
                told.append((event.happening, event.cell.candidate.id.removeprefix("p/")))
                if while_running is not None:
                    while_running(session, event)
        assert stage.alive == 0
        assert list(stage.scratch.iterdir()) == []
        return session, told

    return performed


def ended(told):
    return [name for happening, name in told if happening is EventKind.CELL_ENDED]


def attempts(store, cell):
    return [(a.attempt, a.status) for a in store.attempts().get(cell.id, ())]


def meets_another():
    """A judge that passes when another one runs at the same time, and never ends otherwise."""
    both = threading.Barrier(2, timeout=20)

    def play(spec):
        both.wait()
        return PASSED(spec)

    return play


def test_each_cell_leaves_one_record(stage, store, perform):
    cells = [stage.cell("good", PASSED), stage.cell("bad", WRONG)]
    session, told = perform(cells)
    assert [attempts(store, cell) for cell in cells] == [[(1, Status.PASSED)], [(1, Status.INCORRECT_VALUES)]]
    assert session.counts == {Status.PASSED: 1, Status.INCORRECT_VALUES: 1}
    assert session.left == 0
    assert ended(told) == ["good", "bad"]


def test_devices_work_at_the_same_time(stage, perform):
    play = meets_another()
    session, _ = perform([stage.cell(uuid, play, gpu=axis) for uuid, axis in AXES.items()], FIRST, SECOND)
    assert session.counts == {Status.PASSED: 2}


def test_cells_of_one_axis_are_shared_by_all_its_devices(stage, perform):
    play, lanes = meets_another(), set()
    cells = [stage.cell(name, play) for name in ("a", "b", "c", "d")]
    session, _ = perform(cells, FIRST, SECOND, while_running=lambda _, event: lanes.add(event.lane))
    assert session.counts == {Status.PASSED: 4}
    assert lanes == {FIRST.uuid, SECOND.uuid}


def test_lane_runs_the_cells_of_a_problem_with_one_judge(stage, store, perform):
    first, *others = (stage.cell(name, keeps(*3 * [Status.PASSED])) for name in "abc")
    cells = [first, *(replace(cell, problem=first.problem) for cell in others)]
    stage.plays["eager", first.id] = [hangs]
    session, _ = perform(cells)
    assert session.counts == {Status.PASSED: 3}
    assert (stage.launched.count(Role.JUDGE), stage.launched.count(Role.CANDIDATE)) == (1, 3)
    records = [store.load(store.records / f"{cell.id}.1.json") for cell in cells]
    assert [[seen.role for seen in record.host.exits] for record in records] == 3 * [[Role.CANDIDATE]]


def test_lane_frees_the_device_while_it_awaits_builds(stage, perform):
    first_over, freed = threading.Event(), threading.Event()

    def builds_late(spec):
        assert first_over.wait(20)
        with hold(FIRST, LeaseTerms(wait_s=5)):  # the lane has kept a judge, and with it the lock
            freed.set()
        return hands_over(b"artefact")(spec)

    def tell(_, event):
        if event.happening is EventKind.CELL_ENDED:
            first_over.set()

    stage.root_pid = os.getpid()
    kept = stage.cell("kept", keeps(Status.PASSED, Status.PASSED))
    stage.plays["eager", kept.id] = [hangs]
    built = stage.cell("built", builder=[builds_late], source="y = 2\n")
    session, _ = perform([kept, built], while_running=tell)
    assert session.counts == {Status.PASSED: 2}
    assert freed.is_set()


def test_device_runs_a_ready_cell_while_another_builds(stage, perform):
    plain_ended = threading.Event()

    def builds_late(spec):
        assert plain_ended.wait(20)
        return hands_over(b"artefact")(spec)

    built, plain = stage.cell("built", builder=[builds_late], source="y = 2\n"), stage.cell("plain")

    def tell(_, event):
        if event.happening is EventKind.CELL_ENDED and event.cell is plain:
            plain_ended.set()

    _, told = perform([built, plain], while_running=tell)
    assert ended(told) == ["plain", "built"]


def test_the_same_source_is_built_once(stage, perform):
    cells = [stage.cell(name, builder=[hands_over(b"artefact")]) for name in ("one", "twin")]
    session, told = perform(cells)
    assert [name for happening, name in told if happening is EventKind.BUILD_STARTED] == ["one"]
    assert session.counts == {Status.PASSED: 2}


@pytest.mark.parametrize(("cores", "orders"), [(5, {}), (1, {"build_workers": 5})])
def test_builds_at_once_follow_free_cores_or_the_option(stage, perform, monkeypatch, cores, orders):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(cores))
    all_of_them = threading.Barrier(5, timeout=20)

    def builds(spec):
        all_of_them.wait()
        return hands_over(b"artefact")(spec)

    cells = [stage.cell(name, builder=[builds], source=f"{name} = 1\n") for name in "abcde"]
    session, _ = perform(cells, **orders)
    assert session.counts == {Status.PASSED: 5}


def test_what_does_not_build_is_never_put_on_the_device(stage, store, perform):
    cell = stage.cell("cuda", builder=[lambda spec: ProcessExit(role=spec.role, code=3, log_tail="nvcc fell over")])
    perform([cell])
    assert attempts(store, cell) == [(1, Status.CRASHED)]
    record = store.load(next(store.records.iterdir()))
    assert "exit code 3" in record.outcome.evidence.message
    assert record.outcome.evidence.log == "nvcc fell over"
    assert [seen.role for seen in record.host.exits] == [Role.BUILDER]
    assert Role.JUDGE not in stage.launched


def test_infrastructure_failure_is_retried_and_kept(stage, store, perform):
    cell = stage.cell("unlucky", vanishes, PASSED)
    session, told = perform([cell])
    assert attempts(store, cell) == [(1, Status.CONTAINER_LOST), (2, Status.PASSED)]
    assert session.counts == {Status.PASSED: 1}
    assert [happening for happening, _ in told] == [
        EventKind.CELL_STARTED,
        EventKind.CELL_RETRIED,
        EventKind.CELL_ENDED,
    ]


def test_an_accusation_counts_when_fresh_processes_repeat_it(stage, store, perform):
    cells = [stage.cell("honest", ACCUSED, PASSED), stage.cell("liar", ACCUSED)]
    session, told = perform(cells)
    assert attempts(store, cells[0]) == [(1, Status.TIMING_MISMATCH), (2, Status.PASSED)]
    assert attempts(store, cells[1]) == [(1, Status.TIMING_MISMATCH), (2, Status.TIMING_MISMATCH)]
    assert session.counts == {Status.PASSED: 1, Status.TIMING_MISMATCH: 1}
    assert [name for happening, name in told if happening is EventKind.CELL_RETRIED] == ["honest", "liar"]


def test_an_accusation_is_no_failure_of_the_machine(stage, store, perform):
    cell = stage.cell("unlucky", ACCUSED, vanishes, PASSED)
    perform([cell])
    assert [status for _, status in attempts(store, cell)] == [
        Status.TIMING_MISMATCH,
        Status.CONTAINER_LOST,
        Status.PASSED,
    ]


def test_what_the_machine_fails_again_is_left_to_the_next_run(stage, store, perform):
    cell = stage.cell("unlucky", cannot_start)
    session, _ = perform([cell])
    assert attempts(store, cell) == [(1, Status.INFRA_ERROR), (2, Status.INFRA_ERROR)]
    assert session.counts == {Status.INFRA_ERROR: 1}
    assert cells_to_run([cell], store, stage.survey(), Rerun.NONE) == [cell]


def test_a_candidate_is_never_tried_again(stage, store, perform):
    cell = stage.cell("bad", WRONG, PASSED)
    perform([cell])
    assert attempts(store, cell) == [(1, Status.INCORRECT_VALUES)]


@pytest.mark.parametrize("failure", [vanishes, cannot_start])
def test_a_build_that_the_machine_failed_is_built_again(failure, stage, store, perform):
    cell = stage.cell("cuda", builder=[failure, hands_over(b"artefact")])
    perform([cell])
    assert [attempt.fault for attempt in store.attempts()[cell.id]] == [Fault.INFRA, Fault.NONE]


def test_a_source_that_is_gone_is_told_and_the_rest_goes_on(stage, store, perform):
    gone, good = stage.cell("gone"), stage.cell("good")
    gone.candidate.path.unlink()
    perform([gone, good])
    assert [status for _, status in attempts(store, gone)] == [Status.INFRA_ERROR] * 2
    assert attempts(store, good) == [(1, Status.PASSED)]


def test_past_the_deadline_nothing_is_begun(stage, store, perform):
    long, short = stage.cell("long", expected_s=3600.0), stage.cell("short", expected_s=0.1)
    session, told = perform([long, short], deadline=time.monotonic() + 600)
    assert (EventKind.CELL_SKIPPED, "long") in told
    assert ended(told) == ["short"]
    assert session.left == 1
    assert attempts(store, long) == []


def test_fail_fast_stops_at_the_first_that_does_not_pass(stage, perform):
    session, told = perform([stage.cell("a"), stage.cell("b", WRONG), stage.cell("c")], fail_fast=True)
    assert ended(told) == ["a", "b"]
    assert session.left == 1


def test_stop_cancels_running_cells_without_records(stage, store, perform):
    cells = [stage.cell(name, hangs) for name in ("a", "b")]
    session, told = perform(cells, while_running=lambda session, _: session.stop())
    assert told == [(EventKind.CELL_STARTED, "a")]
    assert session.left == 2
    assert store.attempts() == {}


def test_leaving_the_run_early_stops_everything(stage, store):
    session = Run([stage.cell("a", hangs)], stage.survey(), store, RunPolicy(run_id="run-1"))
    with session.running() as events:
        assert next(events).happening is EventKind.CELL_STARTED
        until(lambda: stage.alive == 3)
    assert (stage.alive, session.left, store.attempts()) == (0, 1, {})
    assert list(stage.scratch.iterdir()) == []


def test_a_stop_calls_builds_off(stage, perform):
    session, told = perform([stage.cell("a", builder=[hangs])], while_running=lambda session, _: session.stop())
    assert told == [(EventKind.BUILD_STARTED, "a")]
    assert session.left == 1


def test_a_record_that_cannot_be_written_ends_the_run(stage, store, perform):
    store.root.write_text("a file where a folder should be")
    with pytest.raises(StoreError, match="cannot be written"):
        perform([stage.cell(name) for name in ("a", "b", "c")])
    assert stage.alive == 0
    assert stage.launched.count(Role.JUDGE) == 1


def test_no_cells_no_work(perform):
    session, told = perform([])
    assert (session.left, told) == (0, [])


# ---- A GPU that is not well


@pytest.fixture
def run_on(driver, tmp_path):
    """Runs cells, Python text, on simulated GPUs to the end; returns what happened."""

    def performed(cells, *gpus):
        driver.set(*gpus)
        return on_driver(driver, tmp_path, f"tell_run(stage, [{cells}])")

    return performed


LOST_ONCE = "cell(stage, loses(), says(Status.PASSED))"


def test_cell_of_a_lost_gpu_goes_to_the_idle_lane(run_on):
    told = run_on(LOST_ONCE, H200, OTHER)
    (first, lost), (second, alive) = told["attempts"]["kernel"]
    assert (first, second) == ("gpu_lost", "passed")
    assert lost != alive
    assert list(told["quarantined"]) == [lost]
    assert "the GPU is lost" in told["quarantined"][lost]
    assert (told["counts"], told["left"]) == ({"passed": 1}, 0)
    assert told["events"] == [
        ["cell_started", "kernel", lost],
        ["gpu_quarantined", "kernel", lost],
        ["cell_retried", "kernel", lost],
        ["cell_started", "kernel", alive],
        ["cell_ended", "kernel", alive],
    ]


def test_the_cells_of_a_quarantined_gpu_are_run_by_the_others(run_on):
    cells = [LOST_ONCE, *(f"cell(stage, says(Status.PASSED), name='{name}')" for name in "abcd")]
    told = run_on(", ".join(cells), H200, OTHER)
    (lost,) = told["quarantined"]
    assert (told["counts"], told["left"]) == ({"passed": 5}, 0)
    quarantined = told["events"].index(["gpu_quarantined", "kernel", lost])
    assert all(lane != lost for happening, _, lane in told["events"][quarantined:] if happening == "cell_started")


def test_without_another_gpu_the_rest_is_left_undone(run_on):
    told = run_on(f"{LOST_ONCE}, cell(stage, says(Status.PASSED), name='a')", H200)
    assert [status for status, _ in told["attempts"]["kernel"]] == ["gpu_lost"]
    assert told["attempts"]["a"] == []
    assert (told["counts"], told["left"]) == ({"gpu_lost": 1}, 1)


def test_cells_without_another_lane_are_left_without_waiting(run_on):
    bound = f"uuid='{UUID}'"
    cells = [
        f"cell(stage, loses(), says(Status.PASSED), {bound})",
        f"cell(stage, says(Status.PASSED), name='bound', {bound})",
        f"cell(stage, says(Status.PASSED), name='built', {bound}, builder=[hands_over(b'artefact')])",
        f"cell(stage, says(Status.PASSED), name='free', uuid='{OTHER['uuid']}')",
    ]
    told = run_on(", ".join(cells), H200, OTHER)
    assert list(told["quarantined"]) == [UUID]
    assert (told["counts"], told["left"]) == ({"gpu_lost": 1, "passed": 1}, 2)
    assert told["attempts"]["bound"] == told["attempts"]["built"] == []


def test_cell_that_loses_every_gpu_is_not_retried_forever(run_on):
    told = run_on("cell(stage, loses(), name='killer'), cell(stage, says(Status.PASSED), name='a')", H200, OTHER)
    assert [status for status, _ in told["attempts"]["killer"]] == ["gpu_lost", "gpu_lost"]
    assert len(told["quarantined"]) == 2
    assert told["counts"]["gpu_lost"] == 1


def test_passed_cell_stays_passed_if_its_gpu_fails_afterwards(run_on):
    ill = "probe=answers(passed=False, reason='17 answers are wrong')"
    told = run_on(f"cell(stage, says(Status.PASSED), {ill}), cell(stage, says(Status.PASSED), name='a')", H200)
    assert (told["counts"], told["left"]) == ({"passed": 1}, 1)
    assert told["events"][-2:] == [["gpu_quarantined", "kernel", UUID], ["cell_ended", "kernel", UUID]]


def test_a_cell_is_not_handed_on_more_often_than_it_may_be_tried(run_on):
    told = run_on("cell(stage, loses(), says(Status.PASSED), infra_retries=0)", H200, OTHER)
    assert (told["counts"], told["left"]) == ({"gpu_lost": 1}, 0)


# ---- What starts ahead


MEETS_THE_NEXT = """
def meets_the_next(spec, judges=2):
    until(lambda: stage.launched.count(Role.JUDGE) == judges and stage.alive == 3 * judges)
    return says(Status.PASSED, WELL)(spec)
def meet_theirs(spec):
    return meets_the_next(spec, judges=4)
def meets_two(spec):
    return meets_the_next(spec, judges=3)
def stays(made):
    for name in ("candidate", "eager"):
        stage.plays[name, made.id] = [hangs]
    return made
"""


@pytest.fixture
def run_ahead(driver, tmp_path):
    """As ``run_on``, with one GPU unless more are given; cells are Python text that may name the plays above."""

    def performed(cells, *gpus):
        driver.set(*(gpus or (H200,)))
        program = f"from tests.baddays.living import until\n{MEETS_THE_NEXT}\ntell_run(stage, [{cells}])"
        told = on_driver(driver, tmp_path, program)
        assert (told["alive"], told["scratch"]) == (0, [])
        return told

    return performed


def test_next_cell_of_a_gpu_starts_during_the_present_one(run_ahead):
    cells = [f"stays(cell(stage, {play}, name='{name}'))" for name, play in (("a", "meets_the_next"), ("b", "hello"))]
    told = run_ahead(", ".join(cells).replace("hello", "says(Status.PASSED, WELL)"))
    assert told["counts"] == {"passed": 2}
    assert told["launched"].count("judge") == 2


def test_two_cells_are_started_ahead_and_no_more(run_ahead):
    plays = {"a": "meets_two", **dict.fromkeys("bcd", "says(Status.PASSED, WELL)")}
    told = run_ahead(", ".join(f"stays(cell(stage, {play}, name='{name}'))" for name, play in plays.items()))
    assert told["counts"] == {"passed": 4}
    assert told["launched"].count("judge") == 4


def test_the_next_session_of_a_cell_is_started_before_its_turn(run_ahead):
    plays = "meets_the_next, says(Status.PASSED, WELL), protocol=Protocol(sessions=2)"
    told = run_ahead(f"stays(cell(stage, {plays}))")
    assert told["counts"] == {"passed": 1}
    assert told["launched"].count("judge") == 2


def test_lanes_that_share_cells_start_different_ones_ahead(run_ahead):
    plays = {"a": "meet_theirs", "b": "meet_theirs", "c": "says(Status.PASSED, WELL)", "d": "says(Status.PASSED, WELL)"}
    cells = [f"stays(cell(stage, {play}, name='{name}'))" for name, play in plays.items()]
    told = run_ahead(", ".join(cells), H200, OTHER)
    assert told["counts"] == {"passed": 4}
    assert told["launched"].count("judge") == 4


def test_processes_started_ahead_end_with_a_lost_gpu(run_ahead):
    told = run_ahead("stays(cell(stage, loses(), name='a')), stays(cell(stage, says(Status.PASSED), name='b'))")
    assert told["left"] == 1
    assert told["attempts"]["b"] == []


CALLED_OFF = """
from kernel_matrix.results.store import RecordStore
from kernel_matrix.executors.local import RunPolicy, Run
cells = [stays(cell(stage, hangs, name=name)) for name in ("a", "b", "c", "d")]
session = Run(cells, stage.survey(*gpus()), RecordStore(stage.scratch.parent / "results"), RunPolicy(run_id="run-1"))
with session.running() as events:
    next(events)
    until(lambda: stage.launched.count(Role.JUDGE) == 4 and stage.alive == 12)
print(json.dumps({"alive": stage.alive, "scratch": [path.name for path in stage.scratch.iterdir()]}))
"""


def test_processes_started_ahead_end_with_a_cancelled_run(driver, tmp_path):
    driver.set(H200, OTHER)
    program = f"import json\nfrom tests.baddays.living import until\n{MEETS_THE_NEXT}{CALLED_OFF}"
    assert on_driver(driver, tmp_path, program) == {"alive": 0, "scratch": []}


def test_no_session_starts_ahead_for_a_cell_of_another_lane(run_ahead):
    failed = "lambda spec: ProcessExit(role=spec.role, code=3)"
    cells = [
        "stays(cell(stage, says(Status.PASSED, WELL), name='a'))",
        f"stays(cell(stage, says(Status.PASSED, WELL), name='broken', builder=[{failed}]))",
    ]
    told = run_ahead(", ".join(cells))
    assert told["launched"].count("judge") == 1


def test_nothing_starts_ahead_for_a_rejected_candidate(run_ahead):
    told = run_ahead(
        "stays(cell(stage, says(Status.PASSED, WELL), name='a')),"
        "cell(stage, name='b', reject_findings=('entry',))"  # its source defines no ModelNew
    )
    assert told["counts"] == {"passed": 1, "policy_violation": 1}
    assert told["launched"].count("judge") == 1


def test_nothing_starts_ahead_on_a_cpu(stage, perform):
    seen = []

    def counts(spec):
        seen.append(stage.launched.count(Role.JUDGE))
        return PASSED(spec)

    perform([stage.cell("a", counts), stage.cell("b", counts)])
    assert seen == [1, 2]


# ---- What is only compiled


def built(stage, name, *builder, **changes):
    return stage.cell(name, builder=builder, source=f"{name} = 1\n", **changes)


def compiled(stage, name, *builder):
    axis = GpuAxis(name="sm_90", compute_capability="9.0")
    return built(stage, name, *builder, gpu=axis, compile_only=True)


def test_a_cell_that_is_only_compiled_needs_no_device(stage, store, perform):
    session, told = perform([compiled(stage, "a", hands_over(b"artefact")), stage.cell("b")])
    assert Role.BUILDER in stage.launched
    assert sorted(ended(told)) == ["a", "b"]
    assert (session.left, stage.launched.count(Role.JUDGE)) == (0, 1)


def test_what_is_only_compiled_is_compiled_many_at_once(stage, perform):
    both = threading.Barrier(2, timeout=20)

    def builds(spec):
        both.wait()
        return hands_over(b"artefact")(spec)

    session, _ = perform([compiled(stage, name, builds) for name in "ab"], build_workers=2)
    assert session.left == 0


def test_as_much_is_only_compiled_at_once_as_cores_are_free(stage, perform, monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _process: range(5))
    all_of_them = threading.Barrier(5, timeout=20)

    def builds(spec):
        all_of_them.wait()
        return hands_over(b"artefact")(spec)

    session, _ = perform([compiled(stage, name, builds) for name in "abcde"])
    assert session.left == 0


def test_published_cells_begin_when_nothing_is_left_to_compile(stage, perform):
    seen = []

    def counts(spec):
        seen.append(stage.launched.count(Role.JUDGE))
        return hands_over(b"artefact")(spec)

    published = stage.cell("published", protocol=Protocol(tier=Tier.PUBLISH, sessions=5))
    session, _ = perform([published, *(compiled(stage, name, counts) for name in "abc")], build_workers=1)
    assert session.left == 0
    assert seen == [0, 0, 0]


@pytest.mark.parametrize("make", [built, compiled])
def test_nothing_is_compiled_beside_a_published_cell(stage, perform, make):
    runs, begun, beside = queue.SimpleQueue(), threading.Event(), []

    def builds(spec):
        begun.set()
        return hands_over(b"artefact")(spec)

    def adds_another(spec):
        session = runs.get(timeout=20)
        session.add([make(stage, "late", builds)])
        session.end()
        beside.append(begun.wait(0.5))
        return PASSED(spec)

    published = stage.cell("published", adds_another, protocol=Protocol(tier=Tier.PUBLISH))
    session, _ = perform([published], while_running=lambda session, _: runs.put(session), is_open=True)
    assert (beside, session.left) == ([False], 0)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="this machine has one core")
def test_what_is_only_compiled_leaves_cores_to_sessions(stage, perform, monkeypatch):
    monkeypatch.setattr("kernel_matrix.executors.local.run.reserved_cores", lambda _devices: 1)
    mine, seen = sorted(os.sched_getaffinity(0)), []

    def looks(spec):
        seen.append((spec.gives_way, sorted(os.sched_getaffinity(0))))
        return hands_over(b"artefact")(spec)

    perform([compiled(stage, "a", looks)])
    assert seen == [(True, mine[1:])]


def test_compiling_that_the_machine_failed_is_tried_again(stage, store, perform):
    cell = compiled(stage, "a", vanishes, hands_over(b"artefact"))
    perform([cell])
    first, second = store.attempts()[cell.id]
    assert first.fault is Fault.INFRA
    assert second.fault is not Fault.INFRA


def test_a_stop_calls_compiling_off(stage, store, perform):
    session, _ = perform([compiled(stage, "a", hangs)], while_running=lambda session, _: session.stop())
    assert (session.left, store.attempts()) == (1, {})


# ---- Which cells still have to run


def test_the_longest_come_first(stage, store):
    cells = [stage.cell(name, expected_s=s) for name, s in (("a", 1.0), ("b", 5.0), ("c", 3.0))]
    chosen = cells_to_run(cells, store, stage.survey(), Rerun.NONE)
    assert [cell.candidate.id for cell in chosen] == ["p/b", "p/c", "p/a"]


def test_cells_that_can_share_a_judge_stay_together(stage, store):
    times = {"a": 1.0, "b": 5.0, "c": 3.0, "d": 4.0}
    cells = [stage.cell(name, expected_s=s) for name, s in times.items()]
    cells[0], cells[2] = (replace(cell, dtype=Dtype.FP16) for cell in (cells[0], cells[2]))
    chosen = cells_to_run(cells, store, stage.survey(), Rerun.NONE)
    assert [cell.candidate.id for cell in chosen] == ["p/b", "p/d", "p/c", "p/a"]


@pytest.mark.parametrize(
    ("rerun", "chosen"),
    [
        (Rerun.NONE, {"new", "lost"}),
        (Rerun.FAILED, {"new", "lost", "wrong"}),
        (Rerun.STALE, {"new", "lost"}),
        (Rerun.ALL, {"new", "lost", "wrong", "passed"}),
    ],
)
def test_which_recorded_cells_run_again(rerun, chosen, stage, store, perform):
    plays = {"passed": PASSED, "wrong": WRONG, "lost": vanishes}
    cells = [stage.cell(name, play, policy=Policy(infra_retries=0)) for name, play in plays.items()]
    perform(cells)
    found = cells_to_run([*cells, stage.cell("new")], store, stage.survey(), rerun)
    assert {cell.candidate.id.removeprefix("p/") for cell in found} == chosen


def test_first_timing_mismatch_runs_again(stage, store, perform):
    cell = stage.cell("liar", ACCUSED)
    perform([cell])
    assert cells_to_run([cell], store, stage.survey(), Rerun.NONE) == []
    (store.records / f"{cell.id}.2.json").unlink()
    for rerun in Rerun:
        assert cells_to_run([cell], RecordStore(store.root), stage.survey(), rerun) == [cell]


@pytest.mark.parametrize(
    "change",
    [
        {"engine": "docker"},
        {"measurement_version": "0" * 64},
        {"image": factory.HOST.image},
        {"device": {**factory.HOST.device, "driver": "1.2.3"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_record_of_another_sandbox_or_driver_is_stale(change, stage, store, perform):
    cell = stage.cell("good")
    perform([cell])
    assert cells_to_run([cell], store, stage.survey(), Rerun.STALE) == []
    record = store.load(next(store.records.iterdir()))
    other = RecordStore(store.root / "other")
    other.save(replace(record, host=replace(record.host, **change)))
    assert cells_to_run([cell], other, stage.survey(), Rerun.STALE) == [cell]
    assert cells_to_run([cell], other, stage.survey(), Rerun.NONE) == []


def test_a_changed_source_is_another_cell(stage, store, perform):
    perform([stage.cell("good")])
    changed = stage.cell("good", source="x = 2\n")
    assert cells_to_run([changed], store, stage.survey(), Rerun.NONE) == [changed]
