"""Reader of sections and symbols of 64-bit little-endian ELF files, for host libraries and for device code."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Iterator, List, Tuple

MAGIC = b"\x7fELF"

_HEADER = struct.Struct("<16sHHIQQQIHHHHHH")
_SECTION = struct.Struct("<IIQQQQIIQQ")
_SYMBOL = struct.Struct("<IBBHQQ")
_BITS64_LITTLE = b"\x02\x01"
_NO_BITS, _SYMBOLS = 8, 2
"""Types of a section without data in the file, and of the symbol table."""


@dataclass(frozen=True)
class Section:
    """One section of a file."""

    name: str
    kind: int
    size: int
    """Size in memory in bytes; a section of kind ``NOBITS`` has no bytes in the file."""
    data: bytes
    link: int


@dataclass(frozen=True)
class Symbol:
    """One symbol of a file."""

    name: str
    other: int
    """Visibility, and bits that the architecture defines."""
    section: int
    """Index of the section that contains it."""


@dataclass(frozen=True)
class Elf:
    """Contents of one file."""

    flags: int
    abi_version: int
    sections: Tuple[Section, ...]

    def named(self, name: str) -> Iterator[Section]:
        """Return the sections with this name."""
        return (section for section in self.sections if section.name == name)

    def symbols(self) -> List[Symbol]:
        """Return all symbols in the order of the file; the one at index 0 is a placeholder."""
        for section in self.sections:
            if section.kind == _SYMBOLS and section.link < len(self.sections):
                names = self.sections[section.link].data
                found = _SYMBOL.iter_unpack(section.data[: len(section.data) // _SYMBOL.size * _SYMBOL.size])
                return [Symbol(_text(names, at), other, index) for at, _, other, index, _, _ in found]
        return []


def read_elf(image: bytes) -> Elf:
    """Read the contents of an ELF file.

    Raises:
        ValueError: if ``image`` is not a 64-bit little-endian ELF file, or is truncated.
    """
    try:
        ident, _, _, _, _, _, start, flags, _, _, _, width, count, names_at = _HEADER.unpack_from(image)
        if ident[:4] != MAGIC or ident[4:6] != _BITS64_LITTLE or width != _SECTION.size:
            raise ValueError("not a 64-bit little-endian ELF file")
        rows = [_SECTION.unpack_from(image, start + index * width) for index in range(count)]
        names = _content(image, rows[names_at]) if rows else b""
        sections = tuple(Section(_text(names, r[0]), r[1], r[5], _content(image, r), r[6]) for r in rows)
    except (struct.error, IndexError, OverflowError) as error:
        raise ValueError(f"an ELF file that is cut off: {error}") from None
    return Elf(flags, ident[8], sections)


def _content(image: bytes, row: Tuple[int, ...]) -> bytes:
    _, kind, _, _, offset, size, *_ = row
    return b"" if kind == _NO_BITS else image[offset : offset + size]


def _text(names: bytes, start: int) -> str:
    end = names.find(b"\0", start)
    return names[start : end if end >= 0 else None].decode("utf-8", "replace")
