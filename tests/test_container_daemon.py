"""Which daemon is used: the one that DOCKER_HOST names, else Docker's, else Podman's."""

from __future__ import annotations

import gc
import os
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from kernel_matrix import container_daemon
from kernel_matrix.container_daemon import connect, find_podman, podman_socket
from kernel_matrix.sandboxes.docker import DockerSandbox
from tests.hosts.doctor.daemon import INFO, answering
from tests.own_folder import own_folder

Listen = Callable[[Path], None]


@pytest.fixture
def folder() -> Iterator[Path]:
    with own_folder("km-sockets-") as path:
        yield path


@pytest.fixture
def podman(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The path of a plain user's Podman socket; no Docker daemon answers, and no variable names one."""
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(folder))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(container_daemon, "_DOCKER_SOCKET", folder / "docker.sock")
    (folder / "podman").mkdir()
    return folder / "podman" / "podman.sock"


@pytest.fixture
def listen() -> Iterator[Listen]:
    with ExitStack() as stack:

        def start(path: Path) -> None:
            server = stack.enter_context(socket.socket(socket.AF_UNIX))
            server.bind(str(path))
            server.listen()

        yield start


def test_podman_is_found_where_no_docker_answers(podman: Path, listen: Listen) -> None:
    assert find_podman(os.environ) == ""
    listen(podman)
    assert find_podman(os.environ) == f"unix://{podman}"


def test_a_socket_that_a_dead_daemon_left_does_not_count(podman: Path, folder: Path, listen: Listen) -> None:
    listen(podman)
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(folder / "docker.sock"))
    assert find_podman(os.environ) == f"unix://{podman}"


def test_docker_comes_before_podman(podman: Path, folder: Path, listen: Listen) -> None:
    listen(podman)
    listen(folder / "docker.sock")
    assert find_podman(os.environ) == ""


def test_docker_host_is_an_order(podman: Path, listen: Listen, monkeypatch: pytest.MonkeyPatch) -> None:
    listen(podman)
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent/docker.sock")
    assert find_podman(os.environ) == ""


@pytest.mark.parametrize(
    ("uid", "environment", "expected"),
    [
        (0, {"XDG_RUNTIME_DIR": "/run/user/0"}, "/run/podman/podman.sock"),
        (1000, {"XDG_RUNTIME_DIR": "/run/user/own"}, "/run/user/own/podman/podman.sock"),
        (1000, {}, "/run/user/1000/podman/podman.sock"),
    ],
)
def test_each_user_has_a_socket(
    uid: int, environment: dict[str, str], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: uid)
    assert str(podman_socket(environment)) == expected


def test_a_found_podman_is_connected_to_and_named(podman: Path) -> None:
    info = {**INFO, "BuildahVersion": "1.28.2", "Rootless": True, "ServerVersion": "4.3.1"}
    with answering(podman.parent, info) as url:
        Path(url.removeprefix("unix://")).rename(podman)
        connect(timeout_s=10).close()
        status = DockerSandbox().status()
    assert (status.available, status.version, status.details["daemon"]) == (True, "4.3.1", "rootless Podman")
    gc.collect()  # the SDK leaves its sockets to the collector: let them be found here
