"""What a compiler made of each kernel, read from the machine code itself.

Device code lies in cubins: ELF files with one ``.text`` section per kernel. A host library holds them in fat binaries,
in its section ``.nv_fatbin``. None of these forms is documented in full; what is read here agrees with ``ptxas -v`` for
compute capability 7.5 to 12.0, as CUDA 12.8, 13.0 and 13.1 write them.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import json
import re
import struct
from contextlib import suppress
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from kernel_matrix.inside.wire import MAX_KERNELS, KernelCode
from kernel_matrix.platforms.cuda.inside.build.elf import MAGIC, Elf, Symbol, read_elf
from kernel_matrix.platforms.cuda.inside.build.ptxas_log import Spills, spills_of

_FAT_MAGIC = 0xBA55ED50
_FAT = struct.Struct("<IHHQ")
"""Magic, version, length of this header, length of what follows."""
_PART = struct.Struct("<HHIQ")
"""Kind, attributes, length of this header, length of the payload."""
_PART_IS_ELF = 2
_FAT_SECTIONS = (".nv_fatbin", "__nv_relfatbin")

_ENTRY = 0x10
"""Bit of a symbol's ``other`` that marks a kernel."""
_ABI_12 = 7
"""ABI version of CUDA 12: compute capability in the flags' lowest byte; later ones have it in the next."""
_REGISTERS, _STACK = 0x2F, 0x12
"""Attributes in ``.nv.info``: (symbol, value) pairs."""
_PAIR = 4
"""Format of an attribute that carries its length."""

_USED = re.compile(r"\.(?:text|nv\.global\.init|nv\.constant[1-9]\d*)(?:\.(?P<of>.*))?")
"""Sections of code and of values that it reads, with the function they belong to; constant bank 0 is for arguments."""

_RESERVED_FROM, _RESERVED_BYTES = 90, 1 << 10
"""From Hopper on a kernel's section of shared memory begins with what the system keeps for itself."""


def kernels_in(folder: Path, log: str) -> List[KernelCode]:
    """The kernels of all libraries and cubins below ``folder``, each content once, at most ``MAX_KERNELS``.

    :param log: what ``ptxas -v`` said; without a word of it on a kernel, its spills are given as 0.
    """
    spills = spills_of(log)
    found: Dict[KernelCode, None] = {}
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".so", ".cubin") and path.is_file():
            with suppress(ValueError, OSError):  # a file that is no such thing has no kernels
                found.update(dict.fromkeys(_kernels_of_file(path, spills)))
    return list(found)[:MAX_KERNELS]


def _kernels_of_file(path: Path, spills: Mapping[Tuple[str, int], Spills]) -> List[KernelCode]:
    image = path.read_bytes()
    if path.suffix == ".cubin":
        return list(kernels_of(image, spills, at_launch=_shared_at_launch(path)))
    return [kernel for cubin in cubins_of(image) for kernel in kernels_of(cubin, spills)]


def _shared_at_launch(cubin: Path) -> int:
    """Bytes of shared memory that Triton, which notes them beside the cubin, will launch it with."""
    try:
        return int(json.loads(cubin.with_suffix(".json").read_text(encoding="utf-8"))["shared"])
    except (OSError, ValueError, KeyError, TypeError):
        return 0


def cubins_of(library: bytes) -> Iterator[bytes]:
    """The uncompressed cubins in the fat binaries of a host library.

    :raises ValueError: when it is no ELF file.
    """
    elf = read_elf(library)
    for name in _FAT_SECTIONS:
        for section in elf.named(name):
            yield from _cubins_of_section(section.data)


def _cubins_of_section(data: bytes) -> Iterator[bytes]:
    at = 0
    while at + _FAT.size <= len(data):
        magic, _, header, length = _FAT.unpack_from(data, at)
        if magic != _FAT_MAGIC or header < _FAT.size:
            at += 8  # fat binaries are padded to each other's alignment
            continue
        yield from _cubins_of_fat(data[at + header : at + header + length])
        at += header + length


