"""Properties of compiled kernels, read from their machine code.

Device code is stored in cubins, which are ELF files with one ``.text`` section per kernel. A host library contains them
in fat binaries, in its section ``.nv_fatbin``. NVIDIA does not fully document these formats. The values that this
module reads agree with ``ptxas -v`` for compute capability 7.5 to 12.0, in files of CUDA 12.8, 13.0 and 13.1.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import re
import struct
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Callable, Dict, Iterator, List, Mapping, Optional, Tuple

from kernel_matrix.inside.build.elf import MAGIC, Elf, Symbol, read_elf
from kernel_matrix.inside.build.triton_cache import shared_at_launch
from kernel_matrix.inside.wire import MAX_KERNELS, KernelCode
from kernel_matrix.platforms.cuda.inside.build.ptxas_log import Spills, spills_of

_FAT_MAGIC = 0xBA55ED50
_FAT = struct.Struct("<IHHQ")
"""Magic, version, length of this header, length of the parts after it."""
_PART = struct.Struct("<HHIQ")
"""Kind, attributes, length of this header, length of the payload."""
_PART_IS_ELF = 2
_FAT_SECTIONS = (".nv_fatbin", "__nv_relfatbin")

_ENTRY = 0x10
"""Bit in ``other`` of a symbol that marks a kernel."""
_ABI_12 = 7
"""ABI version of CUDA 12, which has the compute capability in the lowest byte of the flags; later ones have it in the
second byte."""
_REGISTERS, _STACK = 0x2F, 0x12
"""Numbers of attributes in ``.nv.info`` whose values are pairs (symbol, value)."""
_PAIR = 4
"""Format of an attribute that has a length and a payload."""

_USED = re.compile(r"\.(?:text|nv\.global\.init|nv\.constant[1-9]\d*)(?:\.(?P<of>.*))?")
"""Names of sections with code or constants, and the function they belong to. Constant bank 0 holds arguments, which
are not part of the kernel."""

_THREADS = re.compile(r"\.(?:req|max)ntid (\d{1,4})\b")
"""Threads of a block in PTX, at most the 1,024 that a device allows."""
_MATRIX_INSTRUCTION = re.compile(r"\b(tcgen05|wgmma|wmma|mma)\.(?:mma|sp|sync)")
"""Family of an instruction for matrix products, in PTX."""

_RESERVED_FROM, _RESERVED_BYTES = 90, 1 << 10
"""Compute capability × 10 from which on a kernel's section of shared memory begins with bytes that the system reserves,
and their number."""


def kernels_in(folder: Path, log: str) -> List[KernelCode]:
    """Return the distinct kernels of all libraries and cubins below ``folder``, at most ``MAX_KERNELS``.

    Args:
        folder: folder of compiled files.
        log: output of ``ptxas -v``; the spills of a kernel that it does not mention are 0.
    """
    spills = spills_of(log)
    found: Dict[KernelCode, KernelCode] = {}  # without and with what only the assembly tells
    for path in sorted(folder.rglob("*")):
        if path.suffix in (".so", ".cubin") and path.is_file():
            with suppress(ValueError, OSError):  # a file of another format has no kernels
                for kernel in _kernels_of_file(path, spills):
                    same = replace(kernel, threads=None, matrix_instructions=None)
                    if kernel != same or same not in found:
                        found[same] = kernel
    return list(found.values())[:MAX_KERNELS]


def _kernels_of_file(path: Path, spills: Mapping[Tuple[str, int], Spills]) -> List[KernelCode]:
    image = path.read_bytes()
    if path.suffix == ".cubin":
        threads, uses = _read_ptx(path.with_suffix(".ptx"))
        kernels = kernels_of(image, spills, at_launch=shared_at_launch(path))
        return [replace(kernel, threads=threads, matrix_instructions=uses) for kernel in kernels]
    return [kernel for cubin in cubins_of(image) for kernel in kernels_of(cubin, spills)]


def _read_ptx(path: Path) -> Tuple[Optional[int], Optional[Tuple[str, ...]]]:
    """Return threads per block and families of matrix instructions from the PTX that Triton keeps beside a cubin."""
    try:
        text = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None, None
    threads = _THREADS.search(text)
    return int(threads.group(1)) if threads else None, tuple(sorted(set(_MATRIX_INSTRUCTION.findall(text))))


def cubins_of(library: bytes) -> Iterator[bytes]:
    """Yield the uncompressed cubins in the fat binaries of a host library.

    Raises:
        ValueError: if ``library`` is not an ELF file.
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
            at += 8  # padding between fat binaries, which are aligned to 8 bytes
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
    """Yield the kernels of one cubin.

    Args:
        cubin: content of the file.
        spills: (mangled name, compute capability × 10) → spills.
        at_launch: bytes of shared memory that each launch adds, if known.

    Raises:
        ValueError: if ``cubin`` is not an ELF file.
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
                compute_capability=f"{arch // 10}.{arch % 10}",
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
    """Return the SHA-256 of a kernel's instructions, and of the constants and device functions that it may use."""
    text = elf.sections[kernel.section]
    others = {symbol.name for symbol in elf.symbols() if symbol.other & _ENTRY} - {kernel.name}
    beside = ((section.data, _USED.fullmatch(section.name)) for section in elf.sections if section is not text)
    used = [data for data, found in beside if found and found["of"] not in others]
    digest = hashlib.sha256()
    for content in (text.data, *sorted(used)):
        digest.update(len(content).to_bytes(8, "little") + content)
    return digest.hexdigest()


def _attribute(elf: Elf, wanted: int) -> Dict[int, int]:
    """Return index of a symbol → value, for one attribute of ``.nv.info``."""
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
    """Return ``name`` as in the source if it is a mangled C++ name and this machine's runtime can demangle it."""
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
    """Return ``__cxa_demangle`` of the C++ runtime; its caller must free the memory that it returns."""
    try:
        function = ctypes.CDLL("libstdc++.so.6")["__cxa_demangle"]
    except (OSError, AttributeError):
        return None
    function.argtypes = (ctypes.c_char_p, ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p)
    function.restype = ctypes.c_void_p
    return function
