"""Python's side of the simulated NVIDIA driver: its devices, its world, and programs in it.

What a world can say, key by key, is told at the head of ``nvml.c``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tests.sim import driver
from tests.sim.driver import ROOT, SetState

__all__ = ["A100", "GTX_1080", "H200", "ROOT", "RTX_4090", "SetState", "SimulatedDriver", "World", "compile_library"]

SOURCE = Path(__file__).with_name("nvml.c")
WORLD_VARIABLE = "KERNEL_MATRIX_SIM_WORLD"


def _clocks(high: int, low: int, step: int = 15) -> str:
    return " ".join(str(megahertz) for megahertz in range(high, low - 1, -step))


H200 = {
    "uuid": "GPU-00000000-0000-0000-0000-0000000000a1",
    "name": "NVIDIA H200",
    "serial": "1650000000001",
    "minor": 3,
    "capability": "9.0",
    "architecture": 9,
    "brand": 14,
    "cores": 16896,
    "vbios": "96.00.BC.00.01",
    "pci_bus_id": "00000000:3B:00.0",
    "pci_device_id": "0x233510de",
    "numa_node": 0,
    "cpu_affinity": "ffff",
    "bus_width": 6144,
    "pcie_generation": 5,
    "pcie_generation_max": 5,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "link_speed": 26_562,
    "memory": 150_754_820_096,
    "memory_used": 1_048_576,
    "memory_reserved": 667_090_944,
    "clock_sm": 1980,
    "clock_memory": 3201,
    "clock_video": 1545,
    "max_clock_sm": 1980,
    "max_clock_memory": 3201,
    "max_clock_video": 1545,
    "default_clock_sm": 1980,
    "default_clock_memory": 3201,
    "tdp_clock": 1500,
    "memory_clocks": "3201 1593",
    "graphics_clocks_3201": _clocks(1980, 345),
    "graphics_clocks_1593": _clocks(1980, 345),
    "power": 118_250,
    "power_instant": 121_400,
    "power_average": 118_250,
    "power_limit": 700_000,
    "power_limit_enforced": 700_000,
    "power_limit_default": 700_000,
    "power_limits": "200000 700000",
    "energy": 987_654_321,
    "temperature": 41,
    "temperature_memory": 45,
    "temperature_shutdown": 92,
    "temperature_slowdown": 89,
    "temperature_memory_max": 95,
    "temperature_gpu_max": 87,
    "event_reasons": 0,
    "supported_event_reasons": 0x1FF,
    "counter_sw_power_cap": 0,
    "counter_thermal": 0,
    "counter_sync_boost": 0,
    "counter_board_limit": 0,
    "counter_sw_thermal": 0,
    "counter_hw_thermal": 0,
    "counter_power_brake": 0,
    "ecc": "1 1",
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "ecc_corrected_total": 0,
    "ecc_uncorrected_total": 0,
    "mig": "0 0",
    "persistence": 1,
    "compute_mode": 0,
    "pstate": 0,
    "utilization": "0 0",
    "compute": "",
    "graphics": "",
    "mps": "",
    "sm_lockable": 1,
    "memory_lockable": 1,
}
"""A data-centre GPU that answers everything, at its highest clock and undisturbed."""

A100 = {
    **{key: value for key, value in H200.items() if not key.startswith("graphics_clocks")},
    "uuid": "GPU-00000000-0000-0000-0000-0000000000c3",
    "name": "NVIDIA A100-SXM4-80GB",
    "serial": "1320000000003",
    "minor": 1,
    "capability": "8.0",
    "architecture": 7,
    "cores": 6912,
    "vbios": "92.00.45.00.03",
    "pci_bus_id": "00000000:07:00.0",
    "pci_device_id": "0x20b210de",
    "bus_width": 5120,
    "pcie_generation": 4,
    "pcie_generation_max": 4,
    "memory": 85_899_345_920,
    "clock_sm": 1410,
    "clock_memory": 1593,
    "clock_video": 1275,
    "max_clock_sm": 1410,
    "max_clock_memory": 1593,
    "max_clock_video": 1290,
    "default_clock_sm": 1275,
    "default_clock_memory": 1593,
    "tdp_clock": 1275,
    "memory_clocks": "1593",
    "graphics_clocks_1593": _clocks(1410, 210),
    "power": 61_000,
    "power_instant": 62_000,
    "power_average": 61_000,
    "power_limit": 400_000,
    "power_limit_enforced": 400_000,
    "power_limit_default": 400_000,
    "power_limits": "100000 400000",
    "temperature": 33,
}
"""A data-centre GPU of the generation before."""

RTX_4090 = {
    "uuid": "GPU-00000000-0000-0000-0000-0000000000d4",
    "name": "NVIDIA GeForce RTX 4090",
    "minor": 2,
    "capability": "8.9",
    "architecture": 8,
    "brand": 5,
    "cores": 16384,
    "vbios": "95.02.18.80.5F",
    "pci_bus_id": "00000000:01:00.0",
    "pci_device_id": "0x268410de",
    "cpu_affinity": "ffffffff",
    "bus_width": 384,
    "pcie_generation": 4,
    "pcie_generation_max": 4,
    "pcie_width": 16,
    "pcie_width_max": 16,
    "memory": 25_757_220_864,
    "memory_used": 4_194_304,
    "memory_reserved": 442_499_072,
    "clock_sm": 2520,
    "clock_memory": 10501,
    "max_clock_sm": 3105,
    "max_clock_memory": 10501,
    "tdp_clock": 2235,
    "memory_clocks": "10501 10251 5001 810 405",
    **{f"graphics_clocks_{memory}": _clocks(3105, 210) for memory in (10501, 10251, 5001, 810)},
    "graphics_clocks_405": _clocks(420, 210),
    "power": 25_500,
    "power_instant": 26_100,
    "power_average": 25_500,
    "power_limit": 450_000,
    "power_limit_enforced": 450_000,
    "power_limit_default": 450_000,
    "power_limits": "150000 600000",
    "energy": 123_456_789,
    "temperature": 38,
    "temperature_shutdown": 100,
    "temperature_slowdown": 97,
    "temperature_gpu_max": 90,
    "event_reasons": 0,
    "supported_event_reasons": 0x1FF,
    "counter_sw_power_cap": 0,
    "counter_thermal": 0,
    "counter_sync_boost": 0,
    "counter_sw_thermal": 0,
    "counter_hw_thermal": 0,
    "counter_power_brake": 0,
    "ecc": "0 0",
    "persistence": 0,
    "compute_mode": 0,
    "pstate": 8,
    "utilization": "0 0",
    "compute": "",
    "graphics": "",
    "mps": "",
    "sm_lockable": 1,
    "memory_lockable": 1,
}
"""A consumer card: no MIG, no default application clocks, no persistence; its memory clock can be locked."""

GTX_1080 = {
    "uuid": "GPU-00000000-0000-0000-0000-0000000000b2",
    "name": "NVIDIA GeForce GTX 1080",
    "minor": 0,
    "capability": "6.1",
    "memory": 8_589_934_592,
    "memory_used": 0,
    "clock_sm": 139,
    "compute": "",
    "graphics": "",
}
"""An old desktop GPU: no energy counter, no MPS list, no locked clocks; power and temperature it does not tell."""


def compile_library(folder: Path, source: Path = SOURCE, name: str = "libnvidia-ml.so.1") -> Path:
    """The shared library ``name`` in ``folder``, made of ``source``: unless told otherwise, the simulated NVML."""
    return driver.compile_library(folder, source, name)


class World(driver.World):
    """What the simulated NVIDIA driver says, and what programs have set with it."""

    VARIABLE = WORLD_VARIABLE
    HOST: ClassVar[dict[str, Any]] = {"driver": "580.159.04", "cuda": 13000, "nvml": "13.580.159.04"}


class SimulatedDriver(driver.DriverPrograms, World):
    """One world of the simulated NVIDIA driver, and programs that live in it."""
