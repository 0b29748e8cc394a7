"""Properties of kernels that Triton compiled for AMD GPUs, from the assembly that it keeps beside the machine code.

LLVM ends the assembly of a kernel with metadata in YAML, one property per line. The format is that of code object
version 5, described in LLVM's user guide for the AMDGPU backend.
"""

from __future__ import annotations

import hashlib
import re
from contextlib import suppress
from pathlib import Path
from typing import Dict, List, Optional

from kernel_matrix.inside.build.elf import read_elf
from kernel_matrix.inside.build.triton_cache import shared_at_launch
from kernel_matrix.inside.wire import MAX_KERNELS, KernelCode

_REGISTER_BYTES = 4

_TARGET = re.compile(r'^\s*\.amdgcn_target\s+"[^"]*--(gfx[0-9a-f]{3,5})', re.MULTILINE | re.ASCII)
_NUMBER = r"^\s*(?:- )?\.{name}:\s+(\d{{1,9}})\s*$"
_SYMBOL = re.compile(r"^\s*(?:- )?\.symbol:\s+'?([^'\s]+)\.kd'?\s*$", re.MULTILINE)
"""Symbol of a kernel's description: the kernel's name with an ending."""
_MATRIX_INSTRUCTION = re.compile(r"^\s*v_(mfma|smfmac|wmma|swmmac)_", re.MULTILINE)
"""Family of an instruction for matrix products."""


def kernels_in(folder: Path, log: str) -> List[KernelCode]:  # noqa: ARG001  # the assembly says all of it
    """Return the distinct kernels that Triton compiled into ``folder``, at most ``MAX_KERNELS``.

    Args:
        folder: folder of compiled files.
        log: output of the compilers.
    """
    found: Dict[KernelCode, None] = {}
    for path in sorted(folder.rglob("*.amdgcn")):
        with suppress(ValueError, OSError):  # a file of another format has no kernels
            assembly = path.read_text(encoding="utf-8", errors="replace")
            found[kernel_of(assembly, _machine_code(path), at_launch=shared_at_launch(path))] = None
    return list(found)[:MAX_KERNELS]


def kernel_of(assembly: str, code: bytes, *, at_launch: int = 0) -> KernelCode:
    """Return the properties of the kernel in ``assembly``.

    A register that is spilled is counted as one store and one load of four bytes per thread, the least that it costs.

    Args:
        assembly: text in which LLVM describes the kernel.
        code: its machine code, for the digest.
        at_launch: bytes of shared memory that each launch adds, if known.

    Raises:
        ValueError: if the text lacks a property.
    """
    target, symbol = _TARGET.search(assembly), _SYMBOL.search(assembly)
    if target is None or symbol is None:
        raise ValueError("there is no kernel")
    spilled_bytes = _REGISTER_BYTES * _number(assembly, "vgpr_spill_count")
    return KernelCode(
        name=symbol.group(1),
        compute_capability=target.group(1),
        registers=_number(assembly, "vgpr_count"),
        spill_store_bytes=spilled_bytes,
        spill_load_bytes=spilled_bytes,
        shared_bytes=at_launch + _number(assembly, "group_segment_fixed_size"),
        stack_bytes=_number(assembly, "private_segment_fixed_size"),
        sha256=hashlib.sha256(code).hexdigest(),
        scalar_registers=_number(assembly, "sgpr_count"),
        accumulator_registers=_optional(assembly, "agpr_count"),
        threads=_number(assembly, "max_flat_workgroup_size"),
        matrix_instructions=tuple(sorted(set(_MATRIX_INSTRUCTION.findall(assembly)))),
    )


def _number(assembly: str, name: str) -> int:
    number = _optional(assembly, name)
    if number is None:
        raise ValueError(f"the kernel has no {name}")
    return number


def _optional(assembly: str, name: str) -> Optional[int]:
    found = re.search(_NUMBER.format(name=name), assembly, re.MULTILINE | re.ASCII)
    return int(found.group(1)) if found else None


def _machine_code(assembly: Path) -> bytes:
    """Return instructions, constants and the kernel's description of the code object beside ``assembly``."""
    elf = read_elf(assembly.with_suffix(".hsaco").read_bytes())
    return b"".join(section.data for name in (".text", ".rodata") for section in elf.named(name))
