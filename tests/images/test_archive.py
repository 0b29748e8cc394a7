from __future__ import annotations

import hashlib
import json
import tarfile
from collections.abc import Callable

import pytest
from docker import DockerClient
from tiny_images import MakeImage

from kernel_matrix.images.archive import ImageArchive
from kernel_matrix.images.image_store import DaemonStore


def parts(archive: ImageArchive) -> dict[str, bytes]:
    with tarfile.open(archive.path) as tar:
        return {member.name: content.read() for member in tar if (content := tar.extractfile(member))}


def test_the_same_files_give_the_same_archive(make_image: MakeImage) -> None:
    one, two, three = (make_image({"a": content}) for content in (b"1", b"1", b"2"))
    assert one.path.read_bytes() == two.path.read_bytes()
    assert one.config_digest == two.config_digest != three.config_digest
    assert one.manifest_digest != three.manifest_digest


def test_every_blob_is_named_by_its_content(make_image: MakeImage) -> None:
    blobs = {name: data for name, data in parts(make_image({"a": b"1"})).items() if name.startswith("blobs/")}
    assert len(blobs) == 3
    assert [name.rpartition("/")[2] for name in blobs] == [hashlib.sha256(data).hexdigest() for data in blobs.values()]


def test_both_forms_lead_to_the_same_parts(make_image: MakeImage) -> None:
    archive = make_image({"a": b"1"})
    files = parts(archive)
    (old,) = json.loads(files["manifest.json"])
    (descriptor,) = json.loads(files["index.json"])["manifests"]
    manifest = json.loads(files["blobs/" + descriptor["digest"].replace(":", "/")])
    assert descriptor["digest"] == archive.manifest_digest
    assert manifest["config"]["digest"] == archive.config_digest
    assert old["Config"] == "blobs/" + archive.config_digest.replace(":", "/")
    assert old["Layers"] == ["blobs/" + layer["digest"].replace(":", "/") for layer in manifest["layers"]]
    assert old["RepoTags"] == [archive.reference]
    config = json.loads(files[old["Config"]])
    assert config["rootfs"]["diff_ids"] == [manifest["layers"][0]["digest"]]
    assert config["created"] == "2026-01-01T00:00:00Z"


@pytest.mark.docker
def test_the_daemon_finds_what_was_foretold(
    make_image: MakeImage, load: Callable[[ImageArchive], str], client: DockerClient
) -> None:
    archive = make_image({"etc/greeting": b"hello"})
    foretold = archive.manifest_digest if DaemonStore.of(client).containerd else archive.config_digest
    assert load(archive) == foretold
    attrs = client.images.get(archive.reference).attrs
    assert attrs["Config"]["Env"] == ["PATH=/bin"]
    assert attrs["Created"].startswith("2026-01-01T00:00:00")
