"""The disk is full when a record is to be written."""

from __future__ import annotations

import os
import subprocess

import pytest

from tests.baddays.field import events

pytestmark = [
    pytest.mark.torch,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small disk"),
]


@pytest.fixture
def small_disk(field):
    """A disk of 64 KiB for the results, with room for the beginning of a run's own file and nothing more."""
    field.store.mkdir(parents=True)
    mount = ("mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(field.store))
    refused = subprocess.run(mount, check=False, capture_output=True, text=True)
    if refused.returncode:
        pytest.skip(f"no disk can be mounted here: {refused.stderr.strip()}")
    try:
        (field.store / "filler").write_bytes(b"\0" * (60 << 10))
        yield field.store
    finally:
        subprocess.run(("umount", str(field.store)), check=True)


def test_full_disk_ends_the_run_and_the_next_run_completes(field, small_disk):
    field.write_matrix("tiny/honest", "tiny/wrong")
    ran = field.run("--sandbox", "process")
    assert ran.returncode == 4
    assert "No space left on device" in ran.stderr
    assert "→ Make room" in ran.stderr
    assert str(small_disk.relative_to(field.root) / "records") in ran.stderr
    assert events(ran.stdout)[-1]["text"].startswith("stopped: 2 of 2 cells are left")
    assert field.records() == []
    assert [path.name for path in field.unfinished_files()] == ["filler"]
    assert field.leftovers() == []

    subprocess.run(("mount", "-o", "remount,size=1m", str(small_disk)), check=True)
    again = field.run("--sandbox", "process")
    assert (again.returncode, again.stderr) == (0, "")
    assert [(r["cell"]["candidate"], r["attempt"]) for r in field.records()] == [("tiny/honest", 1), ("tiny/wrong", 1)]
