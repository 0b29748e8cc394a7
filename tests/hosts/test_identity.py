"""The machine that a record comes from."""

import hashlib
import os
import socket

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
