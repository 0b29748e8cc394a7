"""``--fleet`` of ``run``, ``plan`` and ``nightly``, and ``fleet check``: at a site that is this machine."""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta

import pytest

from tests.baddays.field import LOCAL_FLEET, local_fleet

GPU = """
[[gpus]]
name = "h200"
vendor = "nvidia"
compute_capability = "9.0"
"""

pytestmark = pytest.mark.timeout(300)


@pytest.fixture
def field(field):
    (field.root / "fleet.toml").write_text(local_fleet(field))
    return field


@pytest.mark.parametrize(
    "command",
    [
        ("run", "--dry-run"),
        ("run", "--compile-only"),
        ("run", "--build"),
        ("run", "--allow-unpinned"),
        ("run", "--executor", "other"),
        ("run", "--sandbox", "process"),
        ("plan", "--compile-only"),
        ("plan", "--sandbox", "process"),
        ("nightly", "--build", "--until", "06:30"),
    ],
    ids=" ".join,
)
def test_options_about_this_host_are_refused(field, command):
    ran = field.call(*command, "--fleet", "fleet.toml")
    assert (ran.returncode, ran.stdout) == (2, "")
    assert f"{command[1]} is about this host, and --fleet runs nothing here" in ran.stderr
    assert not (field.root / "workspace").exists()


@pytest.mark.torch
def test_plan_is_for_what_the_sites_have(field):
    field.write_matrix("tiny/honest", "tiny/wrong", more=GPU)
    ran = field.call("plan", "--fleet", "fleet.toml")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "here/cpu: " in ran.stdout
    assert "baddays: 2 cells, 2 run at any site, 0 do not" in ran.stdout
    planned = json.loads(field.call("plan", "--fleet", "fleet.toml", "--json").stdout)
    assert planned["engine"] == "process"
    assert len(planned["devices"]) == 1
    assert not (field.store / "records").exists()


@pytest.mark.torch
def test_check_measures_one_cell_and_keeps_no_record(field):
    ran = field.call("fleet", "check")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "tiny/honest: passed" in ran.stdout
    (place,) = json.loads(field.call("fleet", "check", "--json").stdout)["places"]
    assert (place["trial"]["candidate"], place["trial"]["status"]) == ("tiny/honest", "passed")
    assert not (field.store / "records").exists()
    assert list((field.root / "workspace").rglob("chunk.json")) == []


@pytest.mark.torch
def test_check_tells_a_place_where_cells_cannot_run(field):
    script = 'set -- "$0" "$@"; test "$5" = node || { echo "no judge here"; exit 3; }; exec "$@"'
    command = json.dumps(["sh", "-c", script, sys.executable, "-m", "kernel_matrix"])
    (field.root / "fleet.toml").write_text(f"{LOCAL_FLEET}command = {command}\n")
    ran = field.call("fleet", "check")
    assert ran.returncode == 4
    assert "fail  here/cpu: its trial cell left no record; no judge here" in ran.stdout


@pytest.mark.torch
def test_runs_of_nodes_come_home_with_their_records(field):
    assert field.call("run", "--fleet", "fleet.toml").returncode == 0
    (record,) = field.records()
    assert record["run_id"] in {run["run_id"] for run in field.runs()}
    assert [run["engine"] for run in field.runs()] == ["process"] * 2
    merged = field.call("merge", str(field.store), "--out", "tables", "--json")
    assert json.loads(merged.stdout)["runs"] == 2


@pytest.mark.torch
def test_stale_means_other_than_the_sites_have_now(field):
    assert field.call("run", "--fleet", "fleet.toml").returncode == 0
    again = field.call("run", "--fleet", "fleet.toml", "--rerun", "stale")
    assert "0 cells to run" in again.stdout
    (path,) = (field.store / "records").glob("*.json")
    record = json.loads(path.read_text())
    record["host"]["engine"] = "docker"
    path.chmod(0o644)
    path.write_text(json.dumps(record))
    again = field.call("run", "--fleet", "fleet.toml", "--rerun", "stale")
    assert "1 cells to run" in again.stdout
    assert len(field.records()) == 2


@pytest.mark.torch
def test_night_over_a_fleet_is_a_night_like_others(field):
    until = (datetime.now().astimezone() + timedelta(hours=12)).strftime("%H:%M")
    night = ("nightly", "--fleet", "fleet.toml", "--until", until, "--keep", "1")
    dry = field.call(*night, "--dry-run")
    assert "1 cells run at any site, 0 do not" in dry.stdout
    for _ in range(2):
        ran = field.call(*night)
        assert (ran.returncode, ran.stderr) == (0, "")
        assert "complete: 1 of 1 cells measured" in ran.stdout
    assert len(list((field.store / "nights").iterdir())) == 1
    assert [path.name for path in (field.root / "workspace").iterdir()] == [
        json.loads((field.store / "fleet.json").read_text())["job_prefix"]
    ]
