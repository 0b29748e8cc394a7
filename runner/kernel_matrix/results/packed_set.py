"""Packed sets: a result folder as one file, a ``tar.xz`` that any tool unpacks. The reader trusts nothing in it.

The first file in it, ``set.json``, lists all others. It is compressed apart, so that it can be written last. Equal
content gives equal bytes: names are sorted, and owners, permissions and times are always the same.
"""

from __future__ import annotations

import hashlib
import json
import lzma
import re
import shutil
import struct
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Final

from kernel_matrix.errors import StoreError
from kernel_matrix.model.messages import SCHEMA_VERSION, from_json, to_json
from kernel_matrix.results.descriptions import printable
from kernel_matrix.results.reading import RecordRefusedError, current_names, parse
from kernel_matrix.untrusted_json import MAX_BYTES, UntrustedJsonError, parse_object

ENDING: Final = ".kmz"
"""What packed sets are called by default; they are known by their content."""
FORMAT: Final = "kernel-matrix set"
FORMAT_VERSION: Final = 1
DESCRIPTION: Final = "set.json"
MATRIX: Final = "matrix.toml"
LOCK: Final = "images.lock"

MOST_FILES: Final = 400_000
LARGEST_SET_BYTES: Final = 16 << 30
"""Of all files, unpacked."""

_FOLDER: Final = r"(?!set\.json/|matrix\.toml/|images\.lock/)(?P<folder>[^/\\.\x00-\x1f\x7f][^/\\\x00-\x1f\x7f]*)/"
_NAME: Final = re.compile(
    rf"(?:{_FOLDER})?(?P<file>matrix\.toml|images\.lock|records/[0-9a-f]{{32}}\.[1-9][0-9]{{0,9}}\.json"
    r"|traces/[0-9a-f]{32}\.[1-9][0-9]{0,9}\.json\.gz|runs/[A-Za-z0-9][A-Za-z0-9_.-]{0,63}\.json)"
)
"""The folder is a matrix's, where there are several."""
_UPDATE: Final = "Use the version of kernel-matrix that packed it; set.json names it."
_MOST_FOLDER_BYTES: Final = 155  # a header of tar has no room for more
_HEADER: Final = struct.Struct("100s8s8s8s12s12s8sc100s6s2s32s32s8s8s155s12x")
_BLOCK: Final = 512
_SINCE_S: Final = 315_532_800  # 1980: some tools know no earlier time
_MAGIC: Final = b"\xfd7zXZ\0"
_PIECE: Final = 1 << 16
_MEMORY: Final = 64 << 20  # for decompressing; preset 6 needs 9 MiB


