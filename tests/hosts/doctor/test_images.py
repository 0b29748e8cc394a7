"""The pinned images' lines."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from kernel_matrix.environments.unpacked_images import FOLDER_VARIABLE
from kernel_matrix.hosts.doctor.images import check
from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.lock import save_lock
from kernel_matrix.images.unpacked_store import UnpackedStore
from kernel_matrix.platforms.check_result import CheckResult, CheckVerdict
from kernel_matrix.sandboxes import open_sandbox
from tests.hosts.doctor.daemon import INFO
from tests.hosts.doctor.nouns import gpu, host, small_matrix
from tests.images.tiny_images import local_entry, make_archive, tar_of

D1 = "sha256:" + "1" * 64


@pytest.fixture
def told(
    tmp_path: Path, daemon: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., list[CheckResult]]:
    """Runs the check where the daemon has no image at all."""
    monkeypatch.setenv("DOCKER_HOST", daemon())
    matrix = small_matrix(tmp_path)

    def about(*gpus: object, lock: Path | None = None) -> list[CheckResult]:
        return list(check(host(*gpus, info=INFO, matrix=matrix, lock_path=lock)))  # type: ignore[arg-type]

    return about


def test_a_toolchain_without_an_entry_is_not_pinned(told: Callable[..., list[CheckResult]]) -> None:
    cpu, cuda = told(gpu())
    assert (cpu.subject, cpu.verdict, cuda.subject) == ("image cpu", CheckVerdict.WARN, "image cu130")
    assert "not pinned: no entry in" in cpu.found
    assert "kernel-matrix images build cpu" in cpu.advice


def test_an_image_that_is_not_here_says_how_to_get_it(told: Callable[..., list[CheckResult]], tmp_path: Path) -> None:
    entry = LockEntry(
        toolchain="cu130",
        reference=f"pytorch/pytorch:1@{D1}",
        state=LockState.DECLARED,
        digest=D1,
        config_digest=None,
        source="public code",
    )
    lock = tmp_path / "my.lock"
    save_lock(lock, {"cu130": entry})
    _, cuda = told(gpu(), lock=lock)
    assert cuda.verdict is CheckVerdict.WARN
    assert "is not here, so its cells do not run" in cuda.found
    assert "images pull cu130" in cuda.advice


def test_images_for_gpus_are_not_missed_where_there_is_none(told: Callable[..., list[CheckResult]]) -> None:
    assert [finding.subject for finding in told()] == ["image cpu"]


def test_without_a_daemon_or_a_matrix_nothing_is_said() -> None:
    assert list(check(host(info=INFO))) == []
    assert list(check(host())) == []


@pytest.mark.docker
def test_an_image_that_is_here_is_well(cpu_lock: Path, tmp_path: Path) -> None:
    (finding,) = check(host(info=INFO, matrix=small_matrix(tmp_path), lock_path=cpu_lock))
    assert finding.verdict is CheckVerdict.OK
    assert finding.found.endswith("(local) is in the daemon")


def test_an_unpacked_image_is_enough(
    told: Callable[..., list[CheckResult]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "unpacked"))
    (tmp_path / "archive").mkdir()
    archive = make_archive(tar_of(tmp_path / "archive" / "tree.tar", {"a": b"1"}))
    entry = local_entry(archive, "cpu")
    UnpackedStore().load(entry, archive.path, print)
    save_lock(tmp_path / "my.lock", {"cpu": entry})
    if not open_sandbox("unpacked").status().available:
        pytest.skip("this machine lets nobody make namespaces")
    (finding,) = told(lock=tmp_path / "my.lock")
    assert finding.verdict is CheckVerdict.OK
    assert finding.found.endswith("(local) is in the cache of unpacked images")
