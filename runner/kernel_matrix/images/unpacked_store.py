"""Unpack pinned images into this user's cache: from a registry, or from a file that a daemon saved."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

from kernel_matrix.environments.unpacked_images import (
    ROOT,
    UnpackedImage,
    find_unpacked,
    images_folder,
    tree_digest,
    unpacked_images,
    write_description,
)
from kernel_matrix.errors import ImageError
from kernel_matrix.file_hash import content_digest
from kernel_matrix.hosts.process_token import orphaned_folders, own_folder
from kernel_matrix.images import LockEntry, LockState
from kernel_matrix.images.image_reference import ImageReference
from kernel_matrix.images.image_store import Say, StoredImage
from kernel_matrix.images.layer_unpacking import TreeBudget, unpack_layer
from kernel_matrix.images.registry_client import RegistryClient, RemoteBlob
from kernel_matrix.images.saved_archive import open_archive
from kernel_matrix.untrusted_json import UntrustedJsonError, parse_object

_PARTIAL = "partial-"
_DOWNLOADS = "downloads"
_DOWNLOADS_AT_ONCE = 3

OpenLayer = Callable[[], BinaryIO]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Contents:
    """An image to unpack."""

    config: bytes
    manifest_digests: tuple[str, ...]
    layers: Iterable[OpenLayer]
    """Lowest first; each is closed when it is unpacked."""
    layer_count: int

    @property
    def id(self) -> str:
        return content_digest(self.config)


class UnpackedStore:
    """The images of this user that are unpacked; an image's id is the digest of its configuration."""

    name = "unpacked"
    place = "the cache of unpacked images"

    def find(self, name: str) -> StoredImage | None:
        """Return the image that is unpacked under ``name``: its id, a manifest's digest, a tag or ``name@digest``."""
        for image in unpacked_images():
            if name in (image.id, *image.manifest_digests, *image.names):
                digests = tuple(known for known in image.names if "@" in known)
                return StoredImage(id=image.id, repo_digests=digests, size_bytes=image.size_bytes)
        return None

    def pin(self, entry: LockEntry) -> str | None:
        """Return the digest of a local image's configuration, or of its manifest where only that is known."""
        return entry.config_digest or entry.digest

    def id_of(self, entry: LockEntry) -> str | None:
        """Return the id that the image of ``entry`` must have."""
        return entry.config_digest

    def config_digest(self, held: StoredImage) -> str | None:
        """Return the digest of an image's configuration, which is its id."""
        return held.id

    def complaints(self, held: StoredImage) -> Sequence[str]:
        """Return how the files differ from what they were when they were unpacked."""
        image = find_unpacked(held.id)
        if image is None or tree_digest(image.root) == image.tree_sha256:
            return ()
        return (f"files in {image.root} were changed: remove {image.folder} and pull the image again",)

    def pull(self, entry: LockEntry, say: Say) -> None:
        """Read the image from its registry and unpack it; layers that an interrupted pull left are used.

        Raises:
            PullError: The registry lacks the digest, or does not answer.
            ImageError: A layer is refused, or cannot be unpacked.
        """
        wanted = ImageReference.parse(entry.reference)
        with _disk_errors(entry), RegistryClient(wanted.repository) as client:
            image = client.image(str(wanted.digest), entry.platform)
            config = client.read(image.config)
            is_here = find_unpacked(content_digest(config)) is not None
            blobs = () if is_here else image.layers
            with _downloads(client, blobs, entry, say) as layers:
                contents = _Contents(
                    config=config,
                    manifest_digests=image.manifest_digests,
                    layers=layers,
                    layer_count=len(image.layers),
                )
                _unpack(contents, entry, say)
        for blob in image.layers:
            _download_of(blob).unlink(missing_ok=True)

    def load(self, entry: LockEntry, archive: Path, say: Say) -> UnpackedImage:
        """Unpack the image of ``entry`` from a file that ``docker save`` wrote.

        Raises:
            ImageError: The archive does not have it, a layer is refused, or cannot be unpacked.
        """
        with _disk_errors(entry), open_archive(archive) as saved:
            image = saved.find(entry)
            return _unpack(
                _Contents(
                    config=image.config,
                    manifest_digests=image.manifest_digests,
                    layers=(partial(saved.open_member, name) for name in image.layers),
                    layer_count=len(image.layers),
                ),
                entry,
                say,
            )

    def resolve_tag(self, reference: ImageReference) -> str:
        """Ask the registry what a tag means.

        Raises:
            PullError: The registry lacks the tag, or does not answer.
        """
        with RegistryClient(reference.repository) as client:
            return client.resolve(reference.tag or "latest")


