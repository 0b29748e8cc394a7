"""Owner tokens name one process of one boot."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_matrix.hosts.process_token import orphaned_folders, own_folder, owner_alive, owner_token
from tests.sandboxes.observe import soon

RUNNER = Path(__file__).parents[2] / "runner"
LEAVES = """
import os
from kernel_matrix.hosts.process_token import own_folder
with own_folder("mine-"): os._exit(0)
"""


def test_this_process_is_alive() -> None:
    assert owner_alive(owner_token())


def test_a_process_that_ended_is_not_even_before_it_is_reaped() -> None:
    with subprocess.Popen(("sleep", "60")) as other:
        token = owner_token(other.pid)
        assert owner_alive(token)
        other.kill()
        other.wait()
    assert not owner_alive(token)


def test_a_zombie_is_dead() -> None:
    with subprocess.Popen(("sh", "-c", "read line"), stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        token = owner_token(other.pid)
        other.stdin.close()
        assert other.stdout.read() == b"", "it has ended, and nobody has waited for it"
        assert soon(lambda: not owner_alive(token))


@pytest.mark.parametrize("change", ["pid", "start", "boot"])
def test_another_process_with_the_same_number_is_not_it(change: str) -> None:
    token = dict(zip(("pid", "start", "boot"), owner_token().split(":"), strict=True))
    token[change] = "4194305" if change == "pid" else token[change] + "0"
    assert not owner_alive(":".join(token.values()))


@pytest.mark.parametrize("token", ["", "1", "1:2", "x:y:z", "-1:0:0"])
def test_what_is_no_token_names_nobody(token: str) -> None:
    assert not owner_alive(token)


def test_there_is_no_token_of_nobody() -> None:
    with pytest.raises(ProcessLookupError):
        owner_token(4194305)


def test_a_folder_goes_with_its_context(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with own_folder("mine-") as folder:
        assert folder.parent == tmp_path
        assert orphaned_folders("mine-") == [], "its owner lives"
    assert list(tmp_path.iterdir()) == []


def test_folders_of_the_dead_are_told_from_all_others(monkeypatch, tmp_path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    environment = {**os.environ, "PYTHONPATH": str(RUNNER), "TMPDIR": str(tmp_path)}
    subprocess.run((sys.executable, "-c", LEAVES), env=environment, check=True)
    (dead,) = tmp_path.iterdir()
    (tmp_path / dead.name.replace("mine-", "other-")).mkdir()
    (tmp_path / "mine-new").mkdir()
    (tmp_path / f"{dead.name}-file").touch()
    (tmp_path / f"{dead.name}-link").symlink_to(dead)
    with own_folder("mine-"):
        assert orphaned_folders("mine-") == [dead]
