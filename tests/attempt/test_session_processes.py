"""The processes of one session, on a sandbox without processes."""

from __future__ import annotations

import threading
from contextlib import contextmanager

import pytest

from kernel_matrix.attempt.session_processes import SessionProcesses, launched
from kernel_matrix.errors import SandboxError
from kernel_matrix.model.enums import Role, Status
from kernel_matrix.sandboxes import Mount, ProcessExit, ProcessLabels, RoleSpec
from tests.attempt.stage import cannot_start, hangs, keeps, says, vanishes
from tests.baddays.living import until

PASSES = says(Status.PASSED)
CONTESTANTS = {"candidate": Role.CANDIDATE, "eager": Role.BASELINE, "compile": Role.RIVAL, "library": Role.RIVAL}


@pytest.fixture
def lineup(stage, tmp_path):
    """Makes a session of scripts: the judge's, and those of contestants by name."""
    out = tmp_path / "out"
    out.mkdir()

    def made(judge=PASSES, **contestants):
        cell = stage.cell("a", judge)

        def spec(role, name=""):
            return RoleSpec(
                role=role,
                labels=ProcessLabels(run_id="r", cell_id=cell.id, session=0, gpu_uuid="cpu", owner="o"),
                image=None,
                module="m",
                mounts=(Mount(source=out, target="/out", writable=True),),
                contestant=name,
            )

        for name, play in contestants.items():
            stage.plays[name, cell.id] = [play]
        specs = [spec(Role.JUDGE), *(spec(role, name) for name, role in CONTESTANTS.items())]

        @contextmanager
        def started():
            with launched(stage, specs) as launches:
                yield SessionProcesses(
                    *(launches[0], launches[1], launches[2:]),
                    labels=specs[0].labels,
                    report=out / "report.json",
                    is_kept=(out / "waiting").exists,
                )

        return started

    yield made
    assert stage.alive == 0


def run(lineup, *, deadline_s=20.0, called_off=lambda: False, admit=lambda running: None):
    with lineup() as processes:
        processes.admit(admit)
        return processes.finish(deadline_s, called_off)


def test_all_ends_are_told_the_judges_first(lineup):
    result = run(lineup())
    assert result.report.status is Status.PASSED
    roles = [Role.JUDGE, Role.CANDIDATE, Role.BASELINE, Role.RIVAL, Role.RIVAL]
    assert [(e.role, e.code) for e in result.exits] == [(role, 0) for role in roles]


def test_nobody_is_left_before_the_context_is(lineup, stage):
    with lineup()() as processes:
        processes.finish(20, lambda: False)
        assert stage.alive == 0


def test_processes_of_a_judge_that_is_kept_run_on(lineup, stage):
    made = lineup(keeps(Status.PASSED), **dict.fromkeys(CONTESTANTS, hangs))
    with made() as processes:
        result = processes.finish(20, lambda: False)
        assert processes.are_kept
        assert [(e.role, e.killed) for e in result.exits] == [(Role.CANDIDATE, True)]
        assert stage.alive == 4
    assert result.report.status is Status.PASSED


def test_who_stays_behind_the_judge_is_killed(lineup):
    result = run(lineup(candidate=hangs, compile=hangs))
    assert result.report is not None
    assert [e.killed for e in result.exits] == [False, True, False, True, False]


def test_a_judge_past_its_deadline_is_killed(lineup):
    result = run(lineup(hangs, candidate=hangs, eager=hangs), deadline_s=0.1)
    assert result.report is None
    assert [e.killed for e in result.exits] == [True, True, True, False, False]


@pytest.mark.parametrize("leaves", ["candidate", "eager"])
def test_a_judge_does_not_outlive_whom_it_needs_for_long(leaves, lineup, monkeypatch):
    monkeypatch.setattr("kernel_matrix.attempt.session_processes._ORPHANED_JUDGE_S", 0.1)
    stays = {name: hangs for name in CONTESTANTS if name != leaves}
    result = run(lineup(hangs, **stays))
    assert [e.role for e in result.exits if not e.killed] == [CONTESTANTS[leaves]]


