from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from docker import DockerClient
from docker.errors import ImageNotFound
from tiny_images import MakeImage, forget

from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.archive import ImageArchive
from kernel_matrix.images.image_store import DaemonStore
from kernel_matrix.images.resolve import ImagePresence, image_status, resolve_image

D1, D2, D3 = ("sha256:" + digit * 64 for digit in "123")


def local(archive: ImageArchive) -> LockEntry:
    return LockEntry(
        toolchain="tiny",
        reference=archive.reference,
        state=LockState.LOCAL,
        digest=archive.manifest_digest,
        config_digest=archive.config_digest,
        inputs_sha256="i",
    )


@pytest.mark.docker
def test_the_pinned_image_is_what_runs(
    make_image: MakeImage, load: Callable[[ImageArchive], str], client: DockerClient
) -> None:
    archive = make_image({"a": b"1"})
    image_id = load(archive)
    resolved = resolve_image(local(archive), "tiny", store=DaemonStore.of(client))
    assert (resolved.id, resolved.state, resolved.reference) == (image_id, "local", archive.reference)
    assert resolved.store == DaemonStore.of(client).name


@pytest.mark.docker
def test_an_image_that_is_not_there_says_how_to_get_it(make_image: MakeImage, client: DockerClient) -> None:
    with pytest.raises(ImageError, match="does not have it") as caught:
        resolve_image(local(make_image({"a": b"never loaded"})), "tiny", store=DaemonStore.of(client))
    assert "images build tiny" in caught.value.next_step


@pytest.mark.docker
def test_resolve_different_image_is_refused_unless_unpinned(
    make_image: MakeImage, load: Callable[[ImageArchive], str], client: DockerClient
) -> None:
    locked, other = make_image({"a": b"locked"}), make_image({"a": b"other"})
    other_id = load(other)
    repository, tag = locked.reference.split(":")
    client.images.get(other_id).tag(repository, tag=tag)
    try:
        with pytest.raises(ImageError, match=f"is {other_id}, the lock says"):
            resolve_image(local(locked), "tiny", store=DaemonStore.of(client))
        resolved = resolve_image(local(locked), "tiny", store=DaemonStore.of(client), allow_unpinned=True)
        assert (resolved.id, resolved.state) == (other_id, "unpinned")
    finally:
        forget(client, locked.reference)


@pytest.mark.docker
def test_a_toolchain_without_an_entry_runs_only_unpinned(
    make_image: MakeImage, load: Callable[[ImageArchive], str], client: DockerClient
) -> None:
    with pytest.raises(ImageError, match="no entry in the image lock"):
        resolve_image(None, "no-such-toolchain", store=DaemonStore.of(client), allow_unpinned=True)
    image_id = load(make_image({"a": b"1"}, repository="kernel-matrix/test-unlocked"))
    client.images.get(image_id).tag("kernel-matrix/test-unlocked")
    try:
        with pytest.raises(ImageError, match="images build test-unlocked"):
            resolve_image(None, "test-unlocked", store=DaemonStore.of(client))
        resolved = resolve_image(None, "test-unlocked", store=DaemonStore.of(client), allow_unpinned=True)
        assert (resolved.id, resolved.state) == (image_id, "unpinned")
    finally:
        forget(client, "kernel-matrix/test-unlocked")


# What follows depends on the kind of image store, and one machine has one: the daemon is a table of names here.


def daemon(held: dict[str, dict[str, Any]], *, containerd: bool) -> Any:
    def get(name: str) -> SimpleNamespace:
        if name not in held:
            raise ImageNotFound(name)
        return SimpleNamespace(attrs={"Size": 1, "RepoDigests": [], **held[name]})

    driver_type = [["driver-type", "io.containerd.snapshotter.v1"]] if containerd else [["Backing Filesystem", "extfs"]]
    info = {"Driver": "overlayfs" if containerd else "overlay2", "DriverStatus": driver_type}
    return SimpleNamespace(info=lambda: info, images=SimpleNamespace(get=get))


def standing(entry: LockEntry, client: Any) -> Any:
    return image_status(entry, DaemonStore.of(client))


LOCAL = LockEntry(toolchain="cpu", reference="kernel-matrix/cpu:2", state=LockState.LOCAL, digest=D1, config_digest=D2)
PULLED = LockEntry(toolchain="cu1", reference=f"a/b:1@{D1}", state=LockState.LOCKED, digest=D1, config_digest=D2)


@pytest.mark.parametrize(("containerd", "image_id"), [(False, D2), (True, D1)])
def test_a_local_image_is_known_by_its_stores_digest(containerd: bool, image_id: str) -> None:  # noqa: FBT001
    assert (
        standing(LOCAL, daemon({image_id: {"Id": image_id}}, containerd=containerd)).presence is ImagePresence.PRESENT
    )
    assert standing(LOCAL, daemon({D3: {"Id": D3}}, containerd=containerd)).presence is ImagePresence.ABSENT


@pytest.mark.parametrize(("containerd", "image_id"), [(False, D2), (True, D1)])
def test_a_pulled_image_resolves_in_both_stores(containerd: bool, image_id: str) -> None:  # noqa: FBT001  # same
    held = {f"a/b@{D1}": {"Id": image_id, "RepoDigests": [f"mirror/b@{D3}", f"a/b@{D1}"]}}
    resolved = resolve_image(PULLED, "cu1", store=DaemonStore.of(daemon(held, containerd=containerd)))
    assert (resolved.id, resolved.repo_digest, resolved.state) == (image_id, f"a/b@{D1}", "locked")
    assert resolved.store == ("containerd/overlayfs" if containerd else "overlay2")


def test_a_config_digest_that_differs_is_refused() -> None:
    found = standing(PULLED, daemon({f"a/b@{D1}": {"Id": D3}}, containerd=False))
    assert found.presence is ImagePresence.DIFFERENT
    assert D3 in found.text


def test_an_image_pinned_on_another_kind_of_store_says_so() -> None:
    entry = replace(LOCAL, digest=None)
    found = standing(entry, daemon({"kernel-matrix/cpu:2": {"Id": D1}}, containerd=True))
    assert found.presence is ImagePresence.DIFFERENT
    assert "another kind of image store" in found.text


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        (PULLED, "images pull cu1"),
        (LOCAL, "--adopt IMAGE"),
        (replace(LOCAL, inputs_sha256="i"), "images build cpu"),
    ],
)
def test_each_kind_of_image_has_its_remedy(entry: LockEntry, expected: str) -> None:
    with pytest.raises(ImageError) as caught:
        resolve_image(entry, entry.toolchain, store=DaemonStore.of(daemon({}, containerd=False)))
    assert expected in caught.value.next_step