def _cubins_of_fat(parts: bytes) -> Iterator[bytes]:
    at = 0
    while at + _PART.size <= len(parts):
        kind, _, header, length = _PART.unpack_from(parts, at)
        if header < _PART.size:
            return
        payload = parts[at + header : at + header + length]
        if kind == _PART_IS_ELF and payload.startswith(MAGIC):
            yield payload
        at += header + length


def kernels_of(cubin: bytes, spills: Mapping[Tuple[str, int], Spills], *, at_launch: int = 0) -> Iterator[KernelCode]:
    """The kernels of one cubin.

    :param at_launch: bytes of shared memory known to be asked for at each launch.
    :raises ValueError: when it is no ELF file.
    """
    elf = read_elf(cubin)
    arch = (elf.flags if elf.abi_version <= _ABI_12 else elf.flags >> 8) & 0xFF
    symbols = elf.symbols()
    registers, stack = (_attribute(elf, number) for number in (_REGISTERS, _STACK))
    for index, symbol in enumerate(symbols):
        if symbol.other & _ENTRY and symbol.section < len(elf.sections):
            spilled = spills.get((symbol.name, arch), Spills())
            yield KernelCode(
                name=demangled(symbol.name),
                arch=arch,
                registers=registers.get(index, 0),
                spill_store_bytes=spilled.store_bytes,
                spill_load_bytes=spilled.load_bytes,
                shared_bytes=at_launch + _static_shared(elf, symbol.name, arch),
                stack_bytes=stack.get(index, 0),
                sha256=_digest(elf, symbol),
            )


def _static_shared(elf: Elf, kernel: str, arch: int) -> int:
    size = max((section.size for section in elf.named(f".nv.shared.{kernel}")), default=0)
    return max(0, size - (_RESERVED_BYTES if arch >= _RESERVED_FROM else 0))


def _digest(elf: Elf, kernel: Symbol) -> str:
    """SHA-256 of a kernel's instructions and of what it may use: constants, and functions that are no kernels."""
    text = elf.sections[kernel.section]
    others = {symbol.name for symbol in elf.symbols() if symbol.other & _ENTRY} - {kernel.name}
    beside = ((section.data, _USED.fullmatch(section.name)) for section in elf.sections if section is not text)
    used = [data for data, found in beside if found and found["of"] not in others]
    digest = hashlib.sha256()
    for content in (text.data, *sorted(used)):
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _attribute(elf: Elf, wanted: int) -> Dict[int, int]:
    """Index of a symbol → value, for one attribute of ``.nv.info``."""
    found: Dict[int, int] = {}
    for section in elf.named(".nv.info"):
        at = 0
        while at + 4 <= len(section.data):
            form, attribute, length = struct.unpack_from("<BBH", section.data, at)
            carried = length if form == _PAIR else 0
            if attribute == wanted and carried == 8 and at + 12 <= len(section.data):
                symbol, value = struct.unpack_from("<II", section.data, at + 4)
                found[symbol] = value
            at += 4 + carried
    return found


def demangled(name: str) -> str:
    """``name`` as it stands in the source, where it is C++ and this machine's runtime can tell."""
    demangle = _demangler() if name.startswith("_Z") else None
    if demangle is None:
        return name
    text = demangle(name.encode(), None, None, None)
    if not text:
        return name
    try:
        return ctypes.string_at(text).decode("utf-8", "replace")
    finally:
        ctypes.CDLL(None).free(ctypes.c_void_p(text))


@functools.lru_cache(maxsize=None)
def _demangler() -> Optional[Callable[..., Optional[int]]]:
    """``__cxa_demangle`` of the C++ runtime, which gives memory that its caller frees."""
    try:
        function = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
    function.restype = ctypes.c_void_p
    return function
