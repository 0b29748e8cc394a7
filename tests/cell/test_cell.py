"""One attempt at one cell, on an engine that plays."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from runner.cell import Assignment, Bench, CellCancelledError, run_cell
from runner.cell.sessions import session_seed
from runner.core.vocab import Fault, Role, Stage, Status
from runner.engines import Exit
from runner.lease import Terms, hold
from runner.matrix import Policy, Protocol
from runner.owner import owner_token
from runner.results.reading import check_consistency
from runner.results.record import record_to_json
from runner.results.store import Store
from tests.cell.stage import FIRST, cannot_start, hangs, says

PASSES = says(Status.PASSED)


@pytest.fixture
def attempt(stage):
    """Runs a cell once."""

    def attempted(cell, **changes):
        bench = Bench(
            run_id="run-1", engine=stage, engine_status=stage.status(), owner=owner_token(), scratch=stage.scratch
        )
        return run_cell(Assignment(cell=cell, gpu=FIRST), replace(bench, **changes)).record

    yield attempted
    assert stage.alive == 0
    assert list(stage.scratch.iterdir()) == []


def test_the_record_has_both_halves(stage, attempt, tmp_path):
    record = attempt(stage.cell("good"))
    assert (record.outcome.status, record.attempt) == (Status.PASSED, 1)
    assert [report.status for report in record.sessions] == [Status.PASSED]
    assert [(seen.role, seen.code) for seen in record.host.exits] == [(Role.JUDGE, 0), (Role.CANDIDATE, 0)]
    assert record.host.device["uuid"] == FIRST.uuid
    assert record.host.isolation.keys() == {"judge", "candidate"}
    assert record.host.phases_s.keys() == {
        *("lease_wait", "start", "inside", "teardown", "aftermath", "overhead", "total")
    }
    check_consistency(record_to_json(record))
    Store(tmp_path).save(record)


def test_sessions_end_with_the_first_that_does_not_pass(stage, attempt):
    cell = stage.cell("moody", PASSES, says(Status.INCORRECT_VALUES), protocol=Protocol(sessions=5))
    record = attempt(cell)
    assert record.outcome.status is Status.INCORRECT_VALUES
    assert [report.session for report in record.sessions] == [0, 1]
    assert [seen.session for seen in record.host.exits] == [0, 0, 1, 1]


def test_a_later_session_that_does_not_load_is_no_load_error(stage, attempt):
    cell = stage.cell("fickle", PASSES, says(Status.LOAD_ERROR), protocol=Protocol(sessions=5))
    record = attempt(cell)
    assert record.outcome.status is Status.RUNTIME_ERROR  # it did load, and was timed
    assert [session.status for session in record.sessions] == [Status.PASSED, Status.LOAD_ERROR]


def test_all_sessions_pass_with_secrets_of_their_own(stage, attempt):
    secrets = []

    def notes_the_secret(spec):
        folder = next(mount.source for mount in spec.mounts if mount.target == "/judge")
        secrets.append(json.loads((folder / "job.json").read_text())["seed"])
        return PASSES(spec)

    record = attempt(stage.cell("good", notes_the_secret, protocol=Protocol(sessions=3)))
    assert len(record.sessions) == 3
    assert len(set(secrets)) == 3
    assert all(len(secret) == 32 for secret in secrets)


def test_a_fixed_seed_repeats_and_still_differs_between_sessions(stage):
    cell = stage.cell("good", protocol=Protocol(seed=7))
    assert session_seed(cell, 0) == session_seed(cell, 0) != session_seed(cell, 1)
    assert len(session_seed(cell, 0)) == 32


def test_the_candidate_sees_neither_the_judges_folder_nor_its_report(stage, attempt):
    seen = {}

    def notes_mounts(spec):
        seen[spec.role] = {mount.target: mount.writable for mount in spec.mounts}
        return PASSES(spec) if spec.role is Role.JUDGE else Exit(role=spec.role, code=0)

    cell = stage.cell("good", notes_mounts)
    stage.plays[Role.CANDIDATE, cell.id] = [notes_mounts]
    attempt(cell)
    assert seen[Role.CANDIDATE] == {"/candidate": False, "/channel": False, "/artifact": False}
    assert seen[Role.JUDGE] == {"/judge": False, "/channel": True, "/out": True}


def test_a_device_that_stays_busy_is_said(stage, attempt):
    cell = stage.cell("good", policy=Policy(gpu_wait_s=0.05))
    with hold(FIRST, Terms(wait_s=1)):
        record = attempt(cell)
    assert (record.outcome.status, record.outcome.stage) == (Status.GPU_BUSY, Stage.LEASE)
    assert record.outcome.fault is Fault.INFRA
    assert stage.launched == []


def test_a_wait_for_the_device_is_called_off(stage, attempt):
    with hold(FIRST, Terms(wait_s=1)), pytest.raises(CellCancelledError):
        attempt(stage.cell("good"), cancelled=lambda: True)


def test_a_cell_that_is_called_off_leaves_no_record(stage, attempt):
    with pytest.raises(CellCancelledError):
        attempt(stage.cell("good", hangs), cancelled=lambda: Role.JUDGE in stage.launched)


def test_an_engine_that_cannot_start_it_is_told(stage, attempt):
    record = attempt(stage.cell("good", cannot_start))
    assert (record.outcome.status, record.outcome.stage) == (Status.INFRA_ERROR, Stage.START)
    assert "cannot be started" in record.outcome.evidence.message


def test_a_full_disk_is_the_machines_fault(stage, attempt, monkeypatch):
    def full(*_paths):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("shutil.copyfile", full)
    record = attempt(stage.cell("good"))
    assert (record.outcome.status, record.outcome.fault) == (Status.INFRA_ERROR, Fault.INFRA)
    assert "No space left" in record.outcome.evidence.message
