"""Reading what a judge left, which may be anything where little is isolated; and the pair around it."""

from __future__ import annotations

import json
import os
import threading

import pytest

from runner.cell.pair import Pair, read_report, run_pair
from runner.core.messages import dumps, to_json
from runner.core.vocab import Role, Status
from runner.engines import Exit, Labels, Mount, RoleSpec
from runner.errors import EngineError
from runner.results.reading import MAX_BYTES
from tests.baddays.living import until
from tests.cell.stage import cannot_start, hangs, says, vanishes
from tests.results import factory

PASSES = says(Status.PASSED)
LABELS = Labels(run_id="run-1", cell_id=factory.CELL, session=0, gpu_uuid="cpu", owner="1:1:x")


@pytest.fixture
def path(tmp_path):
    return tmp_path / "report.json"


def test_an_honest_report_is_read(path):
    path.write_text(dumps(factory.session()))
    assert read_report(path, LABELS) == (factory.session(), "")


def _changed(**changes):
    return json.dumps({**to_json(factory.session()), **changes})


REFUSED = {
    "nothing": (lambda path: None, "No such file"),
    "a link": (lambda path: path.symlink_to("/etc/passwd"), "symbolic link"),
    "a pipe that nobody writes": (os.mkfifo, "not a regular file"),
    "a folder": (lambda path: path.mkdir(), "not a regular file"),
    "an endless file": (lambda path: path.touch() or os.truncate(path, MAX_BYTES + 1), "at most"),
    "half a file": (lambda path: path.write_text(dumps(factory.session())[:100]), "report"),
    "nothing in it": (lambda path: path.touch(), "report"),
    "not text": (lambda path: path.write_bytes(b"\xff\xfe"), "report"),
    "not an object": (lambda path: path.write_text("[]"), "not an object"),
    "a number that is none": (lambda path: path.write_text(_changed(labels=float("nan"))), "report"),
    "nested without end": (lambda path: path.write_text("[" * 100_000), "report"),
    "a word nobody knows": (lambda path: path.write_text(_changed(status="excellent")), "malformed"),
    "a key nobody knows": (lambda path: path.write_text(_changed(grade="A")), "malformed"),
    "evidence of another kind": (lambda path: path.write_text(_changed(evidence=[])), "malformed"),
    "text for seconds": (lambda path: path.write_text(_changed(durations_s={"total": "1"})), "malformed"),
    "passed without a workload": (lambda path: path.write_text(_changed(workloads=[])), "malformed"),
    "what no record can hold": (lambda path: path.write_text(_changed(seed_sha256="secret")), "malformed"),
    "another cell's": (lambda path: path.write_text(_changed(cell_id="f" * 32)), "another cell"),
    "another session's": (lambda path: path.write_text(_changed(session=1)), "another cell"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_anything_else_is_refused_with_the_reason(what, path):
    make, words = REFUSED[what]
    make(path)
    report, trouble = read_report(path, LABELS)
    assert report is None
    assert words in trouble


# ---- Two processes


@pytest.fixture
def play(stage, tmp_path):
    """Runs one pair of plays."""
    out = tmp_path / "out"
    out.mkdir()

    def played(judge=PASSES, candidate=None, *, deadline_s=20.0, called_off=lambda: False, admit=lambda running: None):
        cell = stage.cell("a", judge)
        if candidate is not None:
            stage.plays[Role.CANDIDATE, cell.id] = [candidate]
        specs = {
            role: RoleSpec(
                role=role,
                labels=Labels(run_id="r", cell_id=cell.id, session=0, gpu_uuid="cpu", owner="o"),
                image=None,
                module="m",
                mounts=(Mount(source=out, target="/out", writable=True),),
            )
            for role in (Role.JUDGE, Role.CANDIDATE)
        }
        return run_pair(
            Pair(
                engine=stage,
                judge=specs[Role.JUDGE],
                candidate=specs[Role.CANDIDATE],
                report=out / "report.json",
                deadline_s=deadline_s,
                called_off=called_off,
                admit=admit,
            )
        )

    yield played
    assert stage.alive == 0


def test_both_ends_are_told(play):
    result = play()
    assert result.report.status is Status.PASSED
    assert [(e.role, e.code) for e in result.exits] == [(Role.JUDGE, 0), (Role.CANDIDATE, 0)]


def test_a_candidate_that_stays_behind_its_judge_is_killed(play):
    result = play(candidate=hangs)
    assert result.report is not None
    assert [(e.role, e.killed) for e in result.exits] == [(Role.JUDGE, False), (Role.CANDIDATE, True)]


def test_a_judge_past_its_deadline_is_killed(play):
    result = play(hangs, hangs, deadline_s=0.1)
    assert result.report is None
    assert [e.killed for e in result.exits] == [True, True]


def test_a_judge_does_not_outlive_its_candidate_for_long(play, monkeypatch):
    monkeypatch.setattr("runner.cell.pair._ORPHANED_JUDGE_S", 0.1)
    result = play(hangs)
    assert [(e.role, e.killed) for e in result.exits] == [(Role.JUDGE, True), (Role.CANDIDATE, False)]


def test_of_a_lost_candidate_no_judge_is_asked(play, monkeypatch):
    monkeypatch.setattr("runner.cell.pair._ORPHANED_JUDGE_S", 1e6)
    result = play(hangs, vanishes, deadline_s=1e6)
    assert [(e.role, e.killed, e.lost) for e in result.exits] == [
        (Role.JUDGE, True, False),
        (Role.CANDIDATE, False, True),
    ]


def test_a_judge_that_notices_its_candidate_gone_still_reports(play):
    left = threading.Event()

    def goes(spec):
        left.set()
        return Exit(role=spec.role, code=0)

    def reports_late(spec):
        assert left.wait(20)
        return says(Status.CRASHED)(spec)

    assert play(reports_late, goes).report.status is Status.CRASHED


def test_a_report_is_read_even_of_a_judge_that_is_lost_after_it(play):
    def lost_at_the_end(spec):
        says(Status.PASSED)(spec)
        return vanishes(spec)

    assert play(lost_at_the_end).report.status is Status.PASSED


def test_a_call_off_kills_both_and_reads_nothing(play):
    result = play(hangs, hangs, called_off=lambda: True)
    assert result.called_off
    assert result.report is None
    assert all(e.killed for e in result.exits)


@pytest.mark.parametrize("role", [Role.JUDGE, Role.CANDIDATE])
def test_when_one_cannot_start_the_other_goes_too(role, play):
    with pytest.raises(EngineError, match=role.value):
        play(cannot_start if role is Role.JUDGE else hangs, cannot_start if role is Role.CANDIDATE else hangs)


def test_each_process_is_admitted_before_anybody_waits_for_the_judge(play):
    admitted = []

    def both_are_known(spec):
        until(lambda: len(admitted) == 2)
        return PASSES(spec)

    assert play(both_are_known, admit=admitted.append).report.status is Status.PASSED


@pytest.mark.parametrize("nth", [0, 1])
def test_one_that_cannot_be_admitted_is_taken_away_with_the_other(play, nth):
    turns = iter(range(2))

    def refuses(running):
        if next(turns) == nth:
            raise ProcessLookupError("gone already")

    with pytest.raises(ProcessLookupError):
        play(hangs, hangs, admit=refuses)
