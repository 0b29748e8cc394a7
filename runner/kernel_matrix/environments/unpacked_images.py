"""Unpacked images: the files of pinned images in this user's cache, for a sandbox that needs no daemon.

Each is a folder ``<cache>/unpacked/<digest of the image's configuration>`` with the file tree in ``root`` and
``image.json``. It is made in full before it gets that name, so an image that is there is whole.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_matrix.untrusted_json import UntrustedJsonError, read_object
from kernel_matrix.user_folders import cache_root

FOLDER_VARIABLE = "KERNEL_MATRIX_UNPACKED_DIR"
"""Names another folder, such as one that all machines of a cluster see."""
ROOT = "root"
"""Name of the folder with the file tree."""
_DESCRIPTION = "image.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class UnpackedImage:
    """An image whose files are in this user's cache."""

    id: str
    """``sha256:…`` of the image's configuration, which lists the digests of its layers."""
    names: tuple[str, ...]
    """Names under which it was asked for: ``repository:tag``, ``repository@digest``."""
    manifest_digests: tuple[str, ...]
    """Digests of manifests and indexes that name it."""
    env: Mapping[str, str]
    """Variables that the image sets."""
    size_bytes: int
    """Sum of the files of its layers."""
    tree_sha256: str
    """From :func:`tree_digest`, when it was unpacked."""

    @property
    def folder(self) -> Path:
        """Folder of the image."""
        return _folder_of(self.id)

    @property
    def root(self) -> Path:
        """Folder with the file tree."""
        return self.folder / ROOT


def images_folder() -> Path:
    """Return the folder with unpacked images: that of :data:`FOLDER_VARIABLE`, else one in this user's cache."""
    named = os.environ.get(FOLDER_VARIABLE)
    return Path(named) if named else cache_root() / "unpacked"


def _folder_of(image_id: str) -> Path:
    """Return the folder of the image with this id, whether it is there or not."""
    return images_folder() / image_id.partition(":")[2]


def unpacked_images() -> Iterator[UnpackedImage]:
    """Yield the images that are unpacked, in the order of their ids."""
    for description in sorted(images_folder().glob(f"*/{_DESCRIPTION}")):
        image = find_unpacked(f"sha256:{description.parent.name}")
        if image is not None:
            yield image


def find_unpacked(image_id: str) -> UnpackedImage | None:
    """Return the image with this id; ``None`` if it is not unpacked, or its description cannot be read."""
    try:
        found = read_object(_folder_of(image_id) / _DESCRIPTION)
        image = UnpackedImage(**{**found, **{name: tuple(found[name]) for name in ("names", "manifest_digests")}})
    except (UntrustedJsonError, TypeError, KeyError):
        return None
    return image if image.id == image_id else None  # else it is being unpacked


def write_description(image: UnpackedImage, folder: Path) -> None:
    """Write the description of ``image`` into ``folder``; a reader finds the one before or this one."""
    aside = folder / f"{_DESCRIPTION}.{os.getpid()}"
    aside.write_text(json.dumps(asdict(image)), encoding="utf-8")
    aside.replace(folder / _DESCRIPTION)


def tree_digest(root: Path) -> str:
    """Return a digest of names, kinds, modes, sizes, times and link targets below ``root``.

    It tells whether files were changed by mistake, without reading them. Times of folders are left out.
    """
    digest = hashlib.sha256()
    for line in sorted(_lines(root, "")):
        digest.update(os.fsencode(line) + b"\n")
    return digest.hexdigest()


def _lines(folder: Path, inside: str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            name = f"{inside}/{entry.name}"
            info = entry.stat(follow_symlinks=False)
            yield f"{name!r} {_facts(entry, info)}"
            if entry.is_dir(follow_symlinks=False):
                yield from _lines(folder / entry.name, name)


def _facts(entry: os.DirEntry[str], info: os.stat_result) -> Any:
    if entry.is_symlink():
        return ("link", str(Path(entry).readlink()))
    mode = stat.S_IMODE(info.st_mode)
    return ("folder", mode) if entry.is_dir() else ("file", mode, info.st_size, info.st_mtime_ns)
