"""The disk of a workspace is full: that is told, no cell is lost, and the cells run once there is room."""

from __future__ import annotations

import os
from collections import Counter

import pytest

from tests.baddays.field import PRELOADED, local_fleet, new_field
from tests.baddays.living import until
from tests.executors.fleet.faults import fill, make_room, small_disk

pytestmark = [
    pytest.mark.torch,
    pytest.mark.timeout(300),
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]
NAMES = ("honest", "wrong")
ROOM_FOR_A_CHUNK = 20 << 10
"""Bytes in which a chunk and the files of its job have room, and a record has not."""


@pytest.fixture
def field(tmp_path):
    """A fleet of this machine with a small disk as its workspace, whose node was described while there was room."""
    with new_field(tmp_path, program=PRELOADED) as made:
        (made.root / "fleet.toml").write_text(local_fleet(made))
        made.write_matrix(*(f"tiny/{name}" for name in NAMES))
        with small_disk(made.root / "workspace", "1m") as why_not:
            if why_not:
                pytest.skip(f"no disk can be mounted here: {why_not}")
            assert made.call("plan", "--fleet", "fleet.toml").returncode == 0
            yield made


def candidates(field):
    return Counter(record["cell"]["candidate"].removeprefix("tiny/") for record in field.records())


def chunks(field):
    """Folders of chunks, without those of node reports."""
    return [path.name for path in (field.root / "workspace").glob("*/*") if "-check-" not in path.name]


def test_records_without_room_are_told_and_run_again(field):
    fill(field.root / "workspace", ROOM_FOR_A_CHUNK)
    ran = field.call("run", "--fleet", "fleet.toml")
    assert ran.returncode == 4
    assert "3 chunks in a row ended without a record" in ran.stderr
    assert ".json cannot be written: No space left on device" in ran.stderr
    assert "stopped: 2 of 2 cells are left" in ran.stdout
    assert (field.records(), chunks(field)) == ([], [])

    make_room(field.root / "workspace")
    assert field.call("run", "--fleet", "fleet.toml").returncode == 0
    assert candidates(field) == dict.fromkeys(NAMES, 1)


def test_run_waits_until_there_is_room_for_a_chunk(field):
    fill(field.root / "workspace", 0)
    log = field.root / "head.log"
    with field.start_logged(log, "run", "--fleet", "fleet.toml") as head:
        until(lambda: "cannot be written: No space left on device" in log.read_text())
        make_room(field.root / "workspace")
        assert head.wait() == 0
    assert log.read_text().count("No space left") == 1
    assert "site here takes chunks again" in log.read_text()
    assert candidates(field) == dict.fromkeys(NAMES, 1)
    assert chunks(field) == []
