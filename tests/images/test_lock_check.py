from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from docker import DockerClient
from tiny_images import MakeImage, forget, write_recipe

from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.archive import ImageArchive
from kernel_matrix.images.image_store import DaemonStore
from kernel_matrix.images.lock_check import audit, folder_complaints
from kernel_matrix.images.recipe import inputs_digest
from kernel_matrix.images.resolve import ImagePresence

D1, D2 = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def registry_entry(digest: str) -> LockEntry:
    return LockEntry(
        toolchain="t", reference=f"a/b:1@{digest}", state=LockState.LOCKED, digest=digest, config_digest=None
    )


def local_entry(archive: ImageArchive, inputs_sha256: str = "") -> LockEntry:
    return LockEntry(
        toolchain="t",
        reference=archive.reference,
        state=LockState.LOCAL,
        digest=archive.manifest_digest,
        config_digest=archive.config_digest,
        inputs_sha256=inputs_sha256,
    )


def test_lock_and_dockerfile_must_name_the_same_base(tmp_path: Path) -> None:
    write_recipe(tmp_path / "t", f"a/b:1@{D1}", "0" * 64)
    assert folder_complaints(registry_entry(D1), tmp_path) == ()
    (complaint,) = folder_complaints(registry_entry(D2), tmp_path)
    assert D1 in complaint
    assert D2 in complaint
    assert folder_complaints(registry_entry(D2), tmp_path / "elsewhere") == ()


def test_a_folder_that_changed_after_the_build_is_named(tmp_path: Path, make_image: MakeImage) -> None:
    write_recipe(tmp_path / "t", f"a/b:1@{D1}", "0" * 64)
    entry = local_entry(make_image({"a": b"1"}), inputs_digest(tmp_path / "t"))
    assert folder_complaints(entry, tmp_path) == ()
    write_recipe(tmp_path / "t", f"a/b:1@{D1}", "0" * 64, run="ENV MORE=1")
    assert folder_complaints(entry, tmp_path) == (f"{tmp_path / 't'} was changed after the image was built",)


@pytest.mark.docker
def test_present_absent_different(
    make_image: MakeImage, load: Callable[[ImageArchive], str], client: DockerClient, tmp_path: Path
) -> None:
    here, gone, moved = (make_image({"a": content}) for content in (b"here", b"gone", b"moved"))
    load(here)
    client.images.get(here.reference).tag(*moved.reference.split(":"))
    try:
        findings = audit([local_entry(archive) for archive in (here, gone, moved)], tmp_path, DaemonStore.of(client))
    finally:
        forget(client, moved.reference)
    assert [finding.presence for finding in findings] == [
        ImagePresence.PRESENT,
        ImagePresence.ABSENT,
        ImagePresence.DIFFERENT,
    ]
    assert [len(finding.complaints) for finding in findings] == [0, 0, 1]
    assert [bool(finding.next_step) for finding in findings] == [False, True, True]
    assert [finding.size_bytes is None for finding in findings] == [False, True, False]
