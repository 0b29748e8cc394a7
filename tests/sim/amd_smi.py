"""Python's side of the simulated AMD driver: its devices, its world, and programs in it.

What a world can say, key by key, is told at the head of ``amd_smi.c``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar

from tests.sim import driver
from tests.sim.driver import SetState

__all__ = ["MI300X", "RX_7900_XTX", "AmdWorld", "SetState", "SimulatedAmdDriver", "compile_amd_library"]

SOURCE = Path(__file__).with_name("amd_smi.c")

PERF_AUTO, PERF_MANUAL, PERF_STABLE_STD, PERF_DETERMINISM = 0, 3, 4, 8

MI300X = {
    "uuid": "45ff74a1-0000-1000-80aa-0000000000a1",
    "name": "AMD Instinct MI300X",
    "minor": 129,
    "pci": "0000:65:00.0",
    "target": "0x942",
    "compute_units": 304,
    "link_speed": 50_000,
    "memory": 206_141_652_992,
    "memory_used": 297_795_584,
    "clock_sm": 2100,
    "clock_memory": 1300,
    "min_clock_sm": 500,
    "max_clock_sm": 2100,
    "max_clock_memory": 1300,
    "power_instant": 135_000,
    "power_limit": 750_000,
    "power_limit_default": 750_000,
    "power_limits": "0 750000",
    "energy": 987_654_321,
    "temperature": 41,
    "counter_cycles": 1_000,
    "counter_prochot": 0,
    "counter_power": 0,
    "counter_socket_thermal": 0,
    "counter_vr_thermal": 0,
    "counter_hbm_thermal": 0,
    "ecc": 1,
    "ecc_corrected": 0,
    "ecc_uncorrected": 0,
    "partition": "SPX",
    "memory_partition": "NPS1",
    "perf_level": PERF_AUTO,
    "utilization": "0 0",
    "compute": "",
    "sm_lockable": 1,
    "memory_lockable": 1,
}
"""A data-centre GPU that counts the time under each limit. It has no level STABLE_STD."""

RX_7900_XTX = {
    "uuid": "c4ff744c-0000-1000-80bb-0000000000b2",
    "name": "AMD Radeon RX 7900 XTX",
    "minor": 128,
    "pci": "0000:03:00.0",
    "target": "0x1100",
    "compute_units": 96,
    "memory": 25_753_026_560,
    "memory_used": 27_111_424,
    "clock_sm": 2482,
    "clock_memory": 1249,
    "min_clock_sm": 500,
    "max_clock_sm": 2482,
    "max_clock_memory": 1249,
    "stable_clock": 1500,
    "power_average": 26_000,
    "temperature": 44,
    "temperature_edge": 40,
    "throttle_status": 0,
    "perf_level": PERF_AUTO,
    "utilization": "1 0",
    "compute": "",
    "sm_lockable": 1,
}
"""A consumer card: throttle bits instead of counters, average power only, no partitions, no energy counter."""


def compile_amd_library(folder: Path, *options: str) -> Path:
    """The simulated ``libamd_smi.so`` in ``folder``; ``options`` can give a function another name, to leave it out."""
    return driver.compile_library(folder, SOURCE, "libamd_smi.so", *options)


class AmdWorld(driver.World):
    """Answers of the simulated AMD driver, and the settings that programs have made with it."""

    VARIABLE = "KERNEL_MATRIX_SIM_AMD_WORLD"
    HOST: ClassVar[dict[str, Any]] = {"driver": "6.12.12", "version": "26 0 2"}


class SimulatedAmdDriver(driver.DriverPrograms, AmdWorld):
    """One world of the simulated AMD driver, and programs that live in it."""