@contextmanager
def _downloads(
    client: RegistryClient, blobs: Sequence[RemoteBlob], entry: LockEntry, say: Say
) -> Iterator[Iterable[OpenLayer]]:
    """Download the layers side by side; yield them in their order, each as soon as it and those before it are here."""
    (images_folder() / _DOWNLOADS).mkdir(parents=True, exist_ok=True)
    with own_folder(_PARTIAL, images_folder()) as unfinished:

        def download(blob: RemoteBlob) -> OpenLayer:
            target = _download_of(blob)
            if not target.exists():
                client.download(blob, unfinished / target.name)
                (unfinished / target.name).replace(target)
                say(f"{entry.toolchain}: layer {blob.digest[7:19]}, {blob.size / 1e6:.0f} MB")
            return lambda: target.open("rb")

        pool = ThreadPoolExecutor(_DOWNLOADS_AT_ONCE)
        try:
            yield pool.map(download, blobs)
        finally:
            client.stop()  # after an error or an interrupt they are not needed
            pool.shutdown(cancel_futures=True)


def _download_of(blob: RemoteBlob) -> Path:
    return images_folder() / _DOWNLOADS / blob.digest.partition(":")[2]


def _unpack(contents: _Contents, entry: LockEntry, say: Say) -> UnpackedImage:
    """Unpack an image beside the others, and give it its name when it is whole."""
    folder = images_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for orphan in orphaned_folders(_PARTIAL, folder):
        shutil.rmtree(orphan, ignore_errors=True)
    if present := find_unpacked(contents.id):
        say(f"{entry.toolchain}: it is unpacked already")
        return _add_names(present, contents, entry)
    with own_folder(_PARTIAL, folder) as unfinished:
        image = _write_tree(contents, entry, unfinished, say)
        write_description(image, unfinished)
        _publish(image, unfinished)
    return image


@contextmanager
def _disk_errors(entry: LockEntry) -> Iterator[None]:
    """Say what to do where the disk refuses to take an image."""
    try:
        yield
    except OSError as error:
        raise ImageError(
            f"{entry.toolchain} could not be unpacked below {images_folder()}: {error}.",
            next_step="Free disk space there, or set XDG_CACHE_HOME to a larger disk.",
        ) from error


def _publish(image: UnpackedImage, unfinished: Path) -> None:
    """Give a whole image its name, unless another process was faster."""
    unfinished.chmod(0o755)  # another user may be meant to run it
    try:
        unfinished.rename(image.folder)
    except OSError:
        if find_unpacked(image.id) is None:
            raise


def _add_names(image: UnpackedImage, contents: _Contents, entry: LockEntry) -> UnpackedImage:
    """Let an image that is there be found under the names of ``entry``, too."""
    names = sorted({*image.names, *_names(entry)})
    digests = sorted({*image.manifest_digests, *contents.manifest_digests})
    more = replace(image, names=tuple(names), manifest_digests=tuple(digests))
    write_description(more, image.folder)
    return more


def _write_tree(contents: _Contents, entry: LockEntry, unfinished: Path, say: Say) -> UnpackedImage:
    """Write the file tree into the folder ``unfinished`` and describe it."""
    config = _read_config(contents, entry)
    diff_ids = config["rootfs"]["diff_ids"]
    if len(diff_ids) != contents.layer_count:
        raise _unusable(entry, f"it has {contents.layer_count} layers, its configuration says {len(diff_ids)}")
    root, budget = unfinished / ROOT, TreeBudget()
    root.mkdir(mode=0o755)
    for number, (diff_id, open_layer) in enumerate(zip(diff_ids, contents.layers, strict=True), 1):
        with open_layer() as layer:
            unpack_layer(layer, root, diff_id=str(diff_id), budget=budget)
        say(f"{entry.toolchain}: layer {number} of {len(diff_ids)} unpacked")
    return UnpackedImage(
        id=contents.id,
        names=tuple(_names(entry)),
        manifest_digests=contents.manifest_digests,
        env=_variables(config),
        size_bytes=budget.used_bytes,
        tree_sha256=tree_digest(root),
    )


def _read_config(contents: _Contents, entry: LockEntry) -> Mapping[str, Any]:
    """Read the configuration, and check that it is of the platform that the lock says."""
    try:
        config = parse_object(contents.config)
        platform, layers = f"{config['os']}/{config['architecture']}", config["rootfs"]["diff_ids"]
    except (UntrustedJsonError, KeyError, TypeError) as error:
        raise _unusable(entry, f"its configuration cannot be read ({error})") from error
    if not isinstance(layers, list):
        raise _unusable(entry, "its configuration has no list of layers")
    if platform != entry.platform:
        raise _unusable(entry, f"it is for {platform}, the lock says {entry.platform}")
    return config


def _variables(config: Mapping[str, Any]) -> dict[str, str]:
    settings = (config.get("config") or {}).get("Env") or []
    return {name: value for name, _, value in (str(setting).partition("=") for setting in settings)}


def _names(entry: LockEntry) -> list[str]:
    """Return the names under which the image of ``entry`` is found."""
    reference = ImageReference.parse(entry.reference)
    return [reference.by_tag, *([] if entry.state is LockState.LOCAL else [reference.by_digest])]


def _unusable(entry: LockEntry, why: str) -> ImageError:
    return ImageError(
        f"The image of {entry.toolchain} cannot be unpacked: {why}.",
        next_step=f"`kernel-matrix images lock {entry.toolchain} --reference REPOSITORY:TAG` pins another one.",
    )
