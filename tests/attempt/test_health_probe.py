"""Results of a health probe, for all ways in which it can end."""

from __future__ import annotations

import json
import os

import pytest

from kernel_matrix.attempt.health_probe import FAILED, NOT_RUN, PASSED, probe_health
from kernel_matrix.inside.probe import PROBE_NAME
from kernel_matrix.model.enums import Role
from kernel_matrix.sandboxes import ProcessExit, ProcessLabels, RoleSpec
from tests.attempt.stage import cannot_start, hangs, out_folder

LABELS = ProcessLabels(run_id="r", cell_id="c", session=0, gpu_uuid="GPU-1", owner="o")


@pytest.fixture
def probe(stage):
    """Runs one probe with this script."""

    def probed(play, *, called_off=lambda: False):
        stage.plays[Role.PROBE, LABELS.cell_id] = [play]
        started = []
        found = probe_health(
            stage,
            lambda out: RoleSpec(role=Role.PROBE, labels=LABELS, image=None, module="m", mounts=(out,)),
            scratch=stage.scratch,
            started=started.append,
            called_off=called_off,
        )
        assert len(started) == (play is not cannot_start)
        return found

    yield probed
    assert stage.alive == 0
    assert list(stage.scratch.iterdir()) == []


def leaves(make, **how):
    """Make a probe that leaves something in place of its answer, and ends."""

    def play(spec):
        make(out_folder(spec) / PROBE_NAME)
        return ProcessExit(role=spec.role, **{"code": 0, **how})

    return play


def says(**said):
    return leaves(lambda path: path.write_text(json.dumps(said)))


def nothing(path):
    pass


def test_a_right_answer_passes(probe):
    found = probe(says(kind="health", passed=True, reason="", sm_mhz=1980.0, seconds=0.1))
    assert (found.result, found.reason) == (PASSED, "")


ENDS = {
    "a wrong answer": (says(passed=False, reason="17 answers are wrong"), FAILED, "failed: 17 answers are wrong"),
    "an answer of another kind": (says(passed="yes"), FAILED, "failed: None"),
    "a question that could not be put": (
        says(passed=None, reason="no compiler"),
        NOT_RUN,
        "could not run: no compiler",
    ),
    "killed by the driver": (leaves(nothing, code=None, signal=11), FAILED, "signal 11"),
    "killed for its memory": (leaves(nothing, code=None, signal=9, oom_killed=True), NOT_RUN, "no answer"),
    "fell over": (
        leaves(nothing, code=1, log_tail="Traceback\nNo module named x\n"),
        NOT_RUN,
        "1 and no answer: No mod",
    ),
    "lost by the daemon": (leaves(nothing, code=None, lost=True), NOT_RUN, "lost by the sandbox"),
    "never started": (cannot_start, NOT_RUN, "could not be started"),
    "a link": (leaves(lambda path: path.symlink_to("/etc/passwd")), NOT_RUN, "no answer"),
    "a pipe that nobody writes": (leaves(os.mkfifo), NOT_RUN, "no answer"),
    "half an answer": (leaves(lambda path: path.write_text('{"passed": tr')), NOT_RUN, "no answer"),
}


@pytest.mark.parametrize("what", ENDS)
def test_only_what_the_gpu_did_is_held_against_it(what, probe):
    play, result, words = ENDS[what]
    found = probe(play)
    assert found.result == result
    assert words in found.reason


def test_a_probe_that_does_not_end_is_a_gpu_that_does_not_answer(probe, monkeypatch):
    monkeypatch.setattr("kernel_matrix.attempt.health_probe._LIMIT_S", 0.1)
    found = probe(hangs)
    assert found.result == FAILED
    assert "did not answer the health probe" in found.reason


def test_a_probe_that_is_called_off_says_nothing(probe):
    found = probe(hangs, called_off=lambda: True)
    assert found.result == NOT_RUN
    assert "cancelled" in found.reason
