"""Read an image from a file that ``docker save``, ``podman save`` or ``skopeo copy`` wrote."""

from __future__ import annotations

import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, cast

from kernel_matrix.errors import ImageError
from kernel_matrix.file_hash import content_digest
from kernel_matrix.images import LockEntry
from kernel_matrix.untrusted_json import UntrustedJsonError, decode, parse

_LARGEST_DOCUMENT_BYTES = 8 << 20
_DEEPEST_INDEX = 3


@dataclass(frozen=True, slots=True)
class SavedImage:
    """One image in an archive."""

    config: bytes
    layers: tuple[str, ...]
    """Their names in the archive."""
    manifest_digests: tuple[str, ...]


class SavedArchive:
    """An open archive."""

    def __init__(self, path: Path, archive: tarfile.TarFile) -> None:
        self._path = path
        self._archive = archive

    def find(self, entry: LockEntry) -> SavedImage:
        """Return the image that ``entry`` pins.

        Raises:
            ImageError: The archive does not have it.
        """
        found = list(self._images())
        for image in found:
            by_manifest = entry.config_digest is None and entry.digest in image.manifest_digests
            if by_manifest or entry.config_digest == content_digest(image.config):
                return image
        has = ", ".join(content_digest(image.config) for image in found) or "no image"
        raise ImageError(
            f"{self._path} has {has}; {entry.toolchain} is {entry.config_digest or entry.digest} in the lock.",
            next_step=f"Save the image that is pinned: `docker save {entry.reference.partition('@')[0]}`.",
        )

    def open_member(self, name: str) -> BinaryIO:
        """Open a file of the archive, such as a layer of :attr:`SavedImage.layers`.

        Raises:
            ImageError: The archive does not have it.
        """
        try:
            file = self._archive.extractfile(name)
        except (KeyError, tarfile.TarError) as error:
            raise self._damaged(f"it has no {name}") from error
        if file is None:
            raise self._damaged(f"{name} is no file")
        return cast("BinaryIO", file)

    def _images(self) -> Iterator[SavedImage]:
        """Yield every image; damaged archives have none."""
        digests = self._manifest_digests()
        for image in _rows(self._json("manifest.json")):
            config = self._bytes(str(image.get("Config")))
            layers = tuple(map(str, image.get("Layers") or ()))
            yield SavedImage(config, layers, tuple(digests.get(content_digest(config), ())))

    def _manifest_digests(self) -> dict[str, list[str]]:
        """Return the digest of each image's configuration → the digests of its manifest and of indexes with that."""
        found: dict[str, list[str]] = {}
        names = set(self._archive.getnames())
        waiting: list[tuple[Mapping[str, Any], tuple[str, ...]]] = []
        if "index.json" in names:
            waiting = [(row, ()) for row in _rows(_member(self._json("index.json"), "manifests"))]
        while waiting:
            row, above = waiting.pop()
            digest = str(row.get("digest"))
            chain = (digest, *above)
            path = "blobs/" + digest.replace(":", "/")
            if path not in names or content_digest(self._bytes(path)) != digest:
                continue
            document = self._json(path)
            if len(chain) < _DEEPEST_INDEX:
                waiting += [(inner, chain) for inner in _rows(_member(document, "manifests"))]
            config_digest = _member(_member(document, "config"), "digest")
            if config_digest is not None:
                found.setdefault(str(config_digest), []).extend(chain)
        return found

    def _json(self, name: str) -> Any:
        try:
            return parse(decode(self._bytes(name)))
        except UntrustedJsonError as error:
            raise self._damaged(f"{name} {error}") from error

    def _bytes(self, name: str) -> bytes:
        content = self.open_member(name).read(_LARGEST_DOCUMENT_BYTES + 1)
        if len(content) > _LARGEST_DOCUMENT_BYTES:
            raise self._damaged(f"{name} is larger than {_LARGEST_DOCUMENT_BYTES >> 20} MiB")
        return content

    def _damaged(self, why: str) -> ImageError:
        return ImageError(f"{self._path} is no archive of images: {why}.", next_step="Make one with `docker save`.")


@contextmanager
def open_archive(path: Path) -> Iterator[SavedArchive]:
    """Open the archive at ``path``, which is not compressed.

    Raises:
        ImageError: It cannot be read, or is no archive.
    """
    try:
        archive = tarfile.open(path, "r:")  # noqa: SIM115  # closed below; errors of the disk there are not its own
    except (OSError, tarfile.TarError) as error:
        raise _unreadable(path, error) from error
    with archive:
        try:
            yield SavedArchive(path, archive)
        except tarfile.TarError as error:
            raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ImageError:
    return ImageError(
        f"{path} cannot be read as an archive of images: {error}.",
        next_step="Name a file that `docker save` wrote, uncompressed.",
    )


def _member(document: Any, name: str) -> Any:
    """Return a member of a JSON object; None if it is no object or lacks it."""
    return document.get(name) if isinstance(document, Mapping) else None


def _rows(document: Any) -> list[Mapping[str, Any]]:
    return [row for row in document if isinstance(row, Mapping)] if isinstance(document, list) else []
