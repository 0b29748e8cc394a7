"""NVIDIA GPUs as Triton's compiler sees them, to compile for one that is not present."""

from __future__ import annotations

from pathlib import Path
from typing import Sequence

from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
from kernel_matrix.inside.build.triton_ahead import TritonTarget, compile_for
from kernel_matrix.model.enums import Dtype
from kernel_matrix.platforms.cuda.inside.build.triton_launchers import compiled_ahead


def compile_ahead(
    source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype, target: CompileTarget
) -> CompiledAhead:
    """Compile the kernels that calls of a candidate would compile on ``target``, see :func:`.compile_for`."""
    return compile_for(triton_target(target), source, entry, forms, dtype)


def triton_target(target: CompileTarget) -> TritonTarget:
    """Return the target of a compute capability (``9.0`` or ``9.0a``)."""
    major, minor = map(int, target.arch.rstrip("af").split("."))
    number = 10 * major + minor
    return TritonTarget(
        backend="cuda",
        arch=number,
        name=f"sm_{number}",
        capability=(major, minor),
        warp_size=32,
        device=target,
        launchers=compiled_ahead,
    )
