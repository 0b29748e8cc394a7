"""The Docker daemon is absent, lacks the image, loses a container, or is killed in the middle of a cell."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess

import pytest

from tests.baddays.field import RUN_LIMIT_S, Field, events, new_field
from tests.baddays.living import MODULES, await_event, containers, until
from tests.baddays.own_daemon import own_daemon

needs_image = pytest.mark.timeout(1800)  # where the CPU image is missing, it is built first
NOBODY = "unix:///nonexistent/docker.sock"


@pytest.fixture
def docker_field(tmp_path, cpu_lock):
    with new_field(tmp_path, cpu_lock) as made:
        yield made


@pytest.mark.torch
def test_run_without_daemon_uses_processes_and_says_so(field):
    ran = field.call("run", DOCKER_HOST=NOBODY)
    assert (ran.returncode, ran.stderr) == (0, "")
    lines = ran.stdout.splitlines()
    assert lines[0].startswith("sandbox process")
    assert "not Docker: no Docker daemon answers" in lines[1]
    assert [record["host"]["engine"] for record in field.records()] == ["process"]


def test_run_in_docker_without_daemon_exits_4_with_next_step(field):
    ran = field.call("run", "--sandbox", "docker", DOCKER_HOST=NOBODY)
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "no Docker daemon answers" in ran.stderr
    assert "→ start it" in ran.stderr
    assert not field.results.exists()


def _relocked(field: Field, **changes: str) -> None:
    lock = field.root / "images" / "images.lock"
    document = json.loads(lock.read_text())
    document["images"]["cpu"].update(changes)
    lock.write_text(json.dumps(document))


def _without_entry(field: Field) -> str:
    (field.root / "images" / "images.lock").unlink()
    return "cpu"


def _with_another_digest(field: Field) -> str:
    _relocked(field, config_digest="sha256:" + "0" * 64, digest="sha256:" + "1" * 64)
    return "the lock says sha256:000"


def _with_an_image_nobody_has(field: Field) -> str:
    _relocked(field, config_digest="sha256:" + "0" * 64, reference="kernel-matrix-test/absent:1")
    return "does not have it"


@needs_image
@pytest.mark.docker
@pytest.mark.parametrize("spoil", [_without_entry, _with_another_digest, _with_an_image_nobody_has])
def test_run_without_the_pinned_image_exits_3_with_reason(spoil, docker_field):
    words = spoil(docker_field)
    planned = docker_field.call("plan", "--json", "--sandbox", "docker")
    (cell,) = json.loads(planned.stdout)["cells"]
    assert cell["reason"]["kind"] == "image_missing"
    assert words in cell["reason"]["text"]
    ran = docker_field.run("--sandbox", "docker")
    assert (ran.returncode, ran.stdout) == (3, "")
    assert words in ran.stderr
    assert not docker_field.results.exists()


@needs_image
@pytest.mark.docker
@pytest.mark.parametrize("roles", [("judge",), ("candidate",), ("eager",), ("judge", "candidate")], ids="+".join)
def test_removed_container_is_lost_and_the_cell_is_tried_again(roles, docker_field):
    with docker_field.start("run", "--json", "--sandbox", "docker") as runner:
        await_event(runner, "cell_started")
        run_id = docker_field.runs()[0]["run_id"]
        until(lambda: len(containers(run_id, running=True)) == len(MODULES))
        victims = [name for name in containers(run_id) if name.endswith(roles)]
        subprocess.run(("docker", "rm", "--force", *victims), check=True, capture_output=True)
        out, err = runner.communicate(timeout=RUN_LIMIT_S)
    assert (runner.returncode, err) == (0, "")
    told = [(event["event"], event.get("status"), event.get("fault")) for event in events(out)]
    assert told[:2] == [("cell_retried", "container_lost", "infra"), ("cell_ended", "passed", "none")]
    assert [(r["attempt"], r["outcome"]["status"]) for r in docker_field.records()] == [
        (1, "container_lost"),
        (2, "passed"),
    ]
    assert containers(run_id) == []


@needs_image
@pytest.mark.docker
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a Docker daemon")
@pytest.mark.skipif(shutil.which("dockerd") is None, reason="no dockerd here to start a second daemon with")
def test_a_killed_daemon_is_waited_for_and_costs_one_attempt(docker_field):
    lock = docker_field.root / "images" / "images.lock"
    good = lock.read_text()
    with own_daemon() as daemon:
        daemon.import_stuck_image()
        lock.unlink()
        unpinned = ("--sandbox", "docker", "--allow-unpinned")
        with docker_field.start("run", "--json", *unpinned, DOCKER_HOST=daemon.url) as runner:
            await_event(runner, "cell_started")
            until(lambda: daemon.followed() == len(MODULES))
            before = daemon.container_ids()
            daemon.kill()
            await_event(runner, "sandbox_lost")
            daemon.start()  # its containers lived on
            assert daemon.container_ids() == before
            (*_, retried) = await_event(runner, "cell_retried")
            assert retried["status"] == "container_lost"
            until(lambda: daemon.containers(running=True) == len(MODULES) and not daemon.container_ids() & before, 90)
            runner.terminate()
            runner.communicate(timeout=RUN_LIMIT_S)
        assert runner.returncode == 128 + signal.SIGTERM
        assert daemon.containers() == 0

    lock.write_text(good)
    assert docker_field.run("--sandbox", "docker").returncode == 0
    found = [(r["attempt"], r["outcome"]["status"], r["host"]["image"]["state"]) for r in docker_field.records()]
    assert found == [(1, "container_lost", "unpinned"), (2, "passed", "local")]
