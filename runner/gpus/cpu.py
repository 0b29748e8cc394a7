"""The CPU as a device: what cells run on where there is no GPU."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from runner.gpus import Gpu, Inventory

_CPUINFO = Path("/proc/cpuinfo")
_MEMINFO = Path("/proc/meminfo")
_FREQUENCIES = Path("/sys/devices/system/cpu")


def inventory() -> Inventory:
    """One device: all of this machine's CPUs together."""
    return Inventory(
        gpus=(Gpu(vendor="cpu", uuid="cpu", name=model_name(), memory_bytes=_memory().get("MemTotal", 0)),)
    )


@contextmanager
def opened() -> Iterator[None]:
    """Nothing has to be kept open to read about a CPU."""
    yield


def processes(gpu: Gpu) -> Sequence[int]:  # noqa: ARG001  # every process uses the CPU, so none is told apart
    """Always empty: nobody has a CPU to himself."""
    return ()


def snapshot(gpu: Gpu) -> dict[str, float | int | str | None]:  # noqa: ARG001  # there is only one
    """Load average over one minute, mean frequency of the cores now (null where hidden), memory in use."""
    memory = _memory()
    return {
        "load_average": os.getloadavg()[0],
        "frequency_mhz": _frequency_mhz(),
        "memory_used_bytes": memory.get("MemTotal", 0) - memory.get("MemAvailable", 0),
    }


def model_name() -> str:
    """The model as the kernel names it, else the architecture (ARM kernels name no model)."""
    named = re.search(r"^model name\s*:\s*(.+)$", _text(_CPUINFO), re.MULTILINE)
    return named.group(1).strip() if named else platform.machine()


def _memory() -> dict[str, int]:
    """Fields of ``/proc/meminfo``, in bytes."""
    lines = re.findall(r"^(\w+):\s+(\d+) kB$", _text(_MEMINFO), re.MULTILINE)
    return {name: int(kib) * 1024 for name, kib in lines}


def _frequency_mhz() -> float | None:
    kilohertz = [_text(path) for path in _FREQUENCIES.glob("cpu[0-9]*/cpufreq/scaling_cur_freq")]
    megahertz = [int(text) / 1000 for text in kilohertz if text.strip().isdigit()]
    # Virtual machines have no cpufreq folder but still name a frequency per core.
    megahertz = megahertz or [
        float(mhz) for mhz in re.findall(r"^cpu MHz\s*:\s*([\d.]+)", _text(_CPUINFO), re.MULTILINE)
    ]
    return round(sum(megahertz) / len(megahertz), 1) if megahertz else None


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""
