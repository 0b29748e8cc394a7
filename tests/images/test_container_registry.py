from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from docker import DockerClient
from tiny_images import MakeImage, Registry, forget, shell_files

from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.archive import ImageArchive
from kernel_matrix.images.container_registry import accept_change, adopt_image, lock_tag, pull_image
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.images.image_store import DaemonStore, machine_of
from kernel_matrix.images.resolve import resolve_image

pytestmark = pytest.mark.docker


@pytest.fixture
def pushed(
    make_image: MakeImage, registry: Registry, client: DockerClient, request: pytest.FixtureRequest
) -> Iterator[ImageArchive]:
    # Each test has content of its own: a daemon does not read a manifest again that another test made it pull.
    archive = make_image({"a": request.node.name.encode()})
    reference = registry.push(archive, "lab/tiny", "1")
    yield replace(archive, reference=reference)
    forget(client, ImageReference.parse(reference).by_digest)


def declared(reference: str) -> LockEntry:
    return LockEntry(
        toolchain="cu1",
        reference=reference,
        state=LockState.DECLARED,
        digest=ImageReference.parse(reference).digest,
        config_digest=None,
        source="some repository",
    )


def test_the_first_pull_confirms_a_declared_digest(pushed: ImageArchive, client: DockerClient) -> None:
    entry = declared(pushed.reference)
    pulled = pull_image(entry, DaemonStore.of(client), lambda _line: None).entry
    assert pulled.state is LockState.LOCKED
    assert (pulled.reference, pulled.digest) == (pushed.reference, pushed.manifest_digest)
    if not DaemonStore.of(client).containerd:
        assert pulled.config_digest == pushed.config_digest
    resolved = resolve_image(pulled, "cu1", store=DaemonStore.of(client))
    assert resolved.repo_digest == ImageReference.parse(pushed.reference).by_digest


def test_a_digest_the_registry_does_not_have_is_refused(pushed: ImageArchive, client: DockerClient) -> None:
    invented = pushed.reference.partition("@")[0] + "@sha256:" + "0" * 64
    with pytest.raises(ImageError, match=r"The declared digest .found in some repository.*does not have it") as caught:
        pull_image(declared(invented), DaemonStore.of(client), lambda _line: None)
    assert "images lock cu1 --relock" in caught.value.next_step


def test_a_registry_that_serves_other_content_is_refused(
    pushed: ImageArchive, registry: Registry, client: DockerClient
) -> None:
    registry.blobs[pushed.manifest_digest] += b" "
    with pytest.raises(ImageError, match="was not pulled"):
        pull_image(declared(pushed.reference), DaemonStore.of(client), lambda _line: None)


def test_a_registry_that_does_not_answer_is_another_thing(client: DockerClient) -> None:
    with pytest.raises(ImageError, match="could not be asked") as caught:
        pull_image(declared("127.0.0.1:9/lab/tiny:1@sha256:" + "0" * 64), DaemonStore.of(client), lambda _line: None)
    assert "--adopt" in caught.value.next_step


def test_a_local_image_is_not_pulled(client: DockerClient) -> None:
    entry = replace(declared("kernel-matrix/cpu:1"), state=LockState.LOCAL, inputs_sha256="i")
    with pytest.raises(ImageError, match="no registry has it"):
        pull_image(entry, DaemonStore.of(client), lambda _line: None)


def test_a_tag_is_resolved_to_its_digest(pushed: ImageArchive, client: DockerClient) -> None:
    tag = pushed.reference.partition("@")[0]
    fresh = lock_tag("cu1", None, tag, DaemonStore.of(client))
    assert (fresh.state, fresh.reference, fresh.digest) == (LockState.LOCKED, pushed.reference, pushed.manifest_digest)
    confirmed = lock_tag("cu1", declared(pushed.reference), None, DaemonStore.of(client))
    assert (confirmed.state, confirmed.source) == (LockState.LOCKED, "some repository")
    with pytest.raises(ImageError, match="did not resolve"):
        lock_tag("cu1", None, f"{tag}-gone", DaemonStore.of(client))
    with pytest.raises(ImageError, match="names no registry image"):
        lock_tag("cu1", None, None, DaemonStore.of(client))


def test_a_tag_that_moved_is_said_before_it_is_taken(
    pushed: ImageArchive, make_image: MakeImage, registry: Registry, client: DockerClient
) -> None:
    before = replace(declared(pushed.reference), state=LockState.LOCKED)
    registry.push(make_image({"a": b"newer"}), "lab/tiny", "1")
    after = lock_tag("cu1", before, None, DaemonStore.of(client))
    with pytest.raises(ImageError, match=f"digest: {before.digest} → {after.digest}"):
        accept_change(before, after, relock=False)
    assert accept_change(before, after, relock=True)
    assert accept_change(replace(before, state=LockState.DECLARED), after, relock=False)


def test_an_image_the_daemon_has_is_adopted_and_kept(
    make_image: MakeImage, load: Callable[[ImageArchive], str], client: DockerClient
) -> None:
    archive = make_image(shell_files('{"py:torch": "2.11"}'), mode=0o755)
    image_id = load(archive)
    entry = adopt_image("test-adopted", archive.reference, DaemonStore.of(client))
    try:
        assert (entry.state, entry.source) == (LockState.LOCAL, f"adopted from {archive.reference}")
        assert (entry.built_on, dict(entry.packages)) == (machine_of(client), {"py:torch": "2.11"})
        client.images.remove(archive.reference)
        assert resolve_image(entry, "test-adopted", store=DaemonStore.of(client)).id == image_id
        assert client.images.get(entry.reference).id == image_id
    finally:
        forget(client, entry.reference)


def test_what_cannot_be_adopted(
    make_image: MakeImage, load: Callable[[ImageArchive], str], client: DockerClient
) -> None:
    with pytest.raises(ImageError, match="has no image 'no-such-image' to adopt"):
        adopt_image("cu1", "no-such-image", DaemonStore.of(client))
    mute = make_image(shell_files("not JSON"), mode=0o755)
    load(mute)
    with pytest.raises(ImageError, match=r"packages of .* cannot be read"):
        adopt_image("cu1", mute.reference, DaemonStore.of(client))
