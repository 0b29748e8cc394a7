"""Cells in containers of Docker, on the nodes of a real Slurm: containers are no children of a job's processes."""

from __future__ import annotations

import json
import signal
import subprocess

import pytest

from tests.baddays.field import Field, new_field
from tests.baddays.living import MODULES, containers, is_frozen, until
from tests.executors.engines.slurm_lab import SlurmLab
from tests.executors.fleet.faults import write_fleet
from tests.executors.fleet.slurm_faults import ENGINE

# Where the CPU image is missing, it is built first. Any other run would remove the containers of a killed runner.
pytestmark = [pytest.mark.docker, pytest.mark.timeout(1800), pytest.mark.alone("docker")]
NAMES = ("honest", "wrong")


@pytest.fixture
def field(tmp_path, cpu_lock, lab):
    """A folder whose fleet file names the cluster, with Docker on its nodes."""
    with new_field(tmp_path, cpu_lock, environment=lab.environment) as made:
        write_fleet(made, ENGINE, sandbox="docker")
        made.write_matrix(*(f"tiny/{name}" for name in NAMES))
        yield made


def run_at_a_node(field: Field) -> str:
    """Wait until a session at a node has all its containers; the name of the run there."""
    found: list[str] = []

    def has_begun() -> bool:
        found[:] = [path.stem for path in (field.root / "workspace").rglob("runs/*.json")]
        return any(len(containers(name, running=True)) == len(MODULES) for name in found)

    until(has_begun)
    return next(name for name in found if containers(name))


def ended(field: Field) -> list[tuple[str, int, str]]:
    """Candidate, attempt and status of each record at home."""
    records = field.records()
    return sorted((r["cell"]["candidate"], r["attempt"], r["outcome"]["status"]) for r in records)


def test_containers_end_with_a_job_that_is_killed(field: Field, lab: SlurmLab) -> None:
    with field.start("run", "--fleet", "fleet.toml") as head:
        run = run_at_a_node(field)
        head.send_signal(signal.SIGKILL)  # or it would send the cells again, and their run would sweep
    (job,) = lab.call("squeue", "-h", "-t", "running", "-o", "%A").split()
    lab.call("scancel", "--signal=KILL", "--full", job)
    until(lambda: all(map(is_frozen, containers(run, running=True))), 60)

    again = field.call("run", "--fleet", "fleet.toml")
    assert (again.returncode, again.stderr) == (0, "")
    assert [status for _, _, status in ended(field)] == ["passed", "incorrect_values"]
    assert containers(run) == []


def test_killed_container_costs_an_attempt_and_no_cell(field: Field) -> None:
    with field.start("run", "--fleet", "fleet.toml", "--json") as head:
        run = run_at_a_node(field)
        victims = [name for name in containers(run) if name.endswith("candidate")]
        subprocess.run(("docker", "rm", "--force", *victims), check=True, capture_output=True)
        out, err = head.communicate()
    assert (head.returncode, err) == (0, "")
    retried = [event for event in map(json.loads, out.splitlines()) if event["event"] == "cell_retried"]
    assert [event["status"] for event in retried] == ["container_lost"]
    assert [status for _, _, status in ended(field)].count("container_lost") == 1
    assert [status for _, _, status in ended(field) if status != "container_lost"] == ["passed", "incorrect_values"]
    assert containers(run) == []
