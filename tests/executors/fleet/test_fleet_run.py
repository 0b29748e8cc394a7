"""``kernel-matrix run --fleet`` on a real Slurm: CPU cells on its two nodes."""

from __future__ import annotations

import json
import signal
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.baddays.field import PRELOADED
from tests.executors.fleet.faults import write_fleet
from tests.executors.fleet.slurm_faults import ENGINE
from tests.warm_command import REAL

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]
NAMES = ("answers_twice", "closes_the_socket", "deletes_itself", "exits_with_an_odd_code", "honest", "wrong")


def select(field, *names):
    field.write_matrix(*(f"tiny/{name}" for name in names))


def candidates(field):
    """Candidate → number of its records at home."""
    return Counter(record["cell"]["candidate"].removeprefix("tiny/") for record in field.records())


def chunks(field):
    return list((field.root / "workspace").rglob("chunk.json"))


def at_home(field):
    return len(list((field.store / "records").glob("*.json")))


def test_records_of_all_cells_come_home(field):
    select(field, *NAMES)
    write_fleet(replace(field, program=REAL), ENGINE)  # as users' nodes start it
    ran = field.call("run", "--fleet", "fleet.toml")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "all as expected" in ran.stdout
    assert candidates(field) == dict.fromkeys(NAMES, 1)
    assert {record["host"]["engine"] for record in field.records()} == {"process"}
    assert chunks(field) == []
    again = field.call("run", "--fleet", "fleet.toml")
    assert "0 cells to run" in again.stdout


def test_jobs_of_a_killed_head_go_on_and_nothing_runs_twice(field, lab):
    select(field, *NAMES)
    field.slow_down(3)
    with field.start("run", "--fleet", "fleet.toml") as head:
        lab.wait_until(lambda: at_home(field) > 0)
        head.send_signal(signal.SIGKILL)
    ran = field.call("run", "--fleet", "fleet.toml")
    assert ran.returncode == 0
    assert candidates(field) == dict.fromkeys(NAMES, 1)
    assert chunks(field) == []


def test_what_a_killed_head_left_is_listed_and_collected(field, lab):
    select(field, *NAMES)
    field.slow_down(3)
    with field.start("run", "--fleet", "fleet.toml") as head:
        lab.wait_until(lambda: at_home(field) > 0)
        head.send_signal(signal.SIGKILL)
    (chunk,) = json.loads(field.call("fleet", "status", "--json").stdout)
    assert (chunk["site"], chunk["resource"], chunk["state"]) == ("lab", "cpu", "running")
    assert chunk["cells"] == len(NAMES)
    assert '"event":"run_started"' in field.call("fleet", "logs", chunk["name"]).stdout
    assert "did you mean" in field.call("fleet", "logs", chunk["name"][:-1]).stderr
    assert field.call("fleet", "cancel").returncode == 0
    lab.wait_until(lambda: lab.call("squeue", "-h").split() == [])
    collected = field.call("fleet", "collect").stdout
    assert collected.endswith("records came home; 0 chunks go on\n")
    assert chunks(field) == []
    assert at_home(field) == chunk["records"] or at_home(field) > 0


def test_interrupted_run_leaves_no_job_and_goes_on(field, lab):
    select(field, *NAMES)
    field.slow_down(3)
    with field.start("run", "--fleet", "fleet.toml") as head:
        lab.wait_until(lambda: at_home(field) > 0)
        head.send_signal(signal.SIGINT)
        head.communicate()
    assert head.returncode == 130
    assert lab.call("squeue", "-h").split() == []
    assert field.call("run", "--fleet", "fleet.toml").returncode == 0
    assert candidates(field) == dict.fromkeys(NAMES, 1)


def test_cells_of_a_dead_node_run_elsewhere(field, lab):
    select(field, *NAMES)
    field.slow_down(3)
    with field.start("run", "--fleet", "fleet.toml") as head:
        lab.wait_until(lambda: at_home(field) > 0)
        (node,) = set(lab.call("squeue", "-h", "-t", "running", "-o", "%N").split())
        lab.kill(f"slurmd.{node}")
        head.communicate()
    lab.start_node(node)
    assert head.returncode == 0
    assert set(candidates(field)) == set(NAMES)


def test_controller_that_is_killed_and_forgets_costs_no_cell(field, lab):
    select(field, *NAMES)
    field.slow_down(3)
    with field.start("run", "--fleet", "fleet.toml") as head:
        lab.wait_until(lambda: at_home(field) > 0)
        lab.kill("slurmctld")
        lab.start_controller()
        head.communicate()
    assert head.returncode == 0
    assert set(candidates(field)) == set(NAMES)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('partition = "night"', 'partition = "nigth"'), "no partition is 'nigth'; did you mean 'night'?"),
        (('gpus = ["cpu"]', 'gpus = ["b200"]'), "the site has no b200; it has h200, l40s, cpu"),
        ((json.dumps(*PRELOADED), '"-m", "no_such_module"'), "No module named no_such_module"),
    ],
)
def test_site_that_cannot_run_is_told_before_anything(field, change, said):
    select(field, "honest")
    path = field.root / "fleet.toml"
    path.write_text(path.read_text().replace(*change))
    ran = field.call("run", "--fleet", "fleet.toml")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "no site of the fleet can run anything" in ran.stderr
    assert said in ran.stderr
    assert at_home(field) == 0


def test_nodes_without_the_workspace_are_told_first(field, lab):
    select(field, "honest")
    (field.root / "workspace").mkdir()
    with blind_nodes(lab, field.root / "workspace"):
        ran = field.call("run", "--fleet", "fleet.toml")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "its job has ended and left no output: does its node see " in ran.stderr
    assert at_home(field) == 0


@contextmanager
def blind_nodes(lab, folder):
    """Nodes that see another, empty folder in place of ``folder``."""
    for node in lab.nodes:
        lab.kill(f"slurmd.{node}")
        lab.start_blind_node(node, folder)
    try:
        yield
    finally:
        for node in lab.nodes:
            lab.kill(f"slurmd.{node}")
            lab.start_node(node)


def test_check_says_what_each_place_has(field):
    select(field, "honest")
    path = field.root / "fleet.toml"
    path.write_text(path.read_text().replace('gpus = ["cpu"]', 'gpus = ["cpu", "b200"]'))
    ran = field.call("fleet", "check", "--json")
    assert ran.returncode == 4
    document = json.loads(ran.stdout)
    assert [(place["site"], place["resource"], place["devices"] != []) for place in document["places"]] == [
        ("lab", "cpu", True)
    ]
    assert list(document["faults"]) == ["lab/b200"]
