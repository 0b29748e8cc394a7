"""Which machine and which code a record comes from."""

import hashlib
import os
import re
import socket
from pathlib import Path

import pytest

import kernel_matrix
from kernel_matrix.hosts import identity as host


@pytest.fixture
def fresh():
    host.host_identity.cache_clear()
    yield
    host.host_identity.cache_clear()


def test_identity_is_this_machines():
    identity = host.host_identity()
    assert identity.hostname == socket.gethostname()
    assert identity.version == kernel_matrix.__version__
    assert identity.cores == len(os.sched_getaffinity(0))
    assert identity.platform.startswith(f"Linux {os.uname().release} {os.uname().machine}, ")
    assert identity.cpu
    assert host.host_identity() is identity


@pytest.mark.usefixtures("fresh")
def test_the_machine_id_itself_is_not_told(tmp_path, monkeypatch):
    (tmp_path / "machine-id").write_text("3d1219c7c4c5404aaa1f6d2a48adfda4\n")
    monkeypatch.setattr(host, "_MACHINE_IDS", (tmp_path / "absent", tmp_path / "machine-id"))
    wanted = hashlib.sha256(b"3d1219c7c4c5404aaa1f6d2a48adfda4").hexdigest()[:16]
    assert host.host_identity().machine == wanted


@pytest.mark.usefixtures("fresh")
def test_without_a_machine_id_the_host_name_serves(tmp_path, monkeypatch):
    (tmp_path / "empty").write_text("\n")
    monkeypatch.setattr(host, "_MACHINE_IDS", (tmp_path / "empty",))
    assert host.host_identity().machine == hashlib.sha256(socket.gethostname().encode()).hexdigest()[:16]


def test_the_core_has_a_digest():
    assert re.fullmatch("[0-9a-f]{64}", host.core_sha256())
    package = Path(kernel_matrix.__file__).parent
    folders = "".join(host.folder_sha256(package / name) for name in ("model", "inside"))
    assert host.core_sha256() == hashlib.sha256(folders.encode()).hexdigest()


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "checks").mkdir()
    (tmp_path / "judge.py").write_text("a = 1\n")
    (tmp_path / "checks" / "values.py").write_text("b = 2\n")
    return tmp_path


@pytest.mark.parametrize(
    "change",
    [
        lambda root: (root / "judge.py").write_text("a = 2\n"),
        lambda root: (root / "checks" / "values.py").write_text("b = 2\n\n"),
        lambda root: (root / "judge.py").rename(root / "jury.py"),
        lambda root: (root / "checks" / "values.py").rename(root / "values.py"),
        lambda root: (root / "new.py").write_text(""),
        lambda root: (root / "judge.py").unlink(),
    ],
    ids=["content", "content below", "name", "place", "new file", "file gone"],
)
def test_any_change_of_the_code_changes_the_digest(folder, change):
    before = host.folder_sha256(folder)
    change(folder)
    assert host.folder_sha256(folder) != before


def test_names_and_contents_cannot_be_mistaken_for_each_other(tmp_path):
    one, two = tmp_path / "one", tmp_path / "two"
    one.mkdir()
    two.mkdir()
    (one / "a.py").write_text("xb.py")
    (two / "a.py").write_text("x")
    (two / "b.py").write_text("")
    assert host.folder_sha256(one) != host.folder_sha256(two)


def test_caches_and_the_folders_place_do_not_change_the_digest(folder, tmp_path_factory):
    before = host.folder_sha256(folder)
    (folder / "__pycache__").mkdir()
    (folder / "__pycache__" / "judge.cpython-311.pyc").write_bytes(b"\0")
    moved = folder.rename(tmp_path_factory.mktemp("elsewhere") / "core")
    assert host.folder_sha256(moved) == before
