from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from kernel_matrix.cli import build_app
from kernel_matrix.environments.unpacked_images import FOLDER_VARIABLE
from kernel_matrix.errors import ImageError, KernelMatrixError, UsageError
from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.lock import load_lock, save_lock
from tests.images.tiny_images import local_entry, make_archive, tar_of

D1 = "sha256:" + "1" * 64
ENTRY = LockEntry(
    toolchain="cu1",
    reference=f"kernel-matrix-test/absent:1@{D1}",
    state=LockState.DECLARED,
    digest=D1,
    config_digest=None,
    source="public code",
)


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    save_lock(tmp_path / "images.lock", {"cu1": ENTRY})
    return tmp_path / "images.lock"


@pytest.fixture
def no_daemon(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """``DOCKER_HOST`` names a socket that is not there."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nowhere/docker.sock")
    yield
    gc.collect()  # the SDK leaves a failed socket open: let it be found here, where the warning is expected


def images(*words: str) -> Any:
    return CliRunner().invoke(build_app(), ["images", *words])


def failure(*words: str) -> KernelMatrixError:
    error = images(*words).exception
    assert isinstance(error, KernelMatrixError), error
    return error


@pytest.mark.docker
def test_list_shows_the_lock_and_what_is_here(lock: Path) -> None:
    (row,) = json.loads(images("list", "--images", str(lock.parent), "--json").stdout)
    assert (row["toolchain"], row["state"], row["digest"], row["here"]) == ("cu1", "declared", D1, "absent")
    assert row["size_bytes"] is None
    table = images("list", "--lock", str(lock)).stdout
    assert D1[7:19] in table
    assert "absent" in table


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("no_daemon")
def test_list_works_without_a_daemon(lock: Path) -> None:
    result = images("list", "--lock", str(lock), "--sandbox", "docker", "--json")
    assert result.exception is None, result.exc_info
    assert json.loads(result.stdout)[0]["here"] is None
    assert "daemon was not asked" in result.stderr
    assert isinstance(images("verify", "--lock", str(lock), "--sandbox", "docker").exception, ImageError)


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.usefixtures("no_daemon")
def test_without_a_daemon_unpacked_images_are_meant(lock: Path) -> None:
    (row,) = json.loads(images("list", "--lock", str(lock), "--json").stdout)
    assert row["here"] == "absent"
    assert isinstance(images("verify", "cu1", "--lock", str(lock)).exception, ImageError)


def test_an_archive_is_unpacked_and_verified(lock: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "unpacked"))
    folder = tmp_path / "archive"
    folder.mkdir()
    archive = make_archive(tar_of(folder / "tree.tar", {"a": b"1"}))
    save_lock(lock, {"tiny": local_entry(archive)})
    result = images("pull", "tiny", "--lock", str(lock), "--archive", str(archive.path))
    assert result.exception is None, result.exc_info
    assert "layer 1 of 1 unpacked" in result.stderr
    assert str(tmp_path / "unpacked") in result.stderr.replace("\n", "")
    (row,) = json.loads(images("verify", "tiny", "--lock", str(lock), "--sandbox", "unpacked", "--json").stdout)
    assert (row["here"], row["complaints"]) == ("present", [])
    for words in (("tiny", "more"), ("tiny", "--sandbox", "docker")):
        assert images("pull", *words, "--lock", str(lock), "--archive", str(archive.path)).exit_code == 2


@pytest.mark.parametrize("sandbox", ["process", "podman"])
def test_a_sandbox_without_images_is_a_usage_error(lock: Path, sandbox: str) -> None:
    error = failure("list", "--lock", str(lock), "--sandbox", sandbox)
    assert isinstance(error, UsageError)


@pytest.mark.docker
def test_verify_fails_for_a_named_image_that_is_absent(lock: Path) -> None:
    assert images("verify", "--lock", str(lock), "--images", str(lock.parent)).exit_code == 0
    error = failure("verify", "cu1", "--lock", str(lock), "--images", str(lock.parent))
    assert error.exit_code == 4
    assert "cu1: absent" in error.what
    assert "images pull cu1" in error.next_step


@pytest.mark.docker
def test_verify_fails_where_lock_and_folder_differ(lock: Path) -> None:
    folder = lock.parent / "cu1"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"FROM kernel-matrix-test/absent:1@sha256:{'2' * 64}\n")
    (folder / "requirements.lock").write_text("")
    (folder / "image.toml").write_text('python = "3.11"\n')
    error = failure("verify", "--lock", str(lock), "--images", str(lock.parent))
    assert "the Dockerfile's base is" in error.what


@pytest.mark.parametrize("verb", ["pull", "verify"])
def test_a_toolchain_the_lock_lacks_is_a_usage_error(lock: Path, verb: str) -> None:
    error = failure(verb, "cu2", "--lock", str(lock))
    assert isinstance(error, UsageError)
    assert error.next_step == "It has cu1."


def test_one_image_is_adopted_for_one_toolchain(lock: Path) -> None:
    assert isinstance(failure("lock", "cu1", "cu2", "--adopt", "x", "--lock", str(lock)), UsageError)
    assert isinstance(failure("lock", "cu1", "--adopt", "x", "--reference", "y", "--lock", str(lock)), UsageError)


@pytest.mark.docker
def test_a_refused_adoption_leaves_the_lock(lock: Path) -> None:
    assert "no image 'no-such-image'" in failure("lock", "cu1", "--adopt", "no-such-image", "--lock", str(lock)).what
    assert load_lock(lock) == {"cu1": ENTRY}


def test_build_refuses_a_registry_entry(lock: Path) -> None:
    folder = lock.parent / "cu1"
    folder.mkdir()
    (folder / "Dockerfile").write_text(f"FROM {ENTRY.reference}\n")
    (folder / "requirements.lock").write_text("")
    (folder / "image.toml").write_text('python = "3.11"\n')
    assert "images pull cu1" in failure("build", "cu1", "--images", str(lock.parent)).next_step
