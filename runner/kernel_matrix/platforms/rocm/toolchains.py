"""Languages and dtypes that run on an AMD GPU, and compile targets of candidates."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kernel_matrix.inside.wire import KernelCode
from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms.language_limits import LanguageLimits, read_language_limits
from kernel_matrix.platforms.rocm.block_limits import limits_of


def language_skip_reason(language: Language, compute_capability: str | None) -> str | None:
    """Look up the language in the table."""
    return _limits().language_skip_reason(language=language, compute_capability=compute_capability)


def dtype_skip_reason(dtype: Dtype, language: Language, compute_capability: str | None) -> str | None:
    """Look up language and dtype in the table."""
    return _limits().dtype_skip_reason(dtype=dtype, language=language, compute_capability=compute_capability)


def code_skip_reason(versions: Mapping[str, str], compute_capability: str | None, driver: str | None) -> None:
    """Return that nothing is known against it."""


def compiles(language: Language, versions: Mapping[str, str]) -> bool:
    """Return True for Triton, whose releases bring the compilers of both vendors."""
    return language is Language.TRITON and "triton" in versions


def compile_target(compute_capability: str | None) -> str:
    """Return the name of the architecture, ``gfx942``."""
    return compute_capability or ""


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


@cache
def _limits() -> LanguageLimits:
    return read_language_limits(Path(__file__).with_name("compatibility.toml"))
