"""``run`` from Python: results, progress, and an interrupt."""

from __future__ import annotations

import json
import os
import signal
from datetime import datetime, timedelta, timezone

import pytest

import kernel_matrix
from kernel_matrix import EventKind, RunEvent, RunMessage, RunResult, RunStarted
from kernel_matrix.errors import NothingSelectedError, UsageError
from kernel_matrix.model.enums import Status
from kernel_matrix.sandboxes import process

pytestmark = [pytest.mark.torch, pytest.mark.usefixtures("forked_roles")]


@pytest.fixture
def field(field, monkeypatch):
    """A small matrix in the current folder, with locks and temporary folders of its own."""
    field.write_matrix("tiny/honest", "tiny/wrong")
    monkeypatch.chdir(field.root)
    monkeypatch.setenv("KERNEL_MATRIX_LOCK_DIR", str(field.lock_dir))
    monkeypatch.setattr("tempfile.tempdir", str(field.scratch))
    return field


def planned(*filters, **options):
    return kernel_matrix.make_plan("matrix.toml", sandbox="process", filters=filters, **options)


@pytest.mark.torch
def test_run_returns_counts_and_prints_nothing(field, capfd):
    told = []
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    result = kernel_matrix.run(planned(), "results", listener=told.append)
    assert result.counts == {Status.PASSED: 1, Status.INCORRECT_VALUES: 1}
    assert (result.exit_code, result.candidate_failed, result.left) == (0, True, 0)
    assert tuple(capfd.readouterr()) == ("", "")
    assert handlers == [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    events = [one for one in told if isinstance(one, RunEvent)]
    assert sum(event.happening is EventKind.CELL_ENDED for event in events) == 2
    # Messages may be about control groups that other tests have just left.
    assert [type(one) for one in told if not isinstance(one, (RunEvent, RunMessage))] == [RunStarted, RunResult]
    assert told[-1] is result
    assert sorted(result.results().latest()["status"]) == ["incorrect_values", "passed"]
    again = kernel_matrix.run(planned(), "results")
    assert (again.planned, again.left) == (0, 0)
    assert [run["argv"] for run in field.runs()] == [[], []]


@pytest.mark.torch
def test_change_of_the_sandbox_is_told(field):
    def messages():
        told = []
        kernel_matrix.run(planned("candidate=tiny/wrong"), "results", listener=told.append)
        return [one.text for one in told if isinstance(one, RunMessage) and "the last run" in one.text]

    assert messages() == messages() == []
    latest = max((field.store / "runs").iterdir(), key=lambda path: json.loads(path.read_text())["started_at"])
    latest.write_text(latest.read_text().replace('"engine":"process"', '"engine":"docker"'))
    (told,) = messages()
    assert "used sandbox docker; compare times of one sandbox only: --sandbox docker stays with it" in told
    assert messages() == []


@pytest.mark.torch
def test_cells_end_alike_without_namespaces(field, monkeypatch):
    levels = process._candidate_levels
    monkeypatch.setattr(process, "_candidate_levels", lambda: levels()[-1:])
    result = kernel_matrix.run(planned(), "results")
    assert result.counts == {Status.PASSED: 1, Status.INCORRECT_VALUES: 1}
    assert {one["processes"] for record in field.records() for one in record["host"]["isolation"].values()} == {
        "shared"
    }


@pytest.mark.torch
def test_interrupt_cleans_up_and_leaves_complete_records(field):
    def interrupt(told):
        if isinstance(told, RunEvent) and told.happening is EventKind.CELL_ENDED:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        kernel_matrix.run(planned(), "results", listener=interrupt)
    (run,) = field.runs()
    assert (run["interrupted"], run["ended_at"] is not None) == (True, True)
    assert kernel_matrix.Results(field.store).rejected == 0
    assert len(list((field.store / "records").iterdir())) == len(field.records()) == 1
    assert list(field.scratch.glob("*")) == []
    assert kernel_matrix.run(planned(), "results").left == 0


@pytest.mark.torch
def test_past_deadline_leaves_all_cells(field):
    result = kernel_matrix.run(planned(), "results", deadline=datetime.now(timezone.utc) - timedelta(minutes=1))
    assert (result.planned, result.left) == (2, 2)


def test_plan_frame_has_a_row_per_cell(field):
    plan = planned("candidate=tiny/honest")
    assert plan.frame()["candidate"].to_list() == ["tiny/honest"]
    assert plan.totals.all.cells == len(plan.runnable) + len(plan.skipped) == 1


def test_run_of_nothing_says_so(field):
    with pytest.raises(NothingSelectedError, match="no cell is selected"):
        kernel_matrix.run(planned("candidate=nothing"), "results")


def test_wrong_rerun_is_a_usage_error(field):
    with pytest.raises(UsageError, match="allowed: none, failed, stale, all"):
        kernel_matrix.run(planned(), "results", rerun="some")
