"""Cells of a plan, and the reasons to skip one."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from kernel_matrix.matrix import GpuAxis, Policy, Protocol, Toolchain
from kernel_matrix.model.enums import Dtype
from kernel_matrix.sources import Candidate, Problem, Workload


class SkipReason(str, Enum):
    """Reason to skip a cell, in the order of the checks; a cell gets the first reason found.

    The reasons up to ``no_code_for_gpu`` hold on every host, the later ones depend on this host.
    """

    EXCLUDED = "excluded"
    """The matrix excludes it and gives the reason."""
    DTYPE_NOT_OFFERED = "dtype_not_offered"
    """Problem or candidate does not offer the dtype."""
    LANGUAGE_NOT_SUPPORTED = "language_not_supported"
    """The device or toolchain cannot run this language (CUDA C++ on a CPU)."""
    DTYPE_NOT_SUPPORTED = "dtype_not_supported"
    """Hardware, toolchain or interpreter cannot compute correctly in this dtype."""
    NO_CODE_FOR_GPU = "no_code_for_gpu"
    """This PyTorch has neither a cubin nor usable PTX for the compute capability."""
    NO_SUCH_GPU = "no_such_gpu"
    """No device of this host matches the axis."""
    NO_SANDBOX = "no_sandbox"
    """No sandbox can run this toolchain here (a CUDA image needs Docker, or must be unpacked)."""
    DRIVER_TOO_OLD = "driver_too_old"
    """The driver cannot run this CUDA version."""
    IMAGE_MISSING = "image_missing"
    """The pinned image is not on this daemon, or the environment cannot be used."""
    CLOCKS = "clocks"
    """The policy requires locked clocks and this host cannot lock them."""
    DOES_NOT_FIT = "does_not_fit"
    """A workload needs more memory than the device has, or than the policy lets a cell use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Skip:
    """Reason to skip a cell, with an explanation."""

    kind: SkipReason
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """One point of the matrix, with everything needed to run it."""

    id: str
    """SHA-256 prefix (32 hex digits) over everything that determines the result."""
    gpu: GpuAxis
    toolchain: Toolchain
    dtype: Dtype
    problem: Problem
    candidate: Candidate
    workloads: tuple[Workload, ...]
    """Workloads to time. Those that the problem holds out are verified too; only the judge's job names them."""
    protocol: Protocol
    policy: Policy
    reason: Skip | None
    """``None``: it can run here."""
    expected_s: float
    """Rough estimate of its duration, seconds."""
    link: str | None = None
    """Kind of link that all devices of its ranks have; ``None`` with one rank, and if it is not known."""
    compile_only: bool = False
    """``True``: the candidate is built for the GPU's compute capability, and nothing is run."""
