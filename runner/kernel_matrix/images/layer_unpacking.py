"""Unpack a layer of an image below a folder, from an archive that may be hostile.

Layers are applied in order into one tree, which a single process writes. No name and no link of a layer leads out of
that tree: folders on the way are looked up as they would be if the tree were the root of the file system. Owners,
device nodes, capabilities and the bits that change a user are left out: a tree is mounted without them anyway.
"""

from __future__ import annotations

import gzip
import hashlib
import importlib
import os
import shutil
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from kernel_matrix.errors import ImageError

LARGEST_FILE_BYTES = 32 << 30
LARGEST_TREE_BYTES = 256 << 30
MOST_ENTRIES = 4_000_000
"""Of all layers together. Images with PyTorch and CUDA have some 10 GB and 100,000 entries."""

_LARGEST_HEADER_BYTES = 1 << 20  # of one entry: long names and attributes
_MOST_LINKS = 40  # followed for one name, as Linux does
_CHUNK_BYTES = 1 << 20
_LATEST_S = 1 << 33  # in the year 2242
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_WHITEOUT = ".wh."
"""Begins the name of an entry that removes what a lower layer has under the rest of the name."""
_OPAQUE = ".wh..wh..opq"
"""Name of an entry that removes all that lower layers have in its folder."""
_SPECIAL = ".wh..wh."
"""Begins the names of other entries that mean nothing outside the program that wrote them."""


@dataclass(slots=True)
class TreeBudget:
    """Limits of what the layers of one image write together."""

    size_bytes: int = LARGEST_TREE_BYTES
    entries: int = MOST_ENTRIES
    used_bytes: int = 0

    def take(self, member: tarfile.TarInfo) -> None:
        """Count one entry.

        Raises:
            ImageError: The tree or the file is larger than any image needs.
        """
        self.used_bytes += member.size
        self.entries -= 1
        if member.size > LARGEST_FILE_BYTES or self.used_bytes > self.size_bytes or self.entries < 0:
            size_gb = max(member.size, self.used_bytes) / 1e9
            raise _refuse(f"{member.name!r} makes it larger than is allowed ({size_gb:.0f} GB)")


def unpack_layer(layer: BinaryIO, root: Path, *, diff_id: str, budget: TreeBudget) -> None:
    """Apply a layer to the tree at ``root``.

    Args:
        layer: Its bytes: a tar archive, plain or compressed with gzip or zstd.
        root: Folder of the tree, which no other process writes.
        diff_id: ``sha256:…`` of the archive before it was compressed.
        budget: Limits for all layers of the image.

    Raises:
        ImageError: The layer is damaged or another one, leads out of the tree, or is too large.
        OSError: The disk refuses to take it.
    """
    try:
        with _decompressed(layer) as plain:
            hashing = _HashingReader(plain)
            with tarfile.open(fileobj=cast("IO[bytes]", hashing), mode="r|", tarinfo=_BoundedEntry) as archive:
                _apply(archive, _LayerTarget(root), budget)
            hashing.drain()
    except tarfile.TarError as error:
        raise _refuse(f"it is damaged ({error})") from error
    if hashing.digest != diff_id:
        raise _refuse(f"its content is {hashing.digest}, the image says {diff_id}")


def _refuse(why: str) -> ImageError:
    return ImageError(
        f"A layer of the image is refused: {why}.",
        next_step="Get the image from where its digest came from; if that is this one, it cannot be used unpacked.",
    )


class _BoundedEntry(tarfile.TarInfo):
    """Header whose extensions are small: the library reads them into memory."""

    @classmethod
    def frombuf(cls, buf: Any, encoding: Any, errors: Any) -> _BoundedEntry:
        entry = super().frombuf(buf, encoding, errors)
        extends = entry.type not in tarfile.SUPPORTED_TYPES or entry.type in (
            *(tarfile.GNUTYPE_LONGNAME, tarfile.GNUTYPE_LONGLINK),
            *(tarfile.XHDTYPE, tarfile.XGLTYPE, tarfile.SOLARIS_XHDTYPE),
        )
        if extends and entry.size > _LARGEST_HEADER_BYTES:
            raise tarfile.ReadError(f"a header of {entry.size} bytes")
        if entry.size < 0 or entry.type == tarfile.GNUTYPE_SPARSE:  # the library reads maps of holes into memory, too
            raise tarfile.ReadError("an entry that no program for images writes")
        return entry


class _HashingReader:
    """A stream that computes the digest of what is read."""

    def __init__(self, stream: IO[bytes]) -> None:
        self._stream = stream
        self._hash = hashlib.sha256()

    def read(self, size: int) -> bytes:
        try:
            data = self._stream.read(size)
        except Exception as error:
            if isinstance(error, OSError) and error.errno is not None:  # the disk
                raise
            raise tarfile.ReadError(str(error)) from error  # each way of compression has errors of its own
        self._hash.update(data)
        return data

    def drain(self) -> None:
        """Read what follows the archive's last entry."""
        while self.read(_CHUNK_BYTES):
            pass

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


@contextmanager
def _decompressed(layer: BinaryIO) -> Iterator[IO[bytes]]:
    """Open the archive inside a layer, whose first bytes say how it is compressed."""
    start = layer.read(4)
    layer.seek(0)
    if start.startswith(_GZIP):
        with gzip.open(layer) as plain:
            yield cast("IO[bytes]", plain)
    elif start == _ZSTD:
        with _open_zstd(layer) as plain:
            yield plain
    else:
        yield layer


