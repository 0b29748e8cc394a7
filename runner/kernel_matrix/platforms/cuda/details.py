"""Further properties of a GPU from NVML, as plain values that JSON can hold."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

import pynvml

from kernel_matrix.platforms import DeviceDetails, Gpu
from kernel_matrix.platforms.cuda import clocks, modes
from kernel_matrix.platforms.cuda.nvml_calls import ask, device

_ARCHITECTURES = {
    pynvml.NVML_DEVICE_ARCH_KEPLER: "Kepler",
    pynvml.NVML_DEVICE_ARCH_MAXWELL: "Maxwell",
    pynvml.NVML_DEVICE_ARCH_PASCAL: "Pascal",
    pynvml.NVML_DEVICE_ARCH_VOLTA: "Volta",
    pynvml.NVML_DEVICE_ARCH_TURING: "Turing",
    pynvml.NVML_DEVICE_ARCH_AMPERE: "Ampere",
    pynvml.NVML_DEVICE_ARCH_ADA: "Ada",
    pynvml.NVML_DEVICE_ARCH_HOPPER: "Hopper",
    pynvml.NVML_DEVICE_ARCH_BLACKWELL: "Blackwell",
}

_BRANDS = {
    pynvml.NVML_BRAND_QUADRO: "Quadro",
    pynvml.NVML_BRAND_TESLA: "Tesla",
    pynvml.NVML_BRAND_NVS: "NVS",
    pynvml.NVML_BRAND_GRID: "GRID",
    pynvml.NVML_BRAND_GEFORCE: "GeForce",
    pynvml.NVML_BRAND_TITAN: "Titan",
    pynvml.NVML_BRAND_QUADRO_RTX: "Quadro RTX",
    pynvml.NVML_BRAND_NVIDIA_RTX: "NVIDIA RTX",
    pynvml.NVML_BRAND_NVIDIA: "NVIDIA",
    pynvml.NVML_BRAND_GEFORCE_RTX: "GeForce RTX",
    pynvml.NVML_BRAND_TITAN_RTX: "Titan RTX",
}


def details(gpu: Gpu) -> DeviceDetails:
    """Read the properties of ``gpu``; one that the driver does not report is ``None``, with the reason in ``missing``.

    Clocks are in MHz (names ending in ``_mhz``), powers in watts (``_w``), temperatures in °C (``_c``). ECC errors are
    counted since the device was made. ``pcie_generation`` and ``pcie_width`` are the present ones, which are lower
    while the device is idle. ``cpu_affinity`` lists the CPUs that are near to the device.

    Raises:
        GpuLostError: if the device no longer answers.
        InfrastructureError: if the driver cannot be used.
    """
    with device(gpu) as handle:
        answers = {name: ask(query, handle) for name, query in _QUERIES.items()}
    return DeviceDetails(
        values={name: answer.value for name, answer in answers.items()},
        missing={name: answer.reason for name, answer in answers.items() if answer.value is None},
    )


def _architecture(handle: Any) -> str:
    number = pynvml.nvmlDeviceGetArchitecture(handle)
    return _ARCHITECTURES.get(number, f"NVML's number {number}")


def _brand(handle: Any) -> str:
    number = pynvml.nvmlDeviceGetBrand(handle)
    return _BRANDS.get(number, f"NVML's number {number}")


def _pci_bus_id(handle: Any) -> str:
    bus_id = pynvml.nvmlDeviceGetPciInfo(handle).busId
    return bus_id.decode() if isinstance(bus_id, bytes) else str(bus_id)


def _ecc_errors(handle: Any, kind: int) -> int:
    count: int = pynvml.nvmlDeviceGetTotalEccErrors(handle, kind, pynvml.NVML_AGGREGATE_ECC)
    return count


def _threshold_c(handle: Any, threshold: int) -> int:
    celsius: int = pynvml.nvmlDeviceGetTemperatureThreshold(handle, threshold)
    return celsius


def _power_range_w(handle: Any) -> tuple[float, float]:
    lowest, highest = pynvml.nvmlDeviceGetPowerManagementLimitConstraints(handle)
    return lowest / 1000, highest / 1000


def _cpu_affinity(handle: Any) -> list[int]:
    """Return the numbers of the CPUs that are near to the device."""
    words = -(-os.sysconf("SC_NPROCESSORS_CONF") // 64)
    masks = pynvml.nvmlDeviceGetCpuAffinity(handle, words)
    return [64 * word + bit for word, mask in enumerate(masks) for bit in range(64) if mask >> bit & 1]


_QUERIES: Mapping[str, Callable[[Any], Any]] = {
    "brand": _brand,
    "architecture": _architecture,
    "bus_width_bits": pynvml.nvmlDeviceGetMemoryBusWidth,
    "pci_bus_id": _pci_bus_id,
    "pcie_generation": pynvml.nvmlDeviceGetCurrPcieLinkGeneration,
    "pcie_width": pynvml.nvmlDeviceGetCurrPcieLinkWidth,
    "pcie_max_generation": pynvml.nvmlDeviceGetMaxPcieLinkGeneration,
    "pcie_max_width": pynvml.nvmlDeviceGetMaxPcieLinkWidth,
    "cpu_affinity": _cpu_affinity,
    "vbios": pynvml.nvmlDeviceGetVbiosVersion,
    "ecc": modes.ecc,
    "ecc_corrected": lambda handle: _ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_CORRECTED),
    "ecc_uncorrected": lambda handle: _ecc_errors(handle, pynvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED),
    "mig": modes.mig,
    "mps": modes.mps,
    "persistence": modes.persistence,
    "compute_mode": lambda handle: modes.compute_mode(handle).value,
    "power_limit_w": lambda handle: pynvml.nvmlDeviceGetEnforcedPowerLimit(handle) / 1000,
    "power_default_w": lambda handle: pynvml.nvmlDeviceGetPowerManagementDefaultLimit(handle) / 1000,
    "power_min_w": lambda handle: _power_range_w(handle)[0],
    "power_max_w": lambda handle: _power_range_w(handle)[1],
    "max_sm_mhz": lambda handle: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
    "max_memory_mhz": lambda handle: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_MEM),
    "base_sm_mhz": clocks.base_sm_mhz,
    "supported_sm_mhz": lambda handle: list(clocks.supported_sm_mhz(handle)),
    "supported_memory_mhz": lambda handle: list(clocks.supported_memory_mhz(handle)),
    "slowdown_c": lambda handle: _threshold_c(handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SLOWDOWN),
    "shutdown_c": lambda handle: _threshold_c(handle, pynvml.NVML_TEMPERATURE_THRESHOLD_SHUTDOWN),
}
"""Name of the property → query of a device's handle."""
