"""A fleet of this machine alone, without a scheduler."""

from __future__ import annotations

import json
import signal
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.baddays.field import LOCAL_FLEET, PRELOADED, local_fleet, new_field
from tests.baddays.living import until

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
NAMES = ("answers_twice", "closes_the_socket", "honest", "wrong")


@pytest.fixture
def field(tmp_path):
    with new_field(tmp_path, program=PRELOADED) as made:
        (made.root / "fleet.toml").write_text(local_fleet(made))
        made.call("--version")  # starts the process that commands are forked from, which takes seconds
        made.write_matrix(*(f"tiny/{name}" for name in NAMES))
        yield made


def candidates(field):
    return Counter(record["cell"]["candidate"].removeprefix("tiny/") for record in field.records())


def test_records_of_all_cells_come_home(field):
    (field.root / "fleet.toml").write_text(LOCAL_FLEET)  # without a command, as most have it
    ran = field.call("run", "--fleet", "fleet.toml")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert candidates(field) == dict.fromkeys(NAMES, 1)


def test_process_of_a_killed_head_goes_on(field):
    field.slow_down(3)
    with field.start("run", "--fleet", "fleet.toml") as head:
        until(field.records)
        head.send_signal(signal.SIGKILL)
    assert "running" in field.call("fleet", "status").stdout
    assert field.call("run", "--fleet", "fleet.toml").returncode == 0
    assert candidates(field) == dict.fromkeys(NAMES, 1)


def test_cancelled_process_ends_and_its_records_are_collected(field):
    field.slow_down(3)
    with field.start("run", "--fleet", "fleet.toml") as head:
        until(field.records)
        head.send_signal(signal.SIGKILL)
    assert field.call("fleet", "cancel").returncode == 0
    until(lambda: "running" not in field.call("fleet", "status").stdout)
    assert "0 chunks go on" in field.call("fleet", "collect").stdout
    assert max(candidates(field).values()) == 1


def test_second_head_is_refused_and_cancel_ends_the_first(field):
    field.slow_down(3)
    with field.start("run", "--fleet", "fleet.toml") as head:
        until(field.records)
        for command in (("run", "--fleet", "fleet.toml"), ("fleet", "collect")):
            ran = field.call(*command)
            assert (ran.returncode, ran.stdout) == (75, "")
            assert f"led by process {head.pid} on " in ran.stderr
        assert field.call("fleet", "cancel").returncode == 0
        head.communicate()
    assert head.returncode == 130
    assert "running" not in field.call("fleet", "status").stdout


def test_head_on_another_machine_is_not_ended(field):
    field.slow_down(3)
    with field.start("run", "--fleet", "fleet.toml") as head:
        until(field.records)
        path = field.store / "fleet.lock"
        path.write_text(json.dumps({"hostname": "elsewhere", "pid": head.pid}))
        ran = field.call("fleet", "cancel")
        assert ran.returncode == 4
        assert f"is led by process {head.pid} on elsewhere" in ran.stderr
        head.communicate()
    assert head.returncode == 0


def test_detached_run_goes_on(field):
    ran = field.call("run", "--fleet", "fleet.toml", "--detach")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "it prints to results/baddays/fleet.log" in ran.stdout
    until(lambda: candidates(field) == dict.fromkeys(NAMES, 1))
    until(lambda: "all as expected" in (field.store / "fleet.log").read_text())
    assert field.call("run", "--fleet", "fleet.toml", "--detach").returncode == 0


def test_detached_run_that_cannot_begin_says_why(field):
    (field.root / "workspace").write_text("")
    ran = field.call("run", "--fleet", "fleet.toml", "--detach")
    assert (ran.returncode, ran.stdout) == (4, "")
    assert "no site of the fleet can run anything" in ran.stderr


BROKEN = 'PYTHONPATH={runner} [ "$2" = node ] || {{ echo no room left; exit 1; }}; exec {python} -m kernel_matrix "$@"'


def break_site(field, *others):
    """Let the chunks of the site fail, whose nodes can be described."""
    script = field.root / "broken.sh"
    runner = Path(__file__).parents[3] / "runner"
    script.write_text(BROKEN.format(runner=runner, python=sys.executable))
    command = f'command = ["/bin/sh", "{script}"]\n'
    (field.root / "fleet.toml").write_text(LOCAL_FLEET.replace('"here"', '"broken"') + command + "".join(others))


def test_cells_of_a_broken_site_run_elsewhere(field):
    break_site(field, local_fleet(field).replace('"workspace"', '"other"'))
    field.call("run", "--fleet", "fleet.toml")
    assert candidates(field) == dict.fromkeys(NAMES, 1)


def test_run_that_measured_nothing_says_why(field):
    break_site(field)
    ran = field.call("run", "--fleet", "fleet.toml")
    assert field.records() == []
    assert ran.returncode == 4
    assert "no room left" in ran.stdout + ran.stderr
