from __future__ import annotations

import pytest

from runner.errors import ImageError
from runner.images.daemon import connect, find, machine_of


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # the SDK leaves a failed socket open
def test_a_daemon_that_is_absent_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    with pytest.raises(ImageError, match="No Docker daemon answers") as caught, connect():
        pass
    assert "--engine process" in caught.value.next_step


@pytest.mark.docker
def test_what_the_daemon_refuses_is_an_image_error() -> None:
    with pytest.raises(ImageError, match="The Docker daemon failed"), connect() as client:
        client.images.remove("kernel-matrix-test/no-such-image")


@pytest.mark.docker
def test_a_name_nobody_knows_and_a_machine_that_stays_itself() -> None:
    with connect() as client:
        assert find(client, "kernel-matrix-test/no-such-image") is None
        assert machine_of(client) == machine_of(client)
        assert str(client.info()["ID"]) not in machine_of(client)
