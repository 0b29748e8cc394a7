"""Python's side of the simulated NVIDIA driver: compiles it, scripts its world, runs programs in it.

What a world can say, key by key, is told at the head of ``nvml.c``.
"""

from __future__ import annotations

import fcntl
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
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


def _section(sections: list[dict[str, Any]], uuid: str) -> dict[str, Any]:
    (gpu,) = (section for section in sections[1:] if section.get("uuid") == uuid)
    return gpu


def _is_listed(entry: str) -> bool:
    """Whether the driver lists an entry of a list of processes now."""
    return not entry.endswith("*") or _lives(int(entry.rstrip("*").partition(":")[0]))


def _lives(pid: int) -> bool:
    """Whether a process runs; one that is dead and not yet buried does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")


def compile_library(folder: Path, source: Path = SOURCE, name: str = "libnvidia-ml.so.1") -> Path:
    """The shared library ``name`` in ``folder``, made of ``source``: unless told otherwise, the simulated NVML."""
    library = folder / name
    flags = ("-shared", "-fPIC", "-O1", "-Wall", "-Wextra", "-Werror", f"-Wl,-soname,{library.name}")
    subprocess.run(("gcc", *flags, "-o", library, source), check=True)
    return library


@dataclass(frozen=True)
class SetState:
    """What programs have set on one GPU and nobody has given back."""

    sm_locked: tuple[int, int] | None = None
    """Lowest and highest SM clock, MHz."""
    memory_locked: tuple[int, int] | None = None
    compute_mode: int | None = None
    """Null: as the world says."""

    @property
    def is_given_back(self) -> bool:
        """No clock is locked, and anybody may compute."""
        return self.sm_locked is None and self.memory_locked is None and not self.compute_mode


class World:
    """What the simulated driver says, and what programs have set with it; several programs may change it at once."""

    def __init__(self, path: Path) -> None:
        self._world = path

    @staticmethod
    def here() -> World:
        """The world that this program lives in."""
        return World(Path(os.environ[WORLD_VARIABLE]))

    def set(self, *gpus: dict[str, Any], **host: Any) -> None:
        """Make the world so, at once, also for programs that run already. What they have set stays set."""
        with self._alone():
            self._write([{"driver": "580.159.04", "cuda": 13000, "nvml": "13.580.159.04", **host}, *gpus])

    def change(self, uuid: str, **keys: Any) -> None:
        """Make one GPU say something else under some keys, at once; a key that becomes null is absent from then on."""
        with self._alone():
            sections = self._read()
            _section(sections, uuid).update(keys)
            self._write(sections)

    def occupy(self, uuid: str, pid: int) -> None:
        """Have a process compute on a GPU from now on; the driver lists it until it ends."""
        with self._alone():
            sections = self._read()
            gpu = _section(sections, uuid)
            gpu["compute"] = " ".join([*filter(_is_listed, gpu["compute"].split()), f"{pid}*"])
            self._write(sections)

    def tenants(self, uuid: str) -> list[int]:
        """Who computes on a GPU now, as the driver lists them."""
        listed = _section(self._read(), uuid)["compute"].split()
        return [int(entry.rstrip("*").partition(":")[0]) for entry in listed if _is_listed(entry)]

    def state(self, uuid: str) -> SetState:
        """What is set on a GPU now."""
        values: dict[str, Any] = {}
        for line in self._lines(".state"):
            owner, key, *numbers = line.split()
            if owner == uuid:
                values[key] = int(numbers[0]) if key == "compute_mode" else tuple(map(int, numbers))
        return SetState(**values)

    def log(self) -> list[str]:
        """Every call that would set or reset anything, in order: ``pid function uuid arguments -> code``."""
        return self._lines(".log")

    def looks(self) -> int:
        """How often programs have asked for the list of computing processes."""
        path = self._world.with_name(self._world.name + ".looks")
        return path.stat().st_size if path.exists() else 0

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Nobody else changes the world meanwhile, in this program or another."""
        with self._world.with_suffix(".changing").open("a") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _read(self) -> list[dict[str, Any]]:
        """The host's keys, then each GPU's."""
        sections: list[dict[str, Any]] = [{}]
        for line in self._world.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "gpu":
                sections.append({})
            else:
                sections[-1][key] = value
        return sections

    def _write(self, sections: list[dict[str, Any]]) -> None:
        texts = ["".join(f"{key} {value}\n" for key, value in part.items() if value is not None) for part in sections]
        aside = self._world.with_suffix(".new")
        aside.write_text("gpu\n".join(texts))
        aside.replace(self._world)

    def _lines(self, suffix: str) -> list[str]:
        path = self._world.with_name(self._world.name + suffix)
        return path.read_text().splitlines() if path.exists() else []


class SimulatedDriver(World):
    """One world, and programs that live in it."""

    def __init__(self, library: Path, world: Path) -> None:
        super().__init__(world)
        self.environment = {
            **os.environ,
            "LD_LIBRARY_PATH": f"{library.parent}:{os.environ.get('LD_LIBRARY_PATH', '')}",
            "PYTHONPATH": os.pathsep.join(filter(None, (str(ROOT), os.environ.get("PYTHONPATH")))),
            WORLD_VARIABLE: str(world),
            # What the person who runs the tests has forbidden on this machine must not decide what the tests see.
            "KERNEL_MATRIX_GPU_SETTINGS": "allow",
            "KERNEL_MATRIX_HOST_FILE": str(world.with_name("host.toml")),
        }

    def start(
        self, program: str, *arguments: str, prefix: Sequence[str] = (), **environment: str
    ) -> subprocess.Popen[str]:
        """Start Python on ``program``, with pipes.

        :param prefix: command that starts Python in its turn.
        """
        return subprocess.Popen(
            (*prefix, sys.executable, "-c", program, *arguments),
            env={**self.environment, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def ask(self, program: str, *, timeout_s: float = 60, **environment: str) -> Any:
        """Run Python on ``program`` to its end; the last line that it printed, read as JSON."""
        done = subprocess.run(
            (sys.executable, "-c", program),
            env={**self.environment, **environment},
            capture_output=True,
            text=True,
            check=False,
            timeout=timeout_s,
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])
