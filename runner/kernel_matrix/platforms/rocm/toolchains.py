"""Toolchains, languages and dtypes that run on an AMD GPU, and compile targets of candidates."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

from kernel_matrix.inside.platform import STAGED_VARIABLE
from kernel_matrix.inside.wire import KernelCode
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.rocm.block_limits import limits_of
from kernel_matrix.platforms.rocm.compatibility import compatibility

PROGRAMS = "/opt/rocm/bin"
"""Folder of ROCm's programs, where they are not on the search path."""


def language_skip_reason(language: Language, compute_capability: str | None) -> str | None:
    """Look up the language in the table."""
    return compatibility().limits.language_skip_reason(language=language, compute_capability=compute_capability)


def dtype_skip_reason(dtype: Dtype, language: Language, compute_capability: str | None) -> str | None:
    """Look up language and dtype in the table."""
    return compatibility().limits.dtype_skip_reason(
        dtype=dtype, language=language, compute_capability=compute_capability
    )


def code_skip_reason(versions: Mapping[str, str], compute_capability: str | None, driver: str | None) -> str | None:  # noqa: ARG001  # part of the protocol
    """Compare the architectures in PyTorch's build with the device."""
    rocm = versions.get("rocm")
    if rocm is None:
        return "the toolchain has no ROCm, and AMD GPUs are used through it: for them it can only compile"
    return compatibility().code_skip_reason(rocm=rocm, torch=versions["torch"], architecture=compute_capability)


def driver_skip_reason(versions: Mapping[str, str], gpu: Gpu) -> str | None:
    """Compare the driver with the oldest one for the ROCm release."""
    rocm = versions.get("rocm")
    return None if rocm is None else compatibility().driver_skip_reason(rocm=rocm, driver=gpu.driver)


def driver_note(versions: Mapping[str, str], driver: str | None) -> str | None:
    """Return a note if AMD does not list the ROCm release for a driver as new as this one."""
    rocm = versions.get("rocm")
    return None if rocm is None else compatibility().driver_note(rocm=rocm, driver=driver)


def toolchain_gaps(versions: Mapping[str, str]) -> tuple[str, ...]:
    """Return one sentence for each version that the table does not have."""
    rocm = versions.get("rocm")
    return () if rocm is None else compatibility().gaps(rocm=rocm, torch=versions["torch"])


def compiles(language: Language, versions: Mapping[str, str]) -> bool:
    """Return True for Triton, whose releases bring the compilers of both vendors, and for HIP if there is ROCm."""
    return (language is Language.TRITON and "triton" in versions) or (language is Language.HIP and "rocm" in versions)


def compile_target(compute_capability: str | None) -> str:
    """Return the name of the architecture, ``gfx942``."""
    return compute_capability or ""


def compile_settings(gpu: Gpu) -> Mapping[str, str]:
    """Return the target for ``torch.utils.cpp_extension``, and the way to share memory if the user chose one."""
    arch = {"PYTORCH_ROCM_ARCH": gpu.compute_capability} if gpu.compute_capability else {}
    transport = {name: os.environ[name] for name in (STAGED_VARIABLE,) if name in os.environ}
    return {**arch, **transport}


def local_compiler() -> str:
    """Return path and modification time of hipcc on this host; empty if there is none."""
    hipcc = shutil.which("hipcc") or shutil.which(f"{PROGRAMS}/hipcc")
    return f"{Path(hipcc).resolve()} {Path(hipcc).stat().st_mtime_ns}" if hipcc else ""


def compile_limits(compute_capability: str | None) -> Mapping[str, int]:
    """Look the architecture up in the table of block limits."""
    limits = limits_of(compute_capability)
    return {} if limits is None else {"shared_bytes": limits.shared_bytes, "multiprocessors": limits.compute_units}


def launch_failure_reason(kernel: KernelCode) -> str:
    """Compare the needs of a workgroup with the limits of the architecture."""
    limits = limits_of(kernel.compute_capability)
    if limits is None:
        return ""
    return limits.launch_failure_reason(registers=kernel.registers, shared_bytes=kernel.shared_bytes)


def occupancy(kernel: KernelCode) -> float | None:
    """Compare the needs of a workgroup with what a unit of the architecture has."""
    limits = limits_of(kernel.compute_capability)
    if limits is None or kernel.threads is None:
        return None
    return limits.occupancy(registers=kernel.registers, shared_bytes=kernel.shared_bytes, threads=kernel.threads)


def interprets(language: Language) -> bool:  # noqa: ARG001  # part of the protocol
    """Return False: every language has a compiler."""
    return False
