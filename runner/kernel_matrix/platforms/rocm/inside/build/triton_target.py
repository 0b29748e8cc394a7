"""AMD GPUs as Triton's compiler sees them, to compile for one that is not present."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Sequence, Tuple

from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
from kernel_matrix.inside.build.triton_ahead import TritonTarget, compile_for
from kernel_matrix.model.enums import Dtype

_NAME = re.compile(r"gfx(?P<major>[0-9]{1,2})(?P<minor>[0-9a-f])(?P<stepping>[0-9a-f])", re.ASCII)
"""LLVM's name of an architecture: a decimal number and two hexadecimal digits."""

_WAVES_OF_32_FROM = 10
"""First major version whose wavefronts have 32 threads by default, else 64."""


def compile_ahead(
    source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype, target: CompileTarget
) -> CompiledAhead:
    """Compile the kernels that calls of a candidate would compile on ``target``, see :func:`.compile_for`."""
    return compile_for(triton_target(target), source, entry, forms, dtype)


def triton_target(target: CompileTarget) -> TritonTarget:
    """Return the target of an architecture (``gfx942``)."""
    capability = capability_of(target.arch)
    return TritonTarget(
        backend="hip",
        arch=target.arch,
        name=target.arch,
        capability=capability,
        warp_size=32 if capability[0] >= _WAVES_OF_32_FROM else 64,
        device=target,
        properties={"gcnArchName": target.arch},
        torch_versions={"cuda": None, "hip": "0"},
    )


def capability_of(arch: str) -> Tuple[int, int]:
    """Return major and minor version of an architecture: (9, 4) for ``gfx942``.

    Raises:
        ValueError: if it is not named as LLVM names architectures.
    """
    found = _NAME.fullmatch(arch)
    if found is None:
        raise ValueError(f"{arch!r} is not the name of an AMD architecture, such as gfx942")
    return int(found["major"]), int(found["minor"], 16)
