"""Find tensors in safetensors files by reading only the header.

A file has 8 bytes of header length (little-endian), a JSON header with dtype, shape and offsets of each tensor, and the
data. Every number in the header is checked against the file.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

from kernel_matrix.file_hash import file_sha256
from kernel_matrix.sources.document import JsonObject, UnreadableFileError, parse_json_object
from kernel_matrix.sources.flashinfer.definition import ITEMSIZES

MAX_HEADER = 16 << 20
"""Longest header that is read, in bytes; even headers of whole models are shorter."""
MAX_FILE = 4 << 30
"""Largest file in bytes, because the judge and the baseline of each session get a copy."""

DTYPES = {
    "F64": "float64",
    "F32": "float32",
    "F16": "float16",
    "BF16": "bfloat16",
    "F8_E4M3": "float8_e4m3fn",
    "F8_E5M2": "float8_e5m2",
    "I64": "int64",
    "I32": "int32",
    "I16": "int16",
    "I8": "int8",
    "U8": "uint8",
    "BOOL": "bool",
}
"""Dtype in the format → dtype of torch."""

_POINTER = b"version https://git-lfs"


@dataclass(frozen=True, slots=True)
class TensorBlob:
    """One tensor of a file."""

    path: Path
    start: int
    """First byte of its data, from the beginning of the file."""
    nbytes: int


def find_tensor(path: Path, key: str, dtype: str, shape: Sequence[int]) -> TensorBlob:
    """Find tensor ``key``, which must have this dtype and shape.

    Raises:
        UnreadableFileError: the file is damaged, or has no such tensor.
    """
    header, data_at, file_bytes = _read_header(path)
    entry = header.get(key)
    if not isinstance(entry, dict) or key == "__metadata__":
        names = ", ".join(name for name in header if name != "__metadata__")[:200]
        raise UnreadableFileError(path, f"has no tensor {key!r}; it has: {names}")
    _check_type(path, key, entry, dtype, shape)
    offsets: Any = entry.get("data_offsets")
    wanted = prod(shape) * ITEMSIZES[dtype]
    begin, end = offsets if _are_sizes(offsets) and len(offsets) == 2 else (0, -1)
    if end - begin != wanted:
        raise UnreadableFileError(path, f"tensor {key!r}: data_offsets {_shorten(offsets)} do not cover {wanted} bytes")
    if data_at + end > file_bytes:
        raise UnreadableFileError(
            path, f"tensor {key!r}: data_offsets {_shorten(offsets)} lie beyond the end of the file"
        )
    return TensorBlob(path, data_at + begin, wanted)


def sha256_of(path: Path) -> str:
    """Return the SHA-256 of a file in hex.

    Raises:
        UnreadableFileError: it cannot be read.
    """
    try:
        return file_sha256(path)
    except OSError as error:
        raise UnreadableFileError(path, f"cannot be read: {error.strerror}") from None


def _read_header(path: Path) -> tuple[JsonObject, int, int]:
    """Return the header, the offset of the data, and the size of the file in bytes."""
    if not path.is_file():
        raise UnreadableFileError(path, "there is no such file")
    try:
        file_bytes = path.stat().st_size
        with path.open("rb") as file:
            begin = file.read(len(_POINTER))
            (length,) = struct.unpack("<Q", begin[:8].ljust(8, b"\0"))
            file.seek(8)
            header = file.read(length) if length <= min(MAX_HEADER, file_bytes - 8) else b""
    except OSError as error:
        raise UnreadableFileError(path, f"cannot be read: {error.strerror}") from None
    if begin == _POINTER:
        raise UnreadableFileError(path, "is a pointer of Git LFS, not the file itself; fetch it with `git lfs pull`")
    if file_bytes > MAX_FILE:
        raise UnreadableFileError(path, f"is larger than {MAX_FILE >> 30} GiB")
    if file_bytes < 8 or length > file_bytes - 8:
        raise UnreadableFileError(path, f"is not safetensors: a header of {length} bytes in a file of {file_bytes}")
    if length > MAX_HEADER:
        raise UnreadableFileError(path, f"is not safetensors: the header is larger than {MAX_HEADER >> 20} MiB")
    return parse_json_object(path, header.decode("utf-8", errors="replace")), 8 + length, file_bytes


def _check_type(path: Path, key: str, entry: JsonObject, dtype: str, shape: Sequence[int]) -> None:
    known = entry.get("dtype")
    if not isinstance(known, str) or known not in DTYPES:
        raise UnreadableFileError(
            path, f"tensor {key!r}: dtype {known!r} is unsupported; supported: {', '.join(DTYPES)}"
        )
    if DTYPES[known] != dtype:
        raise UnreadableFileError(path, f"tensor {key!r} is {DTYPES[known]}; the definition needs {dtype}")
    if not _are_sizes(entry.get("shape")) or entry["shape"] != list(shape):
        given = _shorten(entry.get("shape"))
        raise UnreadableFileError(path, f"tensor {key!r} has shape {given}; expected {list(shape)}")


def _are_sizes(value: Any) -> bool:
    return isinstance(value, list) and all(type(item) is int and item >= 0 for item in value)


def _shorten(value: Any) -> str:
    return repr(value)[:80]
