"""The engine on a real Ray of two nodes."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from kernel_matrix.executors.engines import EngineError, Job, JobState, ray_jobs
from kernel_matrix.fleet import Site
from tests.executors.engines.ray_lab import ray_lab, ray_program, wait_until

pytestmark = [
    pytest.mark.timeout(300),
    pytest.mark.skipif(ray_program() is None, reason="ray is not installed beside the tests"),
]


@pytest.fixture(scope="module")
def lab():
    # Sockets of Ray lie below its folder, whose path must be short.
    with (
        tempfile.TemporaryDirectory(prefix="kmray", ignore_cleanup_errors=True) as name,
        ray_lab(Path(name)) as running,
    ):
        yield running


def site(lab, tmp_path, **options):
    values = {"address": lab.address, "cpus": 1, **options}
    return Site(name="lab", engine="ray", sandbox="process", workspace=tmp_path, options=values)


@pytest.fixture
def session(lab, tmp_path):
    return ray_jobs.open_session(site(lab, tmp_path), f"km-{tmp_path.name}")


def submit(session, name, resource, *command):
    job = Job(
        token=f"{session.run_token}-{name}", resource=resource, folder=session.site.workspace / name, command=command
    )
    job.folder.mkdir()
    session.submit(job)
    return job


def state(session, job):
    return session.statuses()[job.token].state


def test_models_and_cores_are_found(session):
    assert session.units() == {"h200": 2, "l40s": 1, "cpu": 8}


def test_job_gets_a_device_of_its_model_and_its_end_is_known(session):
    jobs = [submit(session, f"gpu-{n}", "h200", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES; sleep 3") for n in range(2)]
    other = submit(session, "other", "l40s", "sh", "-c", "echo $CUDA_VISIBLE_DEVICES")
    wait_until(lambda: all(state(session, job) is JobState.ENDED for job in (*jobs, other)))
    assert {(job.folder / "log.txt").read_text() for job in jobs} == {"0\n", "1\n"}
    assert (other.folder / "log.txt").read_text() == "0\n"
    assert session.statuses()[other.token].node


def test_exit_code_is_an_end_and_a_kill_is_a_loss(session):
    failed = submit(session, "failed", "cpu", "sh", "-c", "exit 75")
    killed = submit(session, "killed", "cpu", "sh", "-c", "kill -9 $$")
    wait_until(lambda: state(session, failed) is JobState.ENDED)
    wait_until(lambda: state(session, killed) is JobState.LOST)


def test_cancelled_job_gets_a_signal_and_time(session):
    script = "trap 'sleep 5; echo given back; exit 0' TERM; echo ready; while :; do sleep 0.1; done"
    job = submit(session, "cancelled", "cpu", "sh", "-c", script)
    wait_until(lambda: (job.folder / "log.txt").is_file() and "ready" in (job.folder / "log.txt").read_text())
    session.cancel([job.token])
    wait_until(lambda: state(session, job) is JobState.LOST)
    assert "given back" in (job.folder / "log.txt").read_text()
    session.cancel([job.token])


def test_name_that_was_used_is_refused(session):
    job = submit(session, "twice", "cpu", "true")
    with pytest.raises(EngineError, match="already exists"):
        session.submit(job)


def test_settings_stay_forbidden(session, monkeypatch):
    monkeypatch.setenv("KERNEL_MATRIX_GPU_SETTINGS", "forbid")
    monkeypatch.setenv("SECRET", "secret")
    job = submit(session, "forbidden", "cpu", "sh", "-c", 'echo "$KERNEL_MATRIX_GPU_SETTINGS $SECRET"')
    wait_until(lambda: state(session, job) is JobState.ENDED)
    assert (job.folder / "log.txt").read_text() == "forbid \n"


def test_dashboard_that_does_not_answer_is_told(lab, tmp_path):
    closed = ray_jobs.open_session(site(lab, tmp_path, address="http://127.0.0.1:9"), "km-0")
    with pytest.raises(EngineError, match="the dashboard of Ray does not answer: ConnectionError"):
        closed.units()


def test_job_of_a_dead_node_is_lost(session, lab):
    job = submit(session, "dies", "l40s", "sleep", "100")
    wait_until(lambda: state(session, job) is JobState.RUNNING)
    lab.kill("l1")
    wait_until(lambda: state(session, job) is JobState.LOST)
    wait_until(lambda: "l40s" not in session.units())  # the job ends before Ray misses the node
    lab.start("l1")
    wait_until(lambda: session.units().get("l40s") == 1)
