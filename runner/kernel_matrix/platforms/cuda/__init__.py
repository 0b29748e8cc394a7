"""NVIDIA GPUs through NVML. Everything but :mod:`kernel_matrix.platforms.cuda.settings` only reads."""

from kernel_matrix.platforms.cuda.clocks import clock_choices
from kernel_matrix.platforms.cuda.details import details
from kernel_matrix.platforms.cuda.inventory import inventory
from kernel_matrix.platforms.cuda.modes import modes
from kernel_matrix.platforms.cuda.nvml_calls import opened
from kernel_matrix.platforms.cuda.processes import processes
from kernel_matrix.platforms.cuda.settings import settings
from kernel_matrix.platforms.cuda.telemetry import clocks, sampler, snapshot

__all__ = [
    "clock_choices",
    "clocks",
    "details",
    "inventory",
    "modes",
    "opened",
    "processes",
    "sampler",
    "settings",
    "snapshot",
]
