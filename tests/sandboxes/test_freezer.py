"""Stopping a container by its control group: which group is its own, and what is written there."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kernel_matrix.sandboxes import freezer
from kernel_matrix.sandboxes.freezer import Freezer, find_freezer, thaw_container

ID = "32650fcba0dc68c2546fe14cae913d28182e2d0d8e070e0e5245b35119aab727"
PID = 4711
V1 = ("6:freezer:{path}\n4:memory:{path}\n", "31 24 0:28 / {folder} rw - cgroup cgroup rw,freezer\n", "freezer.state")
V2 = ("0::{path}\n", "32 24 0:29 / {folder} rw - cgroup2 cgroup2 rw\n", "cgroup.freeze")


@pytest.fixture
def group(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Path:
    """The control group of a container, with files that show whatever is written into them."""
    own, mounts, order = request.param
    path = f"/docker/{ID}"
    for name, text in ((str(PID), own.format(path=path)), ("self", "")):
        (tmp_path / "proc" / name).mkdir(parents=True)
        (tmp_path / "proc" / name / "cgroup").write_text(text)
    (tmp_path / "proc" / "self" / "mountinfo").write_text(mounts.format(folder=tmp_path / "cgroup"))
    monkeypatch.setattr(freezer, "_PROC", tmp_path / "proc")
    folder = tmp_path / "cgroup" / path[1:]
    folder.mkdir(parents=True)
    (folder / order).write_text("")
    return folder


@pytest.mark.parametrize("group", [V1, V2], indirect=True, ids=["version 1", "version 2"])
def test_finds_group_of_container_alone(group: Path) -> None:
    found = find_freezer(PID, ID)
    assert found is not None
    assert found.order.parent == group
    assert find_freezer(PID, ID.replace("3", "4")) is None  # the daemon's process 4711 is another one
    assert find_freezer(PID + 1, ID) is None


@pytest.mark.parametrize("group", [V2], indirect=True)
def test_group_that_cannot_be_written_to_is_none(group: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert (group / "cgroup.freeze").exists()
    monkeypatch.setattr(os, "access", lambda *_: False)
    assert find_freezer(PID, ID) is None


@pytest.mark.parametrize("group", [V1], indirect=True)
def test_stops_and_lets_run_on(group: Path) -> None:
    found = find_freezer(PID, ID)
    assert found is not None
    found.freeze()
    assert (group / "freezer.state").read_text() == "FROZEN"
    thaw_container(PID, ID)
    assert (group / "freezer.state").read_text() == "THAWED"
    (group / "freezer.state").unlink()
    thaw_container(PID, ID)  # it has ended


def test_processes_that_do_not_stop_run_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(freezer, "_FREEZE_S", 0.0)
    order, state = tmp_path / "cgroup.freeze", tmp_path / "cgroup.events"
    state.write_text("populated 1\nfrozen 0\n")
    with pytest.raises(TimeoutError, match="did not stop"):
        Freezer(order=order, frozen="1", thawed="0", state=state, is_frozen="frozen 1").freeze()
    assert order.read_text() == "0"