@dataclass(frozen=True, slots=True, kw_only=True)
class SetFile:
    """A file of a packed set."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetDescription:
    """Description of a packed set: its ``set.json``."""

    kernel_matrix: str
    """Version of the program that packed it."""
    salted: bool
    """Whether hashes stand for what identifies machines."""
    records: int
    runs: int
    traces: int
    matrices: tuple[str, ...]
    """Names of the matrices, by the runs."""
    measurement_versions: tuple[str, ...]
    """Of all records."""
    problems: Mapping[str, tuple[str, ...]]
    """Problem → its digests in records."""
    left_out: Mapping[str, int]
    """Reason → number of files of the folder that are not in the set."""
    files: Mapping[str, SetFile]
    """All other files of the set, in order."""
    schema_version: int = SCHEMA_VERSION
    """Of the records."""
    format: str = FORMAT
    format_version: int = FORMAT_VERSION


class SetRefusedError(StoreError):
    """A packed set is damaged, hostile, or of a version that this program does not read."""

    def __init__(self, path: Path, why: str, next_step: str) -> None:
        super().__init__(printable(f"{path} is refused: {why}"), next_step=next_step)


@dataclass(slots=True)
class SetWriter:
    """Writer of a packed set, file by file."""

    files: dict[str, SetFile] = field(default_factory=dict)
    _compressor: lzma.LZMACompressor = field(default_factory=lzma.LZMACompressor)
    _parts: list[bytes] = field(default_factory=list)

    def add(self, name: str, data: bytes) -> None:
        """Add a file; names are unique and given in order.

        Raises:
            StoreError: A packed set cannot have a file of that name or size.
        """
        why = "another folder has the same name" if name in self.files else _fault_of(name, len(data))
        if why:
            raise StoreError(printable(f"{name} cannot be packed: {why}"), next_step="Rename its folder.")
        self.files[name] = SetFile(size_bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
        self._parts.append(self._compressor.compress(_archived(name, data)))

    def finish(self, description: SetDescription) -> bytes:
        """Return the bytes of the set, which is described by ``description``."""
        text = json.dumps(to_json(description), ensure_ascii=False, indent=1)
        first = lzma.compress(_archived(DESCRIPTION, f"{text}\n".encode()))
        return b"".join([first, *self._parts, self._compressor.compress(bytes(2 * _BLOCK)), self._compressor.flush()])


def unpack_set(path: Path, folder: Path) -> SetDescription:
    """Unpack a packed set into an empty folder.

    Args:
        path: The file, which anybody may have written.
        folder: The folder. Nothing is written outside of it; after an error it holds what came before the fault.

    Returns:
        The description of the set, which it fits.

    Raises:
        SetRefusedError: It is no packed set, or not whole, or does not fit its description.
        StoreError: It cannot be read, or the folder cannot be written.
    """
    try:
        with path.open("rb") as file:
            reader = _SetReader(path, file)
            description = reader.read_description()
            _check_room(description, folder)
            reader.unpack(description, folder)
    except OSError as error:
        raise StoreError(
            f"{path} cannot be unpacked into {folder}: {error.strerror}", next_step="Name a folder with room for it."
        ) from error
    return description


def unpack_sets(folders: Sequence[Path], aside: Path) -> list[Path]:
    """Return ``folders``, with a folder below ``aside`` in place of each that is a packed set.

    Raises:
        StoreError: A set is refused, or cannot be unpacked.
    """
    return [_unpacked(path, aside / f"{number}") if path.is_file() else path for number, path in enumerate(folders)]


@contextmanager
def unpacked_file(path: Path) -> Iterator[Path]:
    """Provide a file that may be in a packed set, as in ``set.kmz/records/<name>``.

    Raises:
        StoreError: The set is refused, or cannot be unpacked.
    """
    packed = next((parent for parent in path.parents if parent.is_file()), None)
    if packed is None:
        yield path
        return
    with tempfile.TemporaryDirectory(prefix="kernel-matrix-") as aside:
        yield _unpacked(packed, Path(aside)) / path.relative_to(packed)


def _unpacked(path: Path, parent: Path) -> Path:
    folder = parent / path.name
    folder.mkdir(parents=True)
    unpack_set(path, folder)
    return folder


def _check_room(description: SetDescription, folder: Path) -> None:
    need, free = sum(file.size_bytes for file in description.files.values()), shutil.disk_usage(folder).free
    if need > free:
        what = f"the set has {need >> 20} MiB unpacked, and {folder} has room for {free >> 20} MiB"
        raise StoreError(what, next_step="Make room, or set TMPDIR to a folder on a larger disk.")


class _SetReader:
    """Reader of a packed set that accepts only what :class:`SetWriter` writes."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self._path = path
        self._pieces = self._decompress(file)
        self._waiting = bytearray()

    def read_description(self) -> SetDescription:
        """Read ``set.json``."""
        header = self._take(_BLOCK)
        try:
            size_bytes = int(header[124:135], 8)
        except ValueError:
            size_bytes = -1
        if not 0 <= size_bytes <= MAX_BYTES or header != _header(DESCRIPTION, size_bytes):
            raise self._refused(f"it is no packed set: its first file is not {DESCRIPTION}")
        data = self._take(size_bytes)
        self._skip_padding(size_bytes)
        try:
            said = parse_object(data)
            self._check_version(said.get("format"), said.get("format_version"), said.get("schema_version"))
            description = from_json(SetDescription, said)
        except UntrustedJsonError as error:
            raise self._refused(f"{DESCRIPTION} is not valid: {error.reason}") from None
        except ValueError as error:
            raise self._refused(f"{DESCRIPTION} is not valid: {error}") from None
        self._check_files(description)
        return description

    def unpack(self, description: SetDescription, folder: Path) -> None:
        """Write all files that ``description`` lists, and compare them with it."""
        versions: set[str] = set()
        for name, said in description.files.items():
            data = self._read_file(name, said)
            if _kind(name) == "records":
                versions.add(self._measurement_version(name, data))
            place = folder / name
            place.parent.mkdir(parents=True, exist_ok=True)
            with place.open("xb") as file:
                file.write(data)
        if self._take(2 * _BLOCK) != bytes(2 * _BLOCK) or next(self._pieces, None) is not None:
            raise self._refused(f"it has more than {DESCRIPTION} lists")
        if sorted(versions) != sorted(description.measurement_versions):
            raise self._refused(
                f"{DESCRIPTION} names measurement versions {_shortened(description.measurement_versions)},"
                f" its records {_shortened(versions)}"
            )
        (folder / DESCRIPTION).write_text(json.dumps(to_json(description), indent=1) + "\n", encoding="utf-8")

    def _check_version(self, form: object, version: object, schema_version: object) -> None:
        if form != FORMAT or type(version) is not int:
            raise self._refused(f"it is no packed set: its format is {form!r:.80}")
        if version != FORMAT_VERSION:
            raise self._refused(f"it has version {version} of the format; this program reads {FORMAT_VERSION}", _UPDATE)
        if schema_version != SCHEMA_VERSION:
            raise self._refused(
                f"its records have schema version {schema_version!r:.80}, not {SCHEMA_VERSION}", _UPDATE
            )

    def _check_files(self, description: SetDescription) -> None:
        for name, said in description.files.items():
            why = _fault_of(name, said.size_bytes)
            if why:
                raise self._refused(f"{DESCRIPTION} lists {name!r:.200}: {why}")
        if len(description.files) > MOST_FILES:
            raise self._refused(f"it has {len(description.files)} files; allowed are {MOST_FILES}")
        total = sum(file.size_bytes for file in description.files.values())
        if total > LARGEST_SET_BYTES:
            raise self._refused(f"it has {total >> 20} MiB unpacked; allowed are {LARGEST_SET_BYTES >> 20}")
        counts = {
            kind: sum(_kind(name) == kind for name in description.files) for kind in ("records", "runs", "traces")
        }
        if counts != {"records": description.records, "runs": description.runs, "traces": description.traces}:
            raise self._refused(f"{DESCRIPTION} contradicts itself: it lists other numbers of files than it says")

    def _read_file(self, name: str, said: SetFile) -> bytes:
        # A link, or a file that comes twice, has another header than this.
        if self._take(_BLOCK) != _header(name, said.size_bytes):
            raise self._refused(f"it does not go on with the file {name} as {DESCRIPTION} lists it")
        data = self._take(said.size_bytes)
        self._skip_padding(said.size_bytes)
        if hashlib.sha256(data).hexdigest() != said.sha256:
            raise self._refused(f"{name} was altered: it has another SHA-256 than {DESCRIPTION} lists")
        return data

    def _measurement_version(self, name: str, data: bytes) -> str:
        try:
            host = current_names(parse(data)).get("host")
        except RecordRefusedError as error:
            raise self._refused(f"{name} is no record: {error.detail}") from None
        version = host.get("measurement_version") if isinstance(host, dict) else None
        if not isinstance(version, str):
            raise self._refused(f"{name} is no record: it has no measurement version")
        return version

    def _skip_padding(self, size_bytes: int) -> None:
        if any(self._take(-size_bytes % _BLOCK)):
            raise self._refused("there is something between two files")

    def _take(self, size_bytes: int) -> bytes:
        """Return the next bytes."""
        while len(self._waiting) < size_bytes:
            piece = next(self._pieces, None)
            if piece is None:
                raise self._refused("it is cut off")
            self._waiting += piece
        taken = bytes(self._waiting[:size_bytes])
        del self._waiting[:size_bytes]
        return taken

    def _decompress(self, file: BinaryIO) -> Iterator[bytes]:
        """Yield the content in small pieces: a few bytes may stand for very many."""
        compressed = file.read(_PIECE)
        if not _MAGIC.startswith(compressed[: len(_MAGIC)]):
            raise self._refused("it is no packed set: it is not compressed with xz")
        while compressed:
            stream = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_MEMORY)
            while not stream.eof:
                if stream.needs_input and not compressed and not (compressed := file.read(_PIECE)):
                    raise self._refused("it is cut off")
                try:
                    piece = stream.decompress(compressed, _PIECE)
                except lzma.LZMAError as error:
                    raise self._refused(f"it is no packed set, or was altered: {error}") from None
                compressed = b""
                if piece:
                    yield piece
            compressed = stream.unused_data or file.read(_PIECE)

    def _refused(self, why: str, next_step: str = "Get the file again from where it came from.") -> SetRefusedError:
        return SetRefusedError(self._path, why, next_step)


