"""Toolchains, languages and dtypes that run on an NVIDIA GPU, and compile targets of candidates."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from kernel_matrix.inside.platform import STAGED_VARIABLE
from kernel_matrix.inside.wire import KernelCode
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.cuda import block_limits
from kernel_matrix.platforms.cuda.compatibility import compatibility
from kernel_matrix.platforms.cuda.inside.build.nvcc_wrapper import find_nvcc

_OWN_FEATURES = 9
"""First major compute capability with instructions that later architectures do not have (``sm_90a``)."""


_NO_MULTICAST = {"NCCL_NVLS_ENABLE": "0", "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1", "NVSHMEM_DISABLE_NVLS": "1"}
"""Settings with which ranks do not use multicast in NVLink switches, which all who share a machine have in common; the
variables of the user's own environment count instead."""


def language_skip_reason(language: Language, compute_capability: str | None) -> str | None:
    """Look up the language in the table."""
    return compatibility().limits.language_skip_reason(language=language, compute_capability=compute_capability)


def dtype_skip_reason(dtype: Dtype, language: Language, compute_capability: str | None) -> str | None:
    """Look up language and dtype in the table."""
    return compatibility().limits.dtype_skip_reason(
        dtype=dtype, language=language, compute_capability=compute_capability
    )


def code_skip_reason(versions: Mapping[str, str], compute_capability: str | None, driver: str | None) -> str | None:
    """Compare the machine code and PTX in PyTorch's build with the device."""
    cuda = versions.get("cuda")
    if cuda is None:
        return None
    return compatibility().code_skip_reason(
        cuda=cuda, torch=versions["torch"], compute_capability=compute_capability, driver=driver
    )


def driver_skip_reason(versions: Mapping[str, str], gpu: Gpu) -> str | None:
    """Compare the driver with the oldest one for the CUDA version."""
    cuda = versions.get("cuda")
    if cuda is None:
        return None
    return compatibility().driver_skip_reason(cuda=cuda, driver=gpu.driver, cuda_driver=gpu.cuda_driver)


def driver_note(versions: Mapping[str, str], driver: str | None) -> str | None:
    """Return a note if PTX does not run because the driver is older than the CUDA version."""
    cuda = versions.get("cuda")
    return None if cuda is None else compatibility().driver_note(cuda=cuda, driver=driver)


def toolchain_gaps(versions: Mapping[str, str]) -> tuple[str, ...]:
    """Return one sentence for each version that the table does not have."""
    cuda = versions.get("cuda")
    return () if cuda is None else compatibility().gaps(cuda=cuda, torch=versions["torch"])


def compiles(language: Language, versions: Mapping[str, str]) -> bool:
    """Return True for Triton, which compiles without a GPU, and for CUDA C++ if the toolchain has nvcc."""
    return language is Language.TRITON or (language is Language.CUDA and "cuda" in versions)


def compile_target(compute_capability: str | None) -> str:
    """Return the compute capability, from Hopper on with the features of its architecture only (``9.0a``)."""
    capability = compute_capability or ""
    return f"{capability}a" if capability and int(capability.split(".")[0]) >= _OWN_FEATURES else capability


def compile_limits(compute_capability: str | None) -> Mapping[str, int]:
    """Look the compute capability up in the table of block limits."""
    limits = block_limits.limits_of(compute_capability or "")
    return {} if limits is None else {"shared_bytes": limits.shared_bytes, "multiprocessors": limits.multiprocessors}


def launch_failure_reason(kernel: KernelCode) -> str:
    """Compare the needs of a block with the limits of the compute capability."""
    return block_limits.launch_failure_reason(
        kernel.compute_capability,
        registers=kernel.registers,
        shared_bytes=kernel.shared_bytes,
        threads=kernel.threads or block_limits.SMALLEST_BLOCK,
    )


def occupancy(kernel: KernelCode) -> float | None:
    """Compare the needs of a block with what a multiprocessor of the compute capability has."""
    if kernel.threads is None:
        return None
    return block_limits.occupancy(
        kernel.compute_capability,
        registers=kernel.registers,
        shared_bytes=kernel.shared_bytes,
        threads=kernel.threads,
    )


def compile_settings(gpu: Gpu) -> Mapping[str, str]:
    """Return the target for ``torch.utils.cpp_extension``, and the way to share memory if the user chose one."""
    arch = {"TORCH_CUDA_ARCH_LIST": compile_target(gpu.compute_capability)} if gpu.compute_capability else {}
    transport = {name: os.environ[name] for name in (STAGED_VARIABLE,) if name in os.environ}
    multicast = {name: os.environ.get(name, value) for name, value in (_NO_MULTICAST if gpu.devices else {}).items()}
    return {**arch, **transport, **multicast}


def interprets(language: Language) -> bool:  # noqa: ARG001  # part of the protocol
    """Return False: every language has a compiler."""
    return False


def local_compiler() -> str:
    """Return path and modification time of nvcc on this host; empty if there is none."""
    nvcc = find_nvcc()
    return f"{Path(nvcc).resolve()} {Path(nvcc).stat().st_mtime_ns}" if nvcc else ""