def _open_zstd(layer: BinaryIO) -> IO[bytes]:
    """Open a stream compressed with zstd, by Python's own module or, before 3.14, a package."""
    module = importlib.import_module("compression.zstd" if sys.version_info >= (3, 14) else "zstandard")
    return cast("IO[bytes]", module.open(layer, "rb"))


@dataclass(slots=True)
class _LayerTarget:
    """A tree, and what the present layer has written into it."""

    root: Path
    written: set[Path] = field(default_factory=set)
    """Entries of this layer and the folders on the way to them, which its whiteouts do not remove."""

    def place(self, name: str) -> Path | None:
        """Return where the entry ``name`` lies, with the folders on the way made; ``None`` for the root itself.

        Raises:
            ImageError: The name has ``..``, or a folder on the way is a file or a link that leads nowhere.
        """
        parts = [part for part in name.split("/") if part not in ("", ".")]
        if ".." in parts or "\0" in name:
            raise _refuse(f"the name {name!r} leads out of its folder")
        if not parts:
            return None
        place = self._folder(parts[:-1], name) / parts[-1]
        self.written.update((place, *place.parents))
        return place

    def existing(self, name: str) -> Path:
        """Return the file that a hard link names.

        Raises:
            ImageError: It is no file of the tree.
        """
        place = self.place(name)
        if place is None or place.is_symlink() or not place.is_file():
            raise _refuse(f"a hard link to {name!r}, which is no file of the image")
        return place

    def depth(self, place: Path) -> int:
        """Return the number of folders between the root and ``place``."""
        return len(place.relative_to(self.root).parts) - 1

    def _folder(self, parts: list[str], name: str) -> Path:
        """Look ``parts`` up as if the tree were the root of the file system; make what is missing."""
        here, waiting, followed = self.root, list(reversed(parts)), 0
        while waiting:
            part = waiting.pop()
            if part == "..":  # of a link
                here = here if here == self.root else here.parent
                continue
            there = here / part
            if there.is_symlink():
                followed += 1
                if followed > _MOST_LINKS:
                    raise _refuse(f"{name!r} lies behind links that lead nowhere")
                target = str(there.readlink())
                here = self.root if target.startswith("/") else here
                waiting += [step for step in reversed(target.split("/")) if step not in ("", ".")]
                continue
            if not there.is_dir():
                _make_folder(there, name)
            here = there
        return here


def _make_folder(place: Path, name: str) -> None:
    try:
        place.mkdir(mode=0o755)
    except FileExistsError:
        raise _refuse(f"{name!r} lies below a file") from None


def _apply(archive: tarfile.TarFile, target: _LayerTarget, budget: TreeBudget) -> None:
    for member in archive:
        budget.take(member)
        folder, _, name = member.name.rpartition("/")
        if name.startswith(_WHITEOUT):
            _remove(target, folder, name)
        elif (place := target.place(member.name)) is not None:
            _write(archive, member, place, target)


def _remove(target: _LayerTarget, folder: str, name: str) -> None:
    """Carry out a whiteout."""
    if name == _OPAQUE:
        place = target.place(f"{folder}/{name}")
        for below in list(place.parent.iterdir()) if place is not None else ():
            if below not in target.written:
                _delete(below)
    elif not name.startswith(_SPECIAL):
        hidden = name[len(_WHITEOUT) :]
        if hidden in ("", ".", ".."):
            raise _refuse(f"the whiteout {name!r} names no file")
        place = target.place(f"{folder}/{hidden}")
        if place is not None:
            _delete(place)


def _delete(place: Path) -> None:
    """Remove a file, a link or a whole folder, without following links."""
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)


def _write(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path, target: _LayerTarget) -> None:
    """Make one entry in place of what is there; device nodes and pipes are left out."""
    if member.isdir():
        if place.is_symlink() or not place.is_dir():
            _delete(place)
            place.mkdir()
        place.chmod(member.mode & 0o777 | 0o700)  # this user must be able to fill and to remove it
        return
    if member.islnk():
        source = target.existing(member.linkname)
        if source != place:
            _delete(place)
            os.link(source, place, follow_symlinks=False)
        return
    _delete(place)
    if member.issym():
        _check_link(member, target.depth(place))
        place.symlink_to(member.linkname)
    elif member.isfile():
        _write_file(archive, member, place)


def _check_link(member: tarfile.TarInfo, depth: int) -> None:
    """Refuse a symbolic link that climbs out of the tree, which no image needs."""
    if member.linkname.startswith("/"):  # seen from the root of the tree
        return
    height = depth
    for part in member.linkname.split("/"):
        if part == "..":
            height -= 1
        elif part not in ("", "."):
            height += 1
        if height < 0:
            raise _refuse(f"the link {member.name!r} leads out of the image, to {member.linkname!r}")


def _write_file(archive: tarfile.TarFile, member: tarfile.TarInfo, place: Path) -> None:
    content = archive.extractfile(member)
    if content is None:
        raise tarfile.ReadError(f"{member.name} has no content")
    with place.open("xb") as file:
        shutil.copyfileobj(content, file, _CHUNK_BYTES)
        os.fchmod(file.fileno(), member.mode & 0o777 | 0o400)
    # Python's bytecode is valid only while its sources keep their times.
    modified_s = min(max(0, member.mtime), _LATEST_S)
    os.utime(place, (modified_s, modified_s))
