"""Cells that several boards have to measure."""

from __future__ import annotations

import pytest

from kernel_matrix.executors.local import EventKind, Rerun, Run, RunPolicy, cells_left, units_left
from kernel_matrix.executors.unit_passes import UnitPasses
from kernel_matrix.matrix import GpuAxis
from kernel_matrix.model.enums import Status
from kernel_matrix.results.store import RecordStore
from tests.attempt.stage import FIRST, SECOND, says, vanishes

BOTH = GpuAxis(name="cpu", platform="cpu", units=2)
PASSED = says(Status.PASSED)


@pytest.fixture
def store(tmp_path):
    return RecordStore(tmp_path / "results")


@pytest.fixture
def perform(stage, store):
    """Runs what is left of cells on devices; returns the run and what it told as (candidate's name, device)."""

    def performed(cells, *gpus, rerun=Rerun.NONE, **orders):
        survey, attempts = stage.survey(*gpus), store.attempts() if rerun is not Rerun.ALL else {}
        units = {cell.id: units_left(cell, attempts.get(cell.id, ()), survey, rerun) for cell in cells}
        left = cells_left(cells, attempts, survey, rerun)
        policy = RunPolicy(run_id=f"run-{len(attempts)}", **orders)
        run = UnitPasses(Run, left, units, survey=survey, store=store, policy=policy)
        with run.running() as events:
            told = [
                (event.cell.candidate.id.removeprefix("p/"), event.lane)
                for event in events
                if event.happening is EventKind.CELL_ENDED
            ]
        assert stage.alive == 0
        return run, told

    return performed


def test_each_board_measures_each_cell_once(stage, store, perform):
    cells = [stage.cell(name, PASSED, PASSED, gpu=BOTH) for name in "abc"]
    run, told = perform(cells, FIRST, SECOND)
    assert sorted(told) == sorted((name, gpu.uuid) for name in "abc" for gpu in (FIRST, SECOND))
    assert (run.planned, run.left, run.counts) == (6, 0, {Status.PASSED: 6})
    assert [attempt.attempt for attempt in store.attempts()[cells[0].id]] == [1, 2]


def test_boards_that_are_not_here_are_left_for_others(stage, store, perform):
    cell = stage.cell("a", PASSED, PASSED, gpu=BOTH)
    perform([cell], FIRST)
    left = units_left(cell, store.attempts()[cell.id], stage.survey(FIRST), Rerun.NONE)
    assert (left.count, left.absent, left.measured_on) == (0, 1, {FIRST.uuid})
    _, told = perform([cell], FIRST, SECOND)
    assert told == [("a", SECOND.uuid)]
    assert cells_left([cell], store.attempts(), stage.survey(FIRST, SECOND), Rerun.NONE) == []


def test_all_boards_measure_again_if_asked(stage, perform):
    cell = stage.cell("a", PASSED, gpu=BOTH)
    perform([cell], FIRST, SECOND)
    _, told = perform([cell], FIRST, SECOND, rerun=Rerun.ALL)
    assert sorted(told) == sorted(("a", gpu.uuid) for gpu in (FIRST, SECOND))


def test_board_that_failed_measures_again(stage, store, perform):
    cell = stage.cell("a", vanishes, PASSED, gpu=BOTH)
    perform([cell], FIRST, SECOND)
    first = store.attempts()[cell.id][0]
    left = units_left(cell, [first], stage.survey(FIRST, SECOND), Rerun.NONE)
    assert (left.count, left.measured_on) == (2, frozenset())


def test_failure_ends_the_run_before_the_next_board(stage, perform):
    cell = stage.cell("a", says(Status.INCORRECT_VALUES), gpu=BOTH)
    run, told = perform([cell], FIRST, SECOND, fail_fast=True)
    assert (len(told), run.left) == (1, 1)
