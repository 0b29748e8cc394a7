"""The CPU as a device, for cells without a GPU. It is the simplest platform, and the example for others."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms import CostFigures, DeviceDetails, Gpu, PlatformInventory
from kernel_matrix.platforms.defaults import *  # noqa: F403  # members for what the device lacks
from kernel_matrix.platforms.language_limits import LanguageLimits, read_language_limits

VENDOR = "cpu"
TITLE = "CPU"
IS_ACCELERATOR = False
PROVEN = True
NEEDS_IMAGES = False
COST = CostFigures(start_s=3.0, call_s=0.05, timed_call_s=0.01)
"""Typical times of the bundled problems; most of the start is the import of torch."""

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_FREQUENCIES = Path("/sys/devices/system/cpu")
_NODES = Path("/sys/devices/system/node")

_NO_FREQUENCIES = "the kernel shows no cpufreq settings here, as in most virtual machines"
_NO_NODES = "the kernel shows no NUMA nodes here"


def inventory() -> PlatformInventory:
    """Return one device: all of this machine's CPUs together."""
    return PlatformInventory(
        gpus=(Gpu(platform="cpu", uuid="cpu", name=model_name(), memory_bytes=_memory().get("MemTotal", 0)),)
    )


def processes(gpu: Gpu) -> Sequence[int]:  # noqa: ARG001  # part of the protocol
    """Return nothing: every process uses the CPU."""
    return ()


def snapshot(gpu: Gpu) -> dict[str, float | int | str | None]:  # noqa: ARG001  # part of the protocol
    """Return load average over one minute, mean frequency of the cores now (None if hidden) and memory in use."""
    memory = _memory()
    return {
        "load_average": os.getloadavg()[0],
        "frequency_mhz": _frequency_mhz(),
        "memory_used_bytes": memory.get("MemTotal", 0) - memory.get("MemAvailable", 0),
    }


def sampler(gpu: Gpu) -> None:
    """Return None: there is nothing to read during a call."""


def details(gpu: Gpu) -> DeviceDetails:  # noqa: ARG001  # part of the protocol
    """Return what decides about a CPU's speed beside its model.

    ``cores`` counts logical CPUs; ``governors`` lists those in use, each once; ``min_mhz`` and ``max_mhz`` are the
    widest limits that any core has; ``numa_nodes`` has the CPUs of each node in the kernel's form, ``"0-15,32-47"``.
    """
    found: Mapping[str, tuple[Any, str]] = {
        "cores": (os.cpu_count(), "the kernel does not report it"),
        "governors": (sorted(set(_frequency_settings("scaling_governor"))), _NO_FREQUENCIES),
        "min_mhz": (min(_settings_mhz("scaling_min_freq"), default=None), _NO_FREQUENCIES),
        "max_mhz": (max(_settings_mhz("scaling_max_freq"), default=None), _NO_FREQUENCIES),
        "numa_nodes": ([_text(path).strip() for path in sorted(_NODES.glob("node[0-9]*/cpulist"))], _NO_NODES),
    }
    return DeviceDetails(
        values={name: value or None for name, (value, _) in found.items()},
        missing={name: reason for name, (value, reason) in found.items() if not value},
    )


def language_skip_reason(language: Language, compute_capability: str | None) -> str | None:
    """Return which languages need a GPU."""
    return _limits().language_skip_reason(language=language, compute_capability=compute_capability)


def dtype_skip_reason(dtype: Dtype, language: Language, compute_capability: str | None) -> str | None:
    """Return what Triton's interpreter computes wrongly."""
    return _limits().dtype_skip_reason(dtype=dtype, language=language, compute_capability=compute_capability)


def interprets(language: Language) -> bool:
    """Return True for Triton, which has no compiler for CPUs."""
    return language is Language.TRITON


@cache
def _limits() -> LanguageLimits:
    return read_language_limits(Path(__file__).with_name("compatibility.toml"))


def model_name() -> str:
    """Return the model as the kernel names it, else the architecture (ARM kernels name no model)."""
    named = re.search(r"^model name\s*:\s*(.+)$", _text(_CPUINFO), re.MULTILINE)
    return named.group(1).strip() if named else platform.machine()


def _memory() -> dict[str, int]:
    """Return the fields of ``/proc/meminfo``, in bytes."""
    lines = re.findall(r"^(\w+):\s+(\d+) kB$", _text(_MEMINFO), re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in lines}


def _frequency_mhz() -> float | None:
    megahertz = _settings_mhz("scaling_cur_freq")
    # Virtual machines have no cpufreq folder, but still report a frequency of each core.
    megahertz = megahertz or [
        float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", _text(_CPUINFO), re.MULTILINE)
    ]
    return round(sum(megahertz) / len(megahertz), 1) if megahertz else None


def _settings_mhz(name: str) -> list[float]:
    return [int(text) / 1000 for text in _frequency_settings(name) if text.isdigit()]


def _frequency_settings(name: str) -> list[str]:
    """Return what each core's cpufreq folder has under ``name``, without empty ones."""
    texts = [_text(path).strip() for path in _FREQUENCIES.glob(f"cpu[0-9]*/cpufreq/{name}")]
    return [text for text in texts if text]


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
