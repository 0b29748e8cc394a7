"""Fixtures: tiny images, a small registry, and the real CPU image, built at most once."""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path

import pytest
from docker import DockerClient

from kernel_matrix.images import ResolvedImage
from kernel_matrix.images.archive import ImageArchive
from kernel_matrix.images.image_build import ensure_local
from kernel_matrix.images.image_store import connect

sys.path.insert(0, str(Path(__file__).parent))  # for tiny_images: pytest's importlib mode adds no folder by itself
from tiny_images import Handler, MakeImage, Registry, forget, make_archive, tar_of

ROOT = Path(__file__).parents[2]


@pytest.fixture
def client() -> Iterator[DockerClient]:
    with connect() as client:
        yield client


@pytest.fixture
def make_image(tmp_path: Path) -> MakeImage:
    """Return a function that writes a tiny image of one layer with the given files."""

    def make(files: dict[str, bytes], *, mode: int = 0o644, **settings: str) -> ImageArchive:
        folder = tmp_path / f"image-{len(list(tmp_path.iterdir()))}"
        folder.mkdir()
        return make_archive(tar_of(folder / "tree.tar", files, mode=mode), **settings)

    return make


@pytest.fixture
def load(client: DockerClient) -> Iterator[Callable[[ImageArchive], str]]:
    """Return a function that loads an archive into the daemon and returns the id; the image is removed afterwards."""
    loaded: list[str] = []

    def load_one(archive: ImageArchive) -> str:
        with archive.path.open("rb") as file:
            client.images.load(file)
        loaded.append(archive.reference)
        return str(client.images.get(archive.reference).id)

    yield load_one
    for reference in loaded:
        forget(client, reference)


@pytest.fixture
def registry() -> Iterator[Registry]:
    """Run a registry on this machine; daemons accept 127.0.0.0/8 without TLS."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    Handler.registry = Registry(server.server_port)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    yield Handler.registry
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(scope="session")
def cpu_image(tmp_path_factory: pytest.TempPathFactory) -> ResolvedImage:
    """Return the real CPU image of the lock, built first if the daemon lacks it, which takes minutes."""
    lock = tmp_path_factory.mktemp("lock") / "images.lock"
    shutil.copyfile(ROOT / "images" / "images.lock", lock)
    return ensure_local("cpu", images_dir=ROOT / "images", lock_path=lock, say=print)
