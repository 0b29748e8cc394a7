"""A runner that holds a GPU, its clocks locked, is stopped or killed at any moment; or the daemon is."""

from __future__ import annotations

import os
import random
import shutil
import signal
import time
from dataclasses import replace

import pytest

from kernel_matrix.results.reading import read_record
from tests.baddays.field import RUN_LIMIT_S, events
from tests.baddays.gpu_field import TOOLCHAIN, go_on, of_one_vendor
from tests.baddays.living import MODULES, await_event, until
from tests.baddays.own_daemon import own_daemon

pytestmark = [
    pytest.mark.docker,
    pytest.mark.timeout(1800),  # where the CPU image is missing, it is built first
]

DOCKER = ("--sandbox", "docker")
MOMENTS = [signal.SIGINT, signal.SIGTERM] + [signal.SIGKILL] * 4
"""Signals, each at a random moment; ``benchmarks/kills.py`` draws more of them."""


@of_one_vendor
@pytest.mark.alone("docker")  # any other run would remove the containers of a killed one
def test_at_any_moment_of_a_cell(docker_gpu_field):
    # Two sessions: while the first is measured, the second's processes are started.
    docker_gpu_field.write_gpu_matrix("tiny/honest", clocks="lock", hard_exclusive=True, sessions=2)
    began = time.monotonic()
    assert docker_gpu_field.run(*DOCKER).returncode == 0
    whole_s = time.monotonic() - began
    dice = random.Random(0)
    not_given_back = set()
    for number in MOMENTS:
        before = len(docker_gpu_field.records())
        with docker_gpu_field.start("run", "--json", "--rerun", "all", *DOCKER) as runner:
            await_event(runner, "cell_started")
            time.sleep(dice.uniform(0, whole_s))
            runner.send_signal(number)
            runner.communicate(timeout=RUN_LIMIT_S)
        assert runner.returncode in (0, -number, 128 + number)
        if not docker_gpu_field.board.state.is_given_back:
            not_given_back.add(number)
        if number is signal.SIGKILL:
            assert docker_gpu_field.call("sweep").returncode == 0
        assert docker_gpu_field.left_behind() == []
        _check_records(docker_gpu_field, before, whole=runner.returncode == 0)
    assert not_given_back == {signal.SIGKILL}, "only the killed cannot give back themselves"
    assert docker_gpu_field.run("--rerun", "all", *DOCKER).returncode == 0
    assert {status for _, status in docker_gpu_field.outcomes()} == {"passed"}


def _check_records(field, before, *, whole):
    """A stopped cell leaves no record or a whole one."""
    outcomes = [read_record(path)["outcome"] for path in (field.store / "records").iterdir()]
    assert [outcome for outcome in outcomes if outcome["status"] != "passed"] == []
    assert len(outcomes) - before in ((1,) if whole else (0, 1))


@pytest.mark.alone("docker")  # any other run would remove the containers of the killed one
def test_next_run_after_kill_9_restores_what_the_dead_run_set(docker_gpu_field):
    board = docker_gpu_field.board
    settings = {"min_samples": 60, "max_samples": 80, "call_timeout_s": 120, "hard_exclusive": True}
    docker_gpu_field.write_gpu_matrix("tiny/honest", clocks="lock", **settings)
    docker_gpu_field.write_pausing("time")
    with docker_gpu_field.start("run", "--json", *DOCKER) as runner:
        docker_gpu_field.await_pause()
        if board.alone:
            until(lambda: board.state.compute_mode == 3)
        runner.kill()
    assert board.state == replace(board.locked, compute_mode=3 if board.alone else None)
    assert docker_gpu_field.driver.tenants(board.uuid), "Docker keeps the containers"

    with docker_gpu_field.start("run", "--json", *DOCKER) as again:
        swept = await_event(again, "cell_started")  # the dead one's candidate is gone by now
        go_on(docker_gpu_field.await_pause())
        out, err = again.communicate(timeout=RUN_LIMIT_S)
    assert (again.returncode, err) == (0, "")
    told = [event["text"] for event in (*swept, *events(out)) if event["event"] == "message"]
    assert any(f"clocks of {board.uuid}" in text and "given back" in text for text in told)
    mode = [text for text in told if f"compute mode of {board.uuid}" in text and "given back" in text]
    assert bool(mode) == bool(board.alone)
    assert docker_gpu_field.outcomes() == [(1, "passed")]
    assert docker_gpu_field.left_behind() == []


@of_one_vendor
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a Docker daemon")
@pytest.mark.skipif(shutil.which("dockerd") is None, reason="no dockerd here to start a second daemon with")
def test_daemon_restart_in_a_cell_fails_it_and_resets_clocks(docker_gpu_field):
    lock = docker_gpu_field.root / "images" / "images.lock"
    good = lock.read_text()
    docker_gpu_field.write_gpu_matrix("tiny/honest", clocks="lock", infra_retries=0)
    with own_daemon() as daemon:
        daemon.import_stuck_image(f"kernel-matrix/{TOOLCHAIN}:latest")
        lock.unlink()
        with docker_gpu_field.start("run", "--json", *DOCKER, "--allow-unpinned", DOCKER_HOST=daemon.url) as runner:
            await_event(runner, "cell_started")
            until(lambda: daemon.followed() == len(MODULES))
            assert docker_gpu_field.board.state == docker_gpu_field.board.locked
            daemon.kill()
            daemon.start()
            runner.communicate(timeout=RUN_LIMIT_S)
        assert runner.returncode == 4
        assert docker_gpu_field.outcomes() == [(1, "container_lost")]
        assert docker_gpu_field.board.state.is_given_back
        assert docker_gpu_field.lock_is_free()
        assert docker_gpu_field.call("sweep", DOCKER_HOST=daemon.url).returncode == 0
        assert daemon.containers() == 0
    lock.write_text(good)
    assert docker_gpu_field.run(*DOCKER).returncode == 0
    assert docker_gpu_field.outcomes() == [(1, "container_lost"), (2, "passed")]
    assert docker_gpu_field.left_behind() == []