@pytest.mark.parametrize("how", [vanishes, lambda spec: ProcessExit(role=spec.role, code=1)])
def test_a_session_goes_on_without_its_rivals(how, lineup, stage, monkeypatch):
    monkeypatch.setattr("kernel_matrix.attempt.session_processes._ORPHANED_JUDGE_S", 0.0)
    looks_since = []

    def looks():
        if stage.ended_roles() >= {Role.RIVAL}:
            looks_since.append(1)
        return False

    def passes_without_it(spec):
        until(lambda: len(looks_since) >= 3)
        return PASSES(spec)

    made = lineup(passes_without_it, candidate=hangs, eager=hangs, library=how)
    assert run(made, called_off=looks).report is not None


@pytest.mark.parametrize("lost", ["candidate", "eager"])
def test_when_one_is_lost_no_judge_is_asked(lost, lineup, monkeypatch):
    monkeypatch.setattr("kernel_matrix.attempt.session_processes._ORPHANED_JUDGE_S", 1e6)
    others = {name: hangs for name in CONTESTANTS if name != lost}
    result = run(lineup(hangs, **{lost: vanishes}, **others), deadline_s=1e6)
    assert result.exits[0].killed
    assert [e.role for e in result.exits if e.lost] == [CONTESTANTS[lost]]


def test_a_judge_that_notices_its_candidate_gone_still_reports(lineup):
    left = threading.Event()

    def goes(spec):
        left.set()
        return ProcessExit(role=spec.role, code=0)

    def reports_late(spec):
        assert left.wait(20)
        return says(Status.CRASHED)(spec)

    assert run(lineup(reports_late, candidate=goes)).report.status is Status.CRASHED


def test_a_report_is_read_even_of_a_judge_that_is_lost_after_it(lineup):
    def lost_at_the_end(spec):
        says(Status.PASSED)(spec)
        return vanishes(spec)

    assert run(lineup(lost_at_the_end)).report.status is Status.PASSED


def test_a_call_off_kills_everybody_and_reads_nothing(lineup):
    result = run(lineup(hangs, **dict.fromkeys(CONTESTANTS, hangs)), called_off=lambda: True)
    assert result.called_off
    assert result.report is None
    assert all(e.killed for e in result.exits)


@pytest.mark.parametrize("title", ["judge", *CONTESTANTS])
def test_when_one_cannot_start_the_others_go_too(title, lineup):
    plays = {name: cannot_start if name == title else hangs for name in ("judge", *CONTESTANTS)}
    with pytest.raises(SandboxError, match=f"{title} cannot be started"):
        run(lineup(plays.pop("judge"), **plays))


def test_what_was_started_and_is_never_needed_goes(lineup, stage):
    with lineup(hangs, **dict.fromkeys(CONTESTANTS, hangs))() as processes:
        assert processes.are_waiting()
        assert stage.alive == 5
    assert stage.alive == 0


@pytest.mark.parametrize(("title", "play"), [("candidate", vanishes), ("compile", cannot_start)])
def test_who_ended_or_never_began_does_not_wait(title, play, lineup, stage):
    plays = {name: play if name == title else hangs for name in CONTESTANTS}
    with lineup(hangs, **plays)() as processes:
        until(lambda: not processes.are_waiting())


def test_processes_are_admitted_before_waiting_for_judge(lineup):
    admitted = []

    def all_are_known(spec):
        until(lambda: len(admitted) == 5)
        return PASSES(spec)

    assert run(lineup(all_are_known), admit=admitted.append).report.status is Status.PASSED


@pytest.mark.parametrize("nth", [0, 1, 4])
def test_process_that_cannot_be_admitted_ends_all(nth, lineup):
    turns = iter(range(5))

    def refuses(running):
        if next(turns) == nth:
            raise ProcessLookupError("gone already")

    with pytest.raises(ProcessLookupError):
        run(lineup(hangs, candidate=hangs), admit=refuses)
