"""Write a file tree as a layer with a reproducible digest, without traces of the time and machine of the build."""

from __future__ import annotations

import hashlib
import io
import re
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, BinaryIO, cast

from kernel_matrix.images.archive import ImageBlob

_DAY_S = 86400
# Files that the building machine, package managers or containers leave behind and that no program needs.
_MACHINE_TRACES = re.compile(
    r"""
        \.dockerenv | debootstrap(/.*)?
      | (dev|proc|sys|run|tmp|var/tmp|var/log|var/cache|var/lib/apt/lists)/.+
      | etc/(hostname|hosts|resolv\.conf|machine-id|mtab|\.pwd\.lock|apt/sources\.list)
      | (etc/(passwd|group|shadow|gshadow|subuid|subgid)|var/lib/dpkg/[^/]+)-(old)?
      | var/lib/dpkg/(lock|lock-frontend|triggers/Lock)
      | root/\.(cache|wget-hsts|bash_history)(/.*)?
    """,
    re.VERBOSE,
)


def write_layer(tree: Path, target: Path, *, newest_s: int) -> ImageBlob:
    """Write the tar file ``tree`` to ``target`` in normal form: sorted by name, numeric owners, no machine traces.

    Files younger than ``newest_s``, in seconds since 1970, get this time.
    """
    with tarfile.open(tree, "r:") as source, target.open("wb") as raw:
        hashing = _HashingFile(raw)
        with tarfile.open(mode="w", fileobj=cast("IO[bytes]", hashing), format=tarfile.PAX_FORMAT) as layer:
            for entry in _entries(source):
                layer.addfile(*_normalise(source, entry, newest_s))
        return ImageBlob(
            media_type="application/vnd.oci.image.layer.v1.tar", digest=hashing.digest, size=hashing.tell()
        )


class _HashingFile:
    """A sequentially written file that computes the digest of its content."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._hash = hashlib.sha256()
        self._written = 0

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self._written += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self._written

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"


@dataclass(frozen=True, slots=True)
class _Entry:
    name: str
    member: tarfile.TarInfo
    link: str | None
    """Name of the earlier entry that this is a hard link to; ``None`` for an entry with its own content."""


def _entries(source: tarfile.TarFile) -> Iterator[_Entry]:
    """Yield the kept entries sorted by name; the first name of a hard-linked file gets the content."""
    first: dict[str, str] = {}
    for name, member in sorted(_kept_members(source), key=lambda pair: pair[0]):
        if member.isfile() or member.islnk():
            carrier = first.setdefault(_clean_path(member.linkname) if member.islnk() else name, name)
            yield _Entry(name, member, None if carrier == name else carrier)
        else:
            yield _Entry(name, member, None)


def _kept_members(source: tarfile.TarFile) -> Iterator[tuple[str, tarfile.TarInfo]]:
    for member in source.getmembers():
        name = _clean_path(member.name)
        if name and not _MACHINE_TRACES.fullmatch(name):
            yield name, member


def _clean_path(name: str) -> str:
    return "/".join(part for part in name.split("/") if part not in ("", "."))


def _normalise(source: tarfile.TarFile, entry: _Entry, newest_s: int) -> tuple[tarfile.TarInfo, IO[bytes] | None]:
    member = entry.member
    info = tarfile.TarInfo(entry.name)
    info.mode, info.uid, info.gid = member.mode, member.uid, member.gid
    info.mtime = min(int(member.mtime), newest_s)
    info.pax_headers = {key: value for key, value in member.pax_headers.items() if key.startswith("SCHILY.xattr.")}
    if entry.link is not None:
        info.type, info.linkname = tarfile.LNKTYPE, entry.link
        return info, None
    if not (member.isfile() or member.islnk()):
        info.type, info.linkname = member.type, member.linkname
        info.devmajor, info.devminor = member.devmajor, member.devminor
        return info, None
    return _normalise_file(source, member, info, newest_s)


def _normalise_file(
    source: tarfile.TarFile, member: tarfile.TarInfo, info: tarfile.TarInfo, newest_s: int
) -> tuple[tarfile.TarInfo, IO[bytes]]:
    content = source.extractfile(member)
    if content is None:
        raise tarfile.ExtractError(f"{member.name} has no content")
    if info.name == "etc/shadow":
        content = io.BytesIO(_clamp_shadow_dates(content.read(), newest_s))
    info.size = content.seek(0, io.SEEK_END)
    content.seek(0)
    return info, content


def _clamp_shadow_dates(shadow: bytes, newest_s: int) -> bytes:
    """Limit the date of the last password change, field 3 of ``/etc/shadow`` in days since 1970, to ``newest_s``."""
    lines = []
    for line in shadow.split(b"\n"):
        fields = line.split(b":")
        if len(fields) > 2 and fields[2].isdigit():
            fields[2] = b"%d" % min(int(fields[2]), newest_s // _DAY_S)
        lines.append(b":".join(fields))
    return b"\n".join(lines)
