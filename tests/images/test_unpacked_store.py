from __future__ import annotations

import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from docker import DockerClient
from tiny_images import MakeImage, Registry, local_entry

from kernel_matrix.environments.unpacked_images import FOLDER_VARIABLE, find_unpacked, unpacked_images
from kernel_matrix.errors import ImageError
from kernel_matrix.images import LockEntry, LockState, layer_unpacking
from kernel_matrix.images.archive import ImageArchive
from kernel_matrix.images.container_registry import lock_tag, pull_image
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.images.lock_check import audit
from kernel_matrix.images.registry_client import RegistryClient, RemoteBlob
from kernel_matrix.images.resolve import resolve_image
from kernel_matrix.images.unpacked_store import UnpackedStore

STORE = UnpackedStore()


def silent(_line: str) -> None:
    pass


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of unpacked images, empty."""
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "unpacked"))
    return tmp_path / "unpacked"


@pytest.fixture
def archive(make_image: MakeImage) -> ImageArchive:
    return make_image({"bin/a": b"content", "etc/b": b"more"})


@pytest.fixture
def remote(archive: ImageArchive, registry: Registry) -> LockEntry:
    reference = registry.push(archive, "lab/tiny", "1")
    digest = ImageReference.parse(reference).digest
    return LockEntry(toolchain="cu1", reference=reference, state=LockState.DECLARED, digest=digest, config_digest=None)


def test_a_pull_confirms_the_digest_and_unpacks_the_files(
    remote: LockEntry, archive: ImageArchive, folder: Path
) -> None:
    lines: list[str] = []
    pulled = pull_image(remote, STORE, lines.append)
    assert pulled.entry == replace(remote, state=LockState.LOCKED, config_digest=archive.config_digest)
    resolved = resolve_image(pulled.entry, "cu1", store=STORE)
    assert (resolved.id, resolved.store, resolved.state) == (archive.config_digest, "unpacked", "locked")
    assert resolved.repo_digest == ImageReference.parse(remote.reference).by_digest
    image = find_unpacked(resolved.id)
    assert image is not None
    assert (image.root / "bin/a").read_bytes() == b"content"
    assert dict(image.env) == {"PATH": "/bin"}
    assert [path.name for path in folder.iterdir() if path.name != "downloads"] == [image.folder.name]
    assert list((folder / "downloads").iterdir()) == []
    assert lines[-1] == "cu1: layer 1 of 1 unpacked"


def test_a_tag_is_locked_without_a_daemon(remote: LockEntry) -> None:
    entry = lock_tag("cu1", None, remote.reference.partition("@")[0], STORE)
    assert (entry.reference, entry.state) == (remote.reference, LockState.LOCKED)


def test_a_digest_that_the_registry_lacks(remote: LockEntry, folder: Path) -> None:
    missing = replace(remote, reference=remote.reference.partition("@")[0] + "@sha256:" + "0" * 64)
    with pytest.raises(ImageError, match="the registry does not have it") as caught:
        pull_image(missing, STORE, silent)
    assert "images lock cu1 --relock" in caught.value.next_step
    assert not list(folder.glob("*/image.json"))


def test_a_saved_image_is_unpacked(archive: ImageArchive) -> None:
    image = STORE.load(local_entry(archive), archive.path, silent)
    assert image.id == archive.config_digest
    assert resolve_image(local_entry(archive), "tiny", store=STORE).id == image.id
    assert (image.folder.stat().st_mode & 0o777, (image.root / "etc/b").read_bytes()) == (0o755, b"more")


def test_an_image_locked_by_its_manifest_alone_is_known(archive: ImageArchive) -> None:
    entry = replace(local_entry(archive), config_digest=None)  # as a containerd store locks it
    STORE.load(entry, archive.path, silent)
    assert resolve_image(entry, "tiny", store=STORE).id == archive.config_digest


@pytest.mark.docker
def test_what_docker_saves_is_understood(
    archive: ImageArchive, load: Callable[[ImageArchive], str], client: DockerClient, tmp_path: Path
) -> None:
    load(archive)
    with (tmp_path / "saved.tar").open("wb") as file:
        file.writelines(client.images.get(archive.reference).save(named=True))
    image = STORE.load(local_entry(archive), tmp_path / "saved.tar", silent)
    assert (image.root / "bin/a").read_bytes() == b"content"


def test_an_image_that_is_there_only_gets_another_name(archive: ImageArchive, remote: LockEntry) -> None:
    first = STORE.load(local_entry(archive), archive.path, silent)
    kept = (first.root / "bin/a").stat().st_ino
    lines: list[str] = []
    pull_image(remote, STORE, lines.append)
    assert lines[-1] == "cu1: it is unpacked already"
    assert (first.root / "bin/a").stat().st_ino == kept
    for entry in (remote, local_entry(archive)):
        assert resolve_image(entry, "x", store=STORE).id == first.id


def test_another_image_in_the_archive_is_not_taken(archive: ImageArchive, make_image: MakeImage) -> None:
    other = make_image({"a": b"other"})
    with pytest.raises(ImageError, match=f"has {other.config_digest}; tiny is {archive.config_digest}"):
        STORE.load(local_entry(archive), other.path, silent)
    assert list(unpacked_images()) == []


@pytest.mark.parametrize("content", [b"", b"no archive", b"\x1f\x8b\x08\x00"])
def test_files_that_are_no_archives(archive: ImageArchive, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "x.tar").write_bytes(content)
    with pytest.raises(ImageError, match=r"x\.tar"):
        STORE.load(local_entry(archive), tmp_path / "x.tar", silent)
    with pytest.raises(ImageError, match="cannot be read"):
        STORE.load(local_entry(archive), tmp_path / "none.tar", silent)


def rewritten(archive: ImageArchive, target: Path, change: Callable[[str, bytes], bytes | None]) -> Path:
    """Copy an archive with the content of its members changed; None leaves a member out."""
    with tarfile.open(archive.path) as before, tarfile.open(target, "w") as after:
        for member in before:
            content = before.extractfile(member)
            assert content is not None
            data = change(member.name, content.read())
            if data is not None:
                member.size = len(data)
                after.addfile(member, io.BytesIO(data))
    return target


@pytest.mark.parametrize("lost", ["manifest.json", "blobs"])
def test_archives_that_lack_a_part(archive: ImageArchive, tmp_path: Path, lost: str) -> None:
    path = rewritten(archive, tmp_path / "x.tar", lambda name, data: None if name.startswith(lost) else data)
    with pytest.raises(ImageError, match="is no archive of images"):
        STORE.load(local_entry(archive), path, silent)


def test_a_layer_of_the_wrong_hash_leaves_nothing(archive: ImageArchive, tmp_path: Path, folder: Path) -> None:
    def change(_name: str, data: bytes) -> bytes:
        return data.replace(b"content", b"CONTENT")

    with pytest.raises(ImageError, match="the image says"):
        STORE.load(local_entry(archive), rewritten(archive, tmp_path / "x.tar", change), silent)
    assert list(folder.iterdir()) == []


def test_an_image_for_another_machine_is_refused(archive: ImageArchive) -> None:
    with pytest.raises(ImageError, match="it is for linux/amd64, the lock says linux/arm64"):
        STORE.load(replace(local_entry(archive), platform="linux/arm64"), archive.path, silent)


def test_an_interrupted_pull_goes_on_where_it_was(
    remote: LockEntry, registry: Registry, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("kernel_matrix.images.unpacked_store.unpack_layer", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pull_image(remote, STORE, silent)
    assert [path.name for path in folder.iterdir()] == ["downloads"]
    (layer,) = (folder / "downloads").iterdir()
    registry.asked.clear()
    pull_image(remote, STORE, silent)
    assert not any(layer.name in path for path in registry.asked)


def test_what_a_killed_pull_left_is_removed(archive: ImageArchive, folder: Path) -> None:
    left = folder / "partial-1.1.00000000.x"
    (left / "root/usr").mkdir(parents=True)
    STORE.load(local_entry(archive), archive.path, silent)
    assert not left.exists()


def test_a_full_disk_leaves_nothing(archive: ImageArchive, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(layer_unpacking.shutil, "copyfileobj", full)
    with pytest.raises(ImageError, match="No space left on device"):
        STORE.load(local_entry(archive), archive.path, silent)
    assert list(folder.iterdir()) == []


def test_a_cache_that_cannot_be_written_is_told(
    remote: LockEntry, archive: ImageArchive, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "file"))
    with pytest.raises(ImageError, match="could not be unpacked below") as caught:
        pull_image(remote, STORE, silent)
    assert "XDG_CACHE_HOME" in caught.value.next_step
    with pytest.raises(ImageError, match="could not be unpacked below"):
        STORE.load(local_entry(archive), archive.path, silent)


def test_the_faster_of_two_processes_wins(archive: ImageArchive, monkeypatch: pytest.MonkeyPatch) -> None:
    first = STORE.load(local_entry(archive), archive.path, silent)
    answers = iter([None, first])  # not there before it is unpacked, and there after it
    monkeypatch.setattr("kernel_matrix.images.unpacked_store.find_unpacked", lambda _id: next(answers))
    assert STORE.load(local_entry(archive), archive.path, silent) == first


@pytest.mark.parametrize("change", ["content", "mode", "new file", "gone", "link"])
def test_verify_sees_changed_files(archive: ImageArchive, tmp_path: Path, change: str) -> None:
    image = STORE.load(local_entry(archive), archive.path, silent)
    (check,) = audit([local_entry(archive)], tmp_path, STORE)
    assert check.complaints == ()
    file = image.root / "bin/a"
    if change == "content":
        file.write_bytes(b"CONTENT")
    elif change == "mode":
        file.chmod(0o755)
    elif change == "new file":
        (image.root / "bin/c").touch()
    else:
        file.unlink()
        if change == "link":
            file.symlink_to("/etc/passwd")
    (check,) = audit([local_entry(archive)], tmp_path, STORE)
    (complaint,) = check.complaints
    assert f"remove {image.folder} and pull the image again" in complaint


@pytest.mark.parametrize("text", ["", "{}", "[1]", '{"names": 3}', "\0"])
def test_a_damaged_description_is_no_image(archive: ImageArchive, text: str) -> None:
    image = STORE.load(local_entry(archive), archive.path, silent)
    (image.folder / "image.json").write_text(text)
    assert list(unpacked_images()) == []
    assert STORE.find(image.id) is None


def test_an_image_that_is_being_unpacked_is_not_there_yet(archive: ImageArchive, folder: Path) -> None:
    image = STORE.load(local_entry(archive), archive.path, silent)
    image.folder.rename(folder / "partial-1.1.00000000.x")
    assert list(unpacked_images()) == []


def test_downloads_follow_the_order_of_the_layers(
    remote: LockEntry, registry: Registry, make_image: MakeImage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first layer comes last, and is applied first nevertheless."""
    lower, upper = make_image({"a": b"lower", "b": b"1"}), make_image({"a": b"upper"})
    digests = [push_layer(registry, archive) for archive in (lower, upper)]
    config = json.dumps(
        {"os": "linux", "architecture": "amd64", "rootfs": {"diff_ids": [digest for digest, _ in digests]}}
    ).encode()
    manifest = {"config": descriptor(registry, config), "layers": [{"digest": d, "size": s} for d, s in digests]}
    digest = str(descriptor(registry, json.dumps(manifest).encode())["digest"])
    usual = RegistryClient.download
    arrived: list[str] = []
    upper_is_here = threading.Event()

    def late(self: RegistryClient, blob: RemoteBlob, target: Path) -> None:
        if blob.digest == digests[0][0]:
            assert upper_is_here.wait(30)
        usual(self, blob, target)
        arrived.append(blob.digest)
        upper_is_here.set()

    monkeypatch.setattr(RegistryClient, "download", late)
    reference = f"{remote.reference.partition('@')[0]}@{digest}"
    pull_image(replace(remote, reference=reference, digest=digest), STORE, silent)
    (image,) = unpacked_images()
    assert (image.root / "a").read_bytes() == b"upper"
    assert arrived == [digests[1][0], digests[0][0]]


def push_layer(registry: Registry, archive: ImageArchive) -> tuple[str, int]:
    registry.push(archive, "lab/part", "1")
    manifest = json.loads(registry.blobs[archive.manifest_digest])
    return manifest["layers"][0]["digest"], manifest["layers"][0]["size"]


def descriptor(registry: Registry, data: bytes) -> dict[str, object]:
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    registry.blobs[digest] = data
    return {"digest": digest, "size": len(data)}
