from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests
from docker import DockerClient
from tiny_images import ACCOUNT, MakeImage, Registry, forget

from kernel_matrix.images import PullError
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.images.registry_client import RegistryClient, RemoteBlob, split_repository

PLATFORM = "linux/amd64"


@pytest.fixture
def pushed(make_image: MakeImage, registry: Registry) -> ImageReference:
    return ImageReference.parse(registry.push(make_image({"a": b"content"}), "lab/tiny", "1"))


@pytest.fixture
def remote(pushed: ImageReference) -> Iterator[RegistryClient]:
    with RegistryClient(pushed.repository) as opened:
        yield opened


@pytest.fixture
def login(registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name and password that Docker's configuration has for the registry."""
    auth = {f"127.0.0.1:{registry.port}": {"auth": ACCOUNT.partition(" ")[2]}}
    (tmp_path / "config.json").write_text(json.dumps({"auths": auth}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    return ACCOUNT


@pytest.mark.parametrize(
    ("repository", "expected"),
    [
        ("debian", ("docker.io", "library/debian")),
        ("pytorch/pytorch", ("docker.io", "pytorch/pytorch")),
        ("docker.io/debian", ("docker.io", "library/debian")),
        ("nvcr.io/nvidia/pytorch", ("nvcr.io", "nvidia/pytorch")),
        ("localhost/x", ("localhost", "x")),
        ("host:5000/a/b", ("host:5000", "a/b")),
    ],
)
def test_repositories_name_their_registry_as_docker_does(repository: str, expected: tuple[str, str]) -> None:
    assert split_repository(repository) == expected


def test_an_image_is_read_by_its_digest(remote: RegistryClient, pushed: ImageReference, tmp_path: Path) -> None:
    image = remote.image(str(pushed.digest), PLATFORM)
    assert image.manifest_digests == (pushed.digest,)
    config = json.loads(remote.read(image.config))
    assert config["rootfs"]["diff_ids"] == [layer.digest for layer in image.layers]
    remote.download(image.layers[0], tmp_path / "layer")
    assert [path.name for path in tmp_path.iterdir()].count("layer") == 1
    assert (tmp_path / "layer").stat().st_size == image.layers[0].size


def test_a_tag_is_resolved(remote: RegistryClient, pushed: ImageReference) -> None:
    assert remote.resolve("1") == pushed.digest
    with pytest.raises(PullError, match="unknown"):
        remote.resolve("2")


def put(registry: Registry, document: object) -> str:
    data = json.dumps(document).encode()
    digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
    registry.blobs[digest] = data
    return digest


def index_of(*manifests: tuple[str, str]) -> dict[str, object]:
    rows = [
        {"digest": digest, "platform": dict(zip(("os", "architecture"), platform.split("/"), strict=True))}
        for platform, digest in manifests
    ]
    return {"mediaType": "application/vnd.oci.image.index.v1+json", "manifests": rows}


def test_an_index_leads_to_the_platform(remote: RegistryClient, pushed: ImageReference, registry: Registry) -> None:
    digest = put(registry, index_of(("linux/arm64", "sha256:" + "0" * 64), (PLATFORM, str(pushed.digest))))
    assert remote.image(digest, PLATFORM).manifest_digests == (pushed.digest, digest)
    with pytest.raises(PullError, match="has no image for linux/riscv64"):
        remote.image(digest, "linux/riscv64")


@pytest.mark.parametrize(
    ("document", "complaint"),
    [
        ({"manifests": 3}, "is no index of images"),
        ({"manifests": ["x"]}, "is no index of images"),
        ({"layers": []}, "is no manifest of an image"),
        ({"config": {"digest": "sha256:../../etc", "size": 1}, "layers": []}, "is no manifest of an image"),
        ([1], "not an object"),
    ],
)
def test_documents_that_are_no_images(
    remote: RegistryClient, registry: Registry, document: object, complaint: str
) -> None:
    with pytest.raises(PullError, match=complaint):
        remote.image(put(registry, document), PLATFORM)


def test_other_content_under_a_digest_is_refused(
    remote: RegistryClient, registry: Registry, pushed: ImageReference, tmp_path: Path
) -> None:
    layer = remote.image(str(pushed.digest), PLATFORM).layers[0]
    whole = registry.blobs[layer.digest]
    for wrong in (whole[:-1], whole + b"x", b"y" + whole[1:]):
        registry.blobs[layer.digest] = wrong
        with pytest.raises(PullError, match="serves other content"):
            remote.download(layer, tmp_path / "layer")
    registry.blobs[str(pushed.digest)] += b" "
    with pytest.raises(PullError, match="serves other content"):
        remote.image(str(pushed.digest), PLATFORM)


def test_a_download_can_be_stopped(remote: RegistryClient, pushed: ImageReference, tmp_path: Path) -> None:
    layer = remote.image(str(pushed.digest), PLATFORM).layers[0]
    remote.stop()
    with pytest.raises(PullError, match="the download was stopped"):
        remote.download(layer, tmp_path / "layer")


def test_bytes_come_as_they_are(remote: RegistryClient, pushed: ImageReference, registry: Registry) -> None:
    remote.image(str(pushed.digest), PLATFORM)
    assert registry.encodings == {"identity"}


@pytest.mark.filterwarnings("ignore:docker-credential-absent")
def test_a_broken_configuration_of_docker_is_told(
    remote: RegistryClient, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"credsStore": "absent"}))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    registry.scheme = "Bearer"
    with pytest.raises(PullError, match="Docker's configuration does not give a password"):
        remote.resolve("1")


def test_a_huge_document_is_not_read_to_its_end(remote: RegistryClient, registry: Registry) -> None:
    registry.blobs["sha256:" + "1" * 64] = bytes(20 << 20)
    with pytest.raises(PullError, match="is larger than 8 MiB"):
        remote.read(RemoteBlob("sha256:" + "1" * 64, 20 << 20))


def test_a_token_is_got_where_one_is_wanted(
    remote: RegistryClient, registry: Registry, pushed: ImageReference, login: str
) -> None:
    registry.scheme = "Bearer"
    remote.image(str(pushed.digest), PLATFORM)
    remote.resolve("1")
    tokens = [path for path in registry.asked if path.startswith("/token")]
    assert tokens == ["/token?scope=repository%3Alab%2Ftiny%3Apull&service=lab"]
    assert registry.accounts == [login]


@pytest.mark.usefixtures("login")
def test_a_password_is_sent_where_one_is_wanted(
    remote: RegistryClient, registry: Registry, pushed: ImageReference
) -> None:
    registry.scheme = "Basic"
    assert remote.image(str(pushed.digest), PLATFORM).layers


def test_without_a_password_docker_login_is_named(
    remote: RegistryClient, registry: Registry, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    registry.scheme = "Basic"
    with pytest.raises(PullError, match="docker login"):
        remote.resolve("1")


def test_a_registry_that_is_not_there(tmp_path: Path) -> None:
    with RegistryClient("127.0.0.1:9/lab/tiny") as remote, pytest.raises(PullError, match=r"127\.0\.0\.1"):
        remote.download(RemoteBlob("sha256:" + "0" * 64, 1), tmp_path / "layer")


@pytest.fixture
def distribution(tmp_path: Path) -> Iterator[str]:
    """Host and port of the registry that Debian has, ``docker-registry``."""
    program = shutil.which("docker-registry")
    if program is None:
        give_up = pytest.fail if os.environ.get("KERNEL_MATRIX_REQUIRE_DOCKER") == "1" else pytest.skip
        give_up("docker-registry is not installed")
    settings = tmp_path / "registry.yml"
    storage = {"filesystem": {"rootdirectory": str(tmp_path / "registry")}}
    settings.write_text(json.dumps({"version": 0.1, "storage": storage, "http": {"addr": "127.0.0.1:0", "net": "tcp"}}))
    with subprocess.Popen((program, "serve", settings), stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        listening = next(line for line in process.stderr if "listening on" in line)
        yield listening.partition("listening on ")[2].split('"')[0].strip()
        process.terminate()
        process.stderr.read()


@pytest.mark.docker
def test_the_registry_of_debian_is_understood(
    distribution: str, make_image: MakeImage, client: DockerClient, tmp_path: Path
) -> None:
    archive = make_image({"a": b"content"})
    with archive.path.open("rb") as file:
        client.images.load(file)
    name = f"{distribution}/lab/tiny"
    client.images.get(archive.reference).tag(name, tag="1")
    try:
        client.images.push(name, tag="1")
    finally:
        forget(client, archive.reference)
        forget(client, f"{name}:1")
    with RegistryClient(name) as remote:
        digest = remote.resolve("1")
        assert requests.get(f"http://{distribution}/v2/", timeout=10).ok
        image = remote.image(digest, PLATFORM)
        assert json.loads(remote.read(image.config))["config"]["Env"] == ["PATH=/bin"]
        remote.download(image.layers[0], tmp_path / "layer")  # compressed by the daemon
        assert (tmp_path / "layer").read_bytes()[:2] == b"\x1f\x8b"
        with pytest.raises(PullError, match="unknown"):
            remote.resolve("2")
