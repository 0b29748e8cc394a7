"""Further properties of an AMD GPU, as plain values that JSON can hold."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from ctypes import c_uint32, c_void_p
from typing import Any

from kernel_matrix.platforms import DeviceDetails, Gpu
from kernel_matrix.platforms.rocm.clocks import MEMORY, SM, limit_mhz
from kernel_matrix.platforms.rocm.inside.smi_library import reported, structure, version
from kernel_matrix.platforms.rocm.inside.smi_structs import AsicInfo, ErrorCount, PowerCap
from kernel_matrix.platforms.rocm.inventory import llvm_target, pci_address
from kernel_matrix.platforms.rocm.modes import compute_partition, divided, ecc, memory_partition
from kernel_matrix.platforms.rocm.settings import PerfLevel, perf_level
from kernel_matrix.platforms.rocm.smi_calls import ask, device


def details(gpu: Gpu) -> DeviceDetails:
    """Read the properties of ``gpu``; one that the driver does not report is ``None``, with the reason in ``missing``.

    Clocks are in MHz (names ending in ``_mhz``), powers in watts (``_w``). ECC errors are counted since the driver was
    loaded.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if the driver cannot be used.
    """
    with device(gpu) as handle:
        answers = {name: ask(gpu, query, handle) for name, query in _QUERIES.items()}
    return DeviceDetails(
        values={name: answer.value for name, answer in answers.items()},
        missing={name: answer.reason for name, answer in answers.items() if answer.value is None},
    )


def _library_version(_handle: c_void_p) -> str:
    return ".".join(map(str, version()))


def _compute_units(handle: c_void_p) -> int:
    count: int = reported(structure("amdsmi_get_gpu_asic_info", AsicInfo, handle), "num_of_compute_units")
    return count


def _ecc_errors(handle: c_void_p, kind: str) -> int:
    count: int = reported(structure("amdsmi_get_gpu_total_ecc_count", ErrorCount, handle), kind)
    return count


def _watts(handle: c_void_p, which: str) -> float:
    microwatts: int = reported(structure("amdsmi_get_power_cap_info", PowerCap, handle, c_uint32(0)), which)
    return microwatts / 1_000_000


def _level(handle: c_void_p) -> str:
    number = perf_level(handle)
    return PerfLevel(number).name.lower() if number in PerfLevel.__members__.values() else f"the library's {number}"


_QUERIES: Mapping[str, Callable[[c_void_p], Any]] = {
    "library_version": _library_version,
    "architecture": llvm_target,
    "compute_units": _compute_units,
    "pci_bus_id": pci_address,
    "ecc": ecc,
    "ecc_corrected": lambda handle: _ecc_errors(handle, "correctable_count"),
    "ecc_uncorrected": lambda handle: _ecc_errors(handle, "uncorrectable_count"),
    "mig": divided,
    "compute_partition": compute_partition,
    "memory_partition": memory_partition,
    "perf_level": _level,
    "power_limit_w": lambda handle: _watts(handle, "power_cap"),
    "power_default_w": lambda handle: _watts(handle, "default_power_cap"),
    "power_min_w": lambda handle: _watts(handle, "min_power_cap"),
    "power_max_w": lambda handle: _watts(handle, "max_power_cap"),
    "min_sm_mhz": lambda handle: limit_mhz(handle, SM, "min_clk"),
    "max_sm_mhz": lambda handle: limit_mhz(handle, SM, "max_clk"),
    "max_memory_mhz": lambda handle: limit_mhz(handle, MEMORY, "max_clk"),
}
"""Name of the property → query of a device's handle."""
