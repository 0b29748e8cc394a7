"""A sandbox that stops answering in the middle of a run, and comes back, or does not."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

from kernel_matrix.errors import SandboxError
from kernel_matrix.executors.local import EventKind, Run, RunPolicy, sandbox_outage
from kernel_matrix.model.enums import Status
from kernel_matrix.results.store import RecordStore
from kernel_matrix.sandboxes import SandboxStatus
from tests.attempt.stage import FIRST, SECOND, hands_over, says, vanishes

PASSED = says(Status.PASSED)


@pytest.fixture
def store(tmp_path):
    return RecordStore(tmp_path / "results")


@pytest.fixture
def away(stage, monkeypatch):
    """While this is set, the sandbox neither starts anything nor says that it is available."""
    flag = threading.Event()
    launch = stage.launch

    @contextmanager
    def launch_if_there(spec):
        if flag.is_set():
            raise SandboxError("no daemon answers")
        with launch(spec) as running:
            yield running

    def status():
        return SandboxStatus(name=stage.name, available=not flag.is_set(), reason="no daemon answers")

    monkeypatch.setattr(stage, "launch", launch_if_there)
    monkeypatch.setattr(stage, "status", status)
    monkeypatch.setattr(sandbox_outage, "_POLL_S", 0.01)
    return flag


@pytest.fixture
def run_until_back(stage, store, away):
    """Runs cells; the sandbox comes back when the run says that it is lost. Returns what was told of the sandbox."""

    def ran(cells, *gpus):
        told = []
        with Run(cells, stage.survey(*gpus), store, RunPolicy(run_id="run-1")).running() as events:
            for event in events:
                if event.happening in (EventKind.SANDBOX_LOST, EventKind.SANDBOX_BACK):
                    told.append(event.happening)
                if event.happening is EventKind.SANDBOX_LOST:
                    assert "no daemon answers; waiting" in event.text
                    away.clear()
        assert stage.alive == 0
        return told

    return ran


def attempts(store, cell):
    return [(attempt.attempt, attempt.status) for attempt in store.attempts().get(cell.id, ())]


def goes_with(away):
    """A judge that is lost with the sandbox."""

    def play(spec):
        away.set()
        return vanishes(spec)

    return play


def test_outage_costs_the_cell_that_ran_one_attempt(stage, store, away, run_until_back):
    cells = [stage.cell("lost", goes_with(away), PASSED), stage.cell("next"), stage.cell("last")]
    assert run_until_back(cells) == [EventKind.SANDBOX_LOST, EventKind.SANDBOX_BACK]
    assert attempts(store, cells[0]) == [(1, Status.CONTAINER_LOST), (2, Status.PASSED)]
    assert [attempts(store, cell) for cell in cells[1:]] == [[(1, Status.PASSED)]] * 2


@pytest.mark.parametrize("gpus", [(FIRST,), (FIRST, SECOND)], ids=["one_lane", "two_lanes"])
def test_outage_before_a_cell_starts_leaves_no_record(gpus, stage, store, away, run_until_back):
    away.set()
    cells = [stage.cell(name) for name in ("a", "b", "c")]
    assert run_until_back(cells, *gpus) == [EventKind.SANDBOX_LOST, EventKind.SANDBOX_BACK]
    assert [attempts(store, cell) for cell in cells] == [[(1, Status.PASSED)]] * 3


def test_outage_during_builds_has_them_built_again(stage, store, away, run_until_back):
    away.set()
    names = ("a", "b", "c")
    cells = [stage.cell(name, builder=[hands_over(b"code")], source=f"{name} = 1\n") for name in names]
    assert run_until_back(cells) == [EventKind.SANDBOX_LOST, EventKind.SANDBOX_BACK]
    assert [attempts(store, cell) for cell in cells] == [[(1, Status.PASSED)]] * 3


def test_outage_covers_a_step_begun_before_it_is_over(stage, away):
    """The step began after the last check that failed, and failed before the sandbox was back."""
    began = []

    def tell(event):
        if event.happening is EventKind.SANDBOX_LOST:
            began.append(time.monotonic())
            away.clear()

    outage = sandbox_outage.SandboxOutage(sandbox=stage, limit_s=10, tell=tell, cancelled=lambda: False)
    cell, started = stage.cell("a"), time.monotonic()
    away.set()
    assert outage.wait_until_back(cell, started)
    assert outage.wait_until_back(cell, began[0])
    assert not outage.wait_until_back(cell, time.monotonic())


def test_outage_of_cells_only_compiled_leaves_no_record(stage, store, away, run_until_back):
    away.set()
    cell = stage.cell("a", builder=[hands_over(b"code")], compile_only=True)
    assert run_until_back([cell]) == [EventKind.SANDBOX_LOST, EventKind.SANDBOX_BACK]
    ((number, status),) = attempts(store, cell)
    assert (number, status) != (1, Status.INFRA_ERROR)


def test_outage_without_end_stops_the_run_with_one_error(stage, store, away):
    cells = [stage.cell("lost", goes_with(away)), stage.cell("next")]
    session = Run(cells, stage.survey(FIRST, SECOND), store, RunPolicy(run_id="run-1", sandbox_wait_s=0.05))
    with (
        pytest.raises(SandboxError, match="has not answered for 0 s: no daemon answers") as caught,
        session.running() as events,
    ):
        list(events)
    assert caught.value.exit_code == 4
    assert "run again" in caught.value.next_step
    assert {status for cell in cells for _, status in attempts(store, cell)} <= {Status.CONTAINER_LOST, Status.PASSED}
    assert stage.alive == 0


def test_outage_ends_waiting_when_the_run_is_stopped(stage, store, away):
    away.set()
    cell = stage.cell("a")
    session = Run([cell], stage.survey(), store, RunPolicy(run_id="run-1"))
    with session.running() as events:
        for event in events:
            if event.happening is EventKind.SANDBOX_LOST:
                session.stop()
    assert attempts(store, cell) == []
    assert session.left == 1
