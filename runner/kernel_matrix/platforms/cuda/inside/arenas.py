"""Arenas on an NVIDIA GPU."""

from __future__ import annotations

from kernel_matrix.inside.gpu_arenas import GpuArenas
from kernel_matrix.platforms.cuda.inside.libcuda import DRIVER

ARENAS = GpuArenas(DRIVER, "cuda")
"""The arenas of this process."""
