"""NVIDIA GPUs through NVML. Everything but :mod:`runner.gpus.nvidia.settings` only reads."""

from runner.gpus.nvidia.calls import opened
from runner.gpus.nvidia.clocks import clock_choices
from runner.gpus.nvidia.details import details
from runner.gpus.nvidia.inventory import inventory
from runner.gpus.nvidia.modes import modes
from runner.gpus.nvidia.processes import processes
from runner.gpus.nvidia.settings import settings
from runner.gpus.nvidia.telemetry import clocks, sampler, snapshot

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
