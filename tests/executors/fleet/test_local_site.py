"""A fleet of this machine alone, without a scheduler."""

from __future__ import annotations

import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from tests.baddays.field import new_field

pytestmark = [pytest.mark.torch, pytest.mark.timeout(300)]
NAMES = ("answers_twice", "closes_the_socket", "honest", "wrong")
FLEET = """
[[sites]]
name = "here"
engine = "local"
sandbox = "process"
workspace = "workspace"
"""


@pytest.fixture
def field(tmp_path):
    root = Path(__file__).parents[3] / "runner"
    with new_field(tmp_path, environment={"PYTHONPATH": str(root)}) as made:
        (made.root / "fleet.toml").write_text(FLEET)
        made.write_matrix(*(f"tiny/{name}" for name in NAMES))
        yield made


def candidates(field):
    return Counter(record["cell"]["candidate"].removeprefix("tiny/") for record in field.records())


def wait_until(true):
    end = time.monotonic() + 100
    while not true():
        assert time.monotonic() < end
        time.sleep(0.1)


def test_records_of_all_cells_come_home(field):
    ran = field.call("run", "--fleet", "fleet.toml")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert candidates(field) == dict.fromkeys(NAMES, 1)


def test_process_of_a_killed_head_goes_on(field):
    with field.start("run", "--fleet", "fleet.toml") as head:
        wait_until(field.records)
        head.send_signal(signal.SIGKILL)
    assert "running" in field.call("fleet", "status").stdout
    assert field.call("run", "--fleet", "fleet.toml").returncode == 0
    assert candidates(field) == dict.fromkeys(NAMES, 1)


def test_cancel_ends_the_process_and_what_it_measured_is_collected(field):
    with field.start("run", "--fleet", "fleet.toml") as head:
        wait_until(field.records)
        head.send_signal(signal.SIGKILL)
    assert field.call("fleet", "cancel").returncode == 0
    wait_until(lambda: "running" not in field.call("fleet", "status").stdout)
    assert "0 chunks go on" in field.call("fleet", "collect").stdout
    assert max(candidates(field).values()) == 1
