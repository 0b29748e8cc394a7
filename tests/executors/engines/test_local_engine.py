"""Jobs as processes of this machine, on its CPU."""

from __future__ import annotations

import os
import subprocess
import time

import pytest

from kernel_matrix.executors.engines import EngineError, Job, JobState
from kernel_matrix.executors.engines.local import check_options, open_session
from kernel_matrix.fleet import Site

RUN = "km-01234567"


@pytest.fixture
def site(tmp_path):
    return Site(name="here", engine="local", sandbox="process", workspace=tmp_path)


@pytest.fixture
def submit(site):
    """Submits jobs to a session; every job has ended afterwards."""
    session = open_session(site, RUN)

    def submitted(name, program, resource="cpu"):
        folder = site.workspace / RUN / f"{RUN}-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        session.submit(
            Job(token=folder.name, resource=resource, folder=folder, command=("/bin/sh", "-c", program, "sh"))
        )
        return session

    yield submitted
    session.cancel(session.statuses())
    for child in session._children:
        child.wait(timeout=60)


def ended(session, name):
    """Wait for the end of a job; return its status."""
    end = time.monotonic() + 60
    while (status := session.statuses()[f"{RUN}-{name}"]).state is JobState.RUNNING:
        assert time.monotonic() < end
        time.sleep(0.02)
    return status


def test_job_has_a_device_and_a_log(submit, site):
    session = submit("one", "echo $KERNEL_MATRIX_FLEET_DEVICE; pwd; echo no >&2; exit 3")
    assert ended(session, "one").state is JobState.ENDED
    folder = site.workspace / RUN / f"{RUN}-one"
    assert (folder / "log.txt").read_text() == f"cpu\n{folder}\nno\n"


def test_job_that_ends_at_once_has_ended(submit, monkeypatch):
    class Slow(subprocess.Popen):
        """Returns when its process has ended, and was not waited for."""

        def __init__(self, *words, **options):
            super().__init__(*words, **options)
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)

    monkeypatch.setattr(subprocess, "Popen", Slow)
    session = submit("brief", "exit 0")
    assert session.statuses()[f"{RUN}-brief"].state is JobState.ENDED
    assert [child.returncode for child in session._children] == [0]


def test_device_is_for_one_job_at_a_time(submit):
    session = submit("first", "exec sleep 60")
    with pytest.raises(EngineError, match="no cpu is free"):
        submit("second", "exit 0")
    session.cancel([f"{RUN}-first", f"{RUN}-absent"])
    assert ended(session, "first").state is JobState.LOST
    assert ended(submit("third", "exit 0"), "third").state is JobState.ENDED


def test_device_that_is_not_here_is_told(submit):
    with pytest.raises(EngineError, match="no nvidia-h200 is free"):
        submit("one", "exit 0", resource="nvidia-h200")


def test_killed_job_is_lost(submit):
    assert ended(submit("killed", "kill -9 0"), "killed").state is JobState.LOST


def test_jobs_are_found_by_a_later_session(submit, site):
    session = submit("one", "exec sleep 60")
    later = open_session(site, RUN)
    assert later.statuses() == session.statuses()
    assert open_session(site, "km-76543210").statuses() == {}
    later.cancel([f"{RUN}-one"])
    assert ended(session, "one").state is JobState.LOST


def test_job_whose_file_is_no_json_is_left_out(submit, site):
    session = submit("one", "exit 0")
    ended(session, "one")
    (site.workspace / RUN / f"{RUN}-one" / "process.json").write_text("{")
    assert session.statuses() == {}


def test_options_are_unknown_keys():
    (fault,) = check_options({"partition": "night"})
    assert (fault.path, fault.text) == (("partition",), "unknown key; this engine has no options")
    assert list(check_options({})) == []


def test_job_that_cannot_be_found_again_is_ended(submit, site):
    # As on a full disk, where its file cannot be written.
    (site.workspace / RUN / f"{RUN}-one" / "process.json").mkdir(parents=True)
    with pytest.raises(EngineError, match=r"process\.json cannot be written: "):
        submit("one", "sleep 100")
