"""``kernel-matrix run --fleet`` on a real Ray: CPU cells on its two nodes."""

from __future__ import annotations

import signal
import tempfile
from collections import Counter
from pathlib import Path

import pytest

from tests.baddays.field import ROOT, new_field
from tests.executors.engines.ray_lab import ray_lab, ray_program, wait_until
from tests.executors.fleet.faults import FaultyRun, players, prepare
from tests.executors.fleet.ray_faults import RayFaults

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(600),
    pytest.mark.skipif(ray_program() is None, reason="ray is not installed beside the tests"),
]


@pytest.fixture(scope="module")
def cluster():
    # Sockets of Ray lie below its folder, whose path must be short.
    with (
        tempfile.TemporaryDirectory(prefix="kmray", ignore_cleanup_errors=True) as name,
        ray_lab(Path(name)) as running,
    ):
        yield running


@pytest.fixture
def field(tmp_path, cluster):
    """A folder with a matrix of twenty cells, and a fleet whose nodes take half a second for each."""
    with new_field(tmp_path, environment={"PYTHONPATH": str(ROOT / "runner")}) as made:
        prepare(made, RayFaults(cluster).engine, cells=20, seconds=0.5)
        yield made


def records_of_each(field):
    """How many records a cell has → how many cells have so many."""
    cells = Counter(record["cell_id"] for record in field.records())
    return Counter(cells.values())


def test_records_of_all_cells_come_home(field):
    ran = field.call("run", "--fleet", "fleet.toml")
    assert ran.returncode == 0, ran.stderr
    assert records_of_each(field) == {1: 20}


def test_jobs_of_a_killed_head_go_on_and_nothing_runs_twice(field):
    with field.start("run", "--fleet", "fleet.toml") as head:
        wait_until(lambda: field.records() != [])
        head.send_signal(signal.SIGKILL)
    assert "running" in field.call("fleet", "status").stdout
    assert field.call("run", "--fleet", "fleet.toml").returncode == 0
    assert records_of_each(field) == {1: 20}


def test_cells_of_a_dead_node_run_elsewhere(field, cluster):
    with field.start("run", "--fleet", "fleet.toml") as head:
        wait_until(lambda: field.records() != [])
        cluster.kill("l1")
        head.communicate()
    assert head.returncode == 0
    assert sum(records_of_each(field).values()) == 20
    cluster.start("l1")
    wait_until(lambda: len(cluster.alive()) == 2)


def test_interrupted_run_leaves_no_job(field):
    with field.start("run", "--fleet", "fleet.toml") as head:
        wait_until(lambda: field.records() != [])
        head.send_signal(signal.SIGINT)
        head.communicate()
    assert head.returncode == 130
    assert "running" not in field.call("fleet", "status").stdout
    assert field.call("run", "--fleet", "fleet.toml").returncode == 0
    assert records_of_each(field) == {1: 20}


def test_model_that_the_cluster_lacks_is_refused_before_a_job(field):
    path = field.root / "fleet.toml"
    path.write_text(path.read_text().replace('["cpu"]', '["b200"]'))
    ran = field.call("run", "--fleet", "fleet.toml")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "the site has no b200; it has " in ran.stderr


def test_faults_cost_no_cell_and_leave_nothing(field, cluster):
    faults = RayFaults(cluster)
    FaultyRun(field, faults, faults=4, seed=1).run()
    assert len({record["cell_id"] for record in field.records()}) == 20
    wait_until(faults.is_whole)
    assert "0 cells to run" in field.call("run", "--fleet", "fleet.toml").stdout
    wait_until(lambda: players(field) == [], limit_s=60)
