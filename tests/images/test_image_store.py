from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from kernel_matrix.errors import ImageError
from kernel_matrix.images.image_store import connect, find, machine_of


@pytest.fixture
def no_daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Set ``DOCKER_HOST`` to a socket that does not exist."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    yield
    gc.collect()  # the SDK leaves a failed socket open: let it be found here, where the warning is expected


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("no_daemon")
def test_a_daemon_that_is_absent_says_what_to_do() -> None:
    with pytest.raises(ImageError, match="No Docker daemon answers") as caught, connect():
        pass
    assert "--sandbox unpacked" in caught.value.next_step


@pytest.mark.docker
def test_what_the_daemon_refuses_is_an_image_error() -> None:
    with pytest.raises(ImageError, match="The Docker daemon failed"), connect() as client:
        client.images.remove("kernel-matrix-test/no-such-image")


@pytest.mark.docker
def test_find_unknown_name_is_none_and_machine_is_stable() -> None:
    with connect() as client:
        assert find(client, "kernel-matrix-test/no-such-image") is None
        assert machine_of(client) == machine_of(client)
        assert str(client.info()["ID"]) not in machine_of(client)
