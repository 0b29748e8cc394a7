"""Jobs on a real Slurm of two nodes."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_matrix.executors.engines import EngineError, Job, JobState
from kernel_matrix.executors.engines.slurm import _state, check_options, open_session
from kernel_matrix.fleet import Site
from tests.executors.engines.slurm_lab import missing_programs, slurm_lab

RUNNER = Path(__file__).parents[3] / "runner"

pytestmark = [
    pytest.mark.skipif(bool(missing_programs()), reason=f"not installed: {', '.join(missing_programs())}"),
    pytest.mark.skipif(os.geteuid() != 0, reason="the daemons need root"),
]


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    with slurm_lab(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture(autouse=True)
def commands_reach_it(lab, monkeypatch):
    monkeypatch.setenv("SLURM_CONF", lab.environment["SLURM_CONF"])


def session(run="km-one", **options):
    return open_session(
        Site(name="lab", engine="slurm", sandbox="process", workspace=Path("/nowhere"), options=options), run
    )


def allocated_job(folder, token, resource):
    """A job that prints the devices which it finds to be its own, and goes on until there is a file ``end``."""
    folder.mkdir()
    start = ("env", f"PYTHONPATH={RUNNER}", sys.executable, "-c", ALLOCATED)
    return Job(token=token, resource=resource, folder=folder, command=start)


def job(folder, token, *, resource="h200", python="pass"):
    return Job(token=token, resource=resource, folder=folder, command=(sys.executable, "-c", python))


def status_of(lab, jobs, token, *states):
    """Wait for one of ``states``; return the status."""
    lab.wait_until(lambda: token in jobs.statuses() and jobs.statuses()[token].state in states)
    return jobs.statuses()[token]


def test_gpus_are_those_of_the_partition():
    assert session().units() == {"h200": 2, "l40s": 1, "cpu": 2}
    assert session(partition="small").units() == {"l40s": 1, "cpu": 1}
    assert session(constraint="h200").units() == {"h200": 2, "cpu": 1}


def test_job_runs_on_a_gpu_of_its_model(lab, tmp_path):
    jobs = session("km-model")
    jobs.submit(job(tmp_path, "km-model-1", resource="l40s", python="import os; print(os.environ['SLURM_JOB_GPUS'])"))
    status = status_of(lab, jobs, "km-model-1", JobState.ENDED)
    assert status.node == "l1"
    assert (tmp_path / "log.txt").read_text() == "0\n"  # counted on the node


def test_job_avoids_nodes(lab, tmp_path):
    jobs = session("km-avoid")
    jobs.submit(replace(job(tmp_path, "km-avoid-1", resource="cpu"), avoid=frozenset({"h1"})))
    assert status_of(lab, jobs, "km-avoid-1", JobState.ENDED).node == "l1"


def test_job_that_finds_no_other_node_runs(lab, tmp_path):
    jobs = session("km-alone")
    jobs.submit(replace(job(tmp_path, "km-alone-1"), avoid=frozenset({"h1"})))
    assert status_of(lab, jobs, "km-alone-1", JobState.ENDED).node == "h1"


def test_script_has_no_secret(lab, tmp_path, monkeypatch):
    monkeypatch.setenv("KERNEL_MATRIX_WEBHOOK", "https://example.invalid/hush")
    monkeypatch.setenv("KERNEL_MATRIX_GPU_SETTINGS", "forbid")
    jobs = session("km-env")
    jobs.submit(job(tmp_path, "km-env-1", python="import os; print(dict(os.environ))"))
    status_of(lab, jobs, "km-env-1", JobState.ENDED)
    seen = (tmp_path / "log.txt").read_text()
    assert "hush" not in seen
    assert "'KERNEL_MATRIX_GPU_SETTINGS': 'forbid'" in seen


def test_process_that_fails_has_ended(lab, tmp_path):
    jobs = session("km-fail")
    jobs.submit(job(tmp_path, "km-fail-1", python="raise SystemExit(75)"))
    assert status_of(lab, jobs, "km-fail-1", JobState.ENDED).state is JobState.ENDED


def test_killed_process_is_lost(lab, tmp_path):
    jobs = session("km-kill")
    jobs.submit(job(tmp_path, "km-kill-1", python="import os; os.kill(os.getpid(), 9)"))
    assert status_of(lab, jobs, "km-kill-1", JobState.LOST, JobState.ENDED).state is JobState.LOST


def test_cancelled_job_gets_a_signal_and_is_lost(lab, tmp_path):
    python = """import signal, sys, time