def _fault_of(name: str, size_bytes: int) -> str:
    """Return why a packed set cannot have such a file; empty if it can."""
    found = _NAME.fullmatch(name)
    if found is None:
        outside = name.startswith("/") or ".." in name.split("/")
        return "it lies outside of the set" if outside else "it is no file of a result folder"
    if len((found["folder"] or "").encode(errors="replace")) > _MOST_FOLDER_BYTES:
        return f"the name of its folder has more than {_MOST_FOLDER_BYTES} bytes"
    if not 0 <= size_bytes <= MAX_BYTES:
        return f"{size_bytes} bytes are not 0 to {MAX_BYTES}"
    return ""


def _kind(name: str) -> str:
    """Return ``records``, ``runs`` or ``traces``, or for other files something else."""
    return name.split("/")[-2] if "/" in name else ""


def _archived(name: str, data: bytes) -> bytes:
    """Return a file as it stands in the archive."""
    return b"".join([_header(name, len(data)), data, bytes(-len(data) % _BLOCK)])


def _header(name: str, size_bytes: int) -> bytes:
    """Return the header of a file in the format ``ustar``; the bytes of :mod:`tarfile` depend on the Python."""
    found = _NAME.fullmatch(name)
    folder, rest = (found["folder"] or "", found["file"]) if found else ("", name)
    no_device, number = b"0000000\0", b"%011o\0"
    texts = (rest.encode(), b"0000644\0", no_device, no_device, number % size_bytes, number % _SINCE_S, b" " * 8)
    rights = (b"0", b"", b"ustar\0", b"00", b"", b"", no_device, no_device, folder.encode(errors="replace"))
    header = _HEADER.pack(*texts, *rights)
    return header[:148] + b"%06o\0 " % sum(header) + header[156:]


def _shortened(versions: Sequence[str] | set[str]) -> str:
    return ", ".join(sorted(f"{version:.12}" for version in versions)[:4]) or "none"