signal.signal(15, lambda *_: sys.exit(print("told")))
print("ready", flush=True)
time.sleep(60)"""
    jobs = session("km-cancel")
    jobs.submit(job(tmp_path, "km-cancel-1", python=python))
    log = tmp_path / "log.txt"
    lab.wait_until(lambda: log.is_file() and log.read_text() == "ready\n")
    jobs.cancel(["km-cancel-1", "km-cancel-never-was"])
    assert status_of(lab, jobs, "km-cancel-1", JobState.LOST).reason == "cancelled"
    lab.wait_until(lambda: log.read_text().endswith("told\n"))


def test_job_that_a_node_could_not_start_is_lost():
    # Slurm holds it for ever; other nodes can run its cells.
    assert _state("PENDING", "launch failed requeued held") is JobState.LOST
    assert _state("PENDING", "Resources") is JobState.WAITING


def test_jobs_of_other_runs_are_not_seen(lab, tmp_path):
    session("km-mine").submit(job(tmp_path, "km-mine-1"))
    assert session("km-other").statuses() == {}


def test_refusal_is_an_error_in_slurms_words(tmp_path):
    with pytest.raises(EngineError, match=r"site lab: .*Invalid partition name"):
        session("km-refused", partition="nigth").submit(job(tmp_path, "km-refused-1"))


def test_options_are_checked():
    (fault,) = check_options({"partitoin": "night"})
    assert "unknown key" in fault.text
    assert "did you mean 'partition'?" in fault.text
    assert list(check_options({"partition": "night", "cpus": 8, "memory_gib": 32.5})) == []
    (fault,) = check_options({"account": "--wrap=id"})
    assert "does not begin with '-'" in fault.text


def test_missing_commands_are_told(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(EngineError, match="sinfo is not installed here") as caught:
        session().units()
    assert "login node" in caught.value.next_step


ALLOCATED = """import sys, time
from pathlib import Path
from kernel_matrix.executors.engines.slurm import allocated
from kernel_matrix.platforms import Gpu
gpus = [Gpu(platform="cuda", uuid=f"GPU-{minor}", name="NVIDIA H200", minor=minor) for minor in (2, 1, 0)]
cpu = Gpu(platform="cpu", uuid="cpu", name="EPYC")
print(*(gpu.uuid for gpu in allocated([*gpus, cpu])), flush=True)
while not Path("end").exists():
    time.sleep(0.05)
"""


def test_jobs_on_one_node_have_a_device_each(lab, tmp_path):
    jobs, logs = session("km-each"), []
    for number, resource in enumerate(("h200", "h200", "cpu", "l40s")):
        jobs.submit(allocated_job(tmp_path / str(number), f"km-each-{number}", resource))
        logs.append(tmp_path / str(number) / "log.txt")
    lab.wait_until(lambda: all(log.is_file() and log.read_text().endswith("\n") for log in logs))
    assert sorted(log.read_text() for log in logs[:2]) == ["GPU-0\n", "GPU-1\n"]
    assert logs[2].read_text() == "cpu\n"
    assert logs[3].read_text() == "GPU-2\n"  # the first of its node
    for number, log in enumerate(logs):
        log.with_name("end").touch()
        status_of(lab, jobs, f"km-each-{number}", JobState.ENDED)
