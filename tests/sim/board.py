"""One simulated GPU of each vendor, with what a test of all vendors needs to know of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.sim import nvml
from tests.sim.amd_smi import MI300X, PERF_DETERMINISM, AmdWorld, SimulatedAmdDriver
from tests.sim.driver import DriverPrograms, SetState, World
from tests.sim.nvml import H200, SimulatedDriver

_IMPORTS = """
import json
from kernel_matrix.platforms import Gpu
from kernel_matrix.platforms.registry import get_platform
from {module} import {world} as World
gpu = Gpu(platform={platform!r}, uuid={uuid!r}, name="")
"""
_QUESTION = """
import dataclasses
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.platforms import ComputeMode
platform = get_platform(gpu.platform)
try:
    said = {question}
except InfrastructureError as error:
    said = {{"error": type(error).__name__, **vars(error)}}
print(json.dumps(dataclasses.asdict(said) if dataclasses.is_dataclass(said) else said))
"""


@dataclass(frozen=True, kw_only=True)
class Board:
    """A simulated GPU that is alone in its world."""

    platform: str
    driver: DriverPrograms
    world: type[World]
    """Class of the driver's world, for programs in it."""
    gpu: Mapping[str, Any]
    """What the driver says of it, unless told otherwise; and its platform."""
    lost: str
    """What every query of a lost device answers."""
    refused: str
    """What a query answers that has failed for once."""
    failed: int
    """Code of a failure without a meaning of its own."""
    error: str
    """How the driver's errors are named in messages, before their number."""
    temperature: Mapping[str, Any]
    """What the driver says where it reads the temperature, if it is 41 °C."""
    gone: tuple[int, ...]
    """Codes of a device that is lost."""
    not_permitted: int
    """Code with which it refuses a setting to who is not root."""
    locked: SetState
    """What is set on it while its clocks are locked to 1500 MHz."""
    lock_function: str
    """Function of the driver's library that locks the SM clock."""
    reset_function: str
    """Function that gives it back."""
    by_hand: tuple[str, ...]
    """Commands with which an administrator gives the settings back."""
    division: str
    """What divides such a device into parts."""
    divided: Mapping[str, Any]
    """What the driver says of a device that is divided into parts."""
    vendor: str
    """Its name in matrix files."""
    toolchain: str
    """What a matrix file says of a toolchain for it, one setting in each line."""
    locking: tuple[str, ...]
    """Requests that lock its clocks, in the form of :attr:`tests.baddays.gpu_field.GpuField.settings`."""
    resetting: tuple[str, ...]
    """Requests that give them back."""
    not_reset: str
    """Words about a reset that has reported success and done nothing."""
    fast_link: str
    """Direct link between two such devices, without a switch."""
    policy: Mapping[str, Any] = field(default_factory=dict)
    """What a matrix file's policy needs besides, so that its clocks are locked to 1500 MHz."""
    alone: tuple[str, ...] = ()
    """Requests that keep other processes off it and let them on again, if it has such a mode."""
    kinds: tuple[str, ...] = ("compute",)
    """Lists of processes that the driver has."""

    @property
    def uuid(self) -> str:
        """The driver's UUID."""
        return str(self.gpu["uuid"])

    @property
    def clock(self) -> int:
        """SM clock that the driver chooses, MHz."""
        return int(self.gpu["clock_sm"])

    @property
    def state(self) -> SetState:
        """What is set on it now."""
        return self.driver.state(self.uuid)

    @property
    def program(self) -> str:
        """Beginning of a program in this world: imports of ``json``, ``get_platform`` and ``World``, and ``gpu``."""
        names = {"module": self.world.__module__, "world": self.world.__name__}
        return _IMPORTS.format(**names, platform=self.platform, uuid=self.uuid)

    def ask(self, question: str) -> Any:
        """What an expression about ``gpu`` and its ``platform`` is, as JSON; an error of ours as its class and fields.

        A program of its own in this world works it out.
        """
        return self.driver.ask(self.program + _QUESTION.format(question=question))

    def needs_list(self, kind: str) -> None:
        """Skip the test if the driver has no list of such processes."""
        if kind not in self.kinds:
            pytest.skip(f"this driver has no list of {kind} processes")

    def set(self, changes: Mapping[str, Any] | None = None, **host: Any) -> None:
        """Make the world so, with what ``changes`` about the GPU and with these keys of the host."""
        self.driver.set({**self.gpu, **(changes or {})}, **host)


def nvidia_board(library: Path, folder: Path) -> Board:
    """An H200."""
    return Board(
        platform="cuda",
        driver=SimulatedDriver(library, folder / "world"),
        world=nvml.World,
        gpu=H200,
        lost="!15",
        failed=999,
        error="NVML error",
        temperature={"temperature": 41},
        gone=(15, 16, 999),
        not_permitted=4,
        locked=SetState(sm_locked=(1500, 1500), memory_locked=(3201, 3201)),
        lock_function="nvmlDeviceSetGpuLockedClocks",
        reset_function="nvmlDeviceResetGpuLockedClocks",
        by_hand=tuple(f"`nvidia-smi -i {H200['uuid']} {option}`" for option in ("-rgc", "-rmc", "-c 0")),
        refused="!4",
        division="MIG",
        divided={"mig": "1 1"},
        vendor="nvidia",
        toolchain='cuda = "13.0"',
        locking=("nvmlDeviceSetGpuLockedClocks tdp tdp -> 0", "nvmlDeviceSetMemoryLockedClocks 3201 3201 -> 0"),
        resetting=("nvmlDeviceResetGpuLockedClocks -> 0", "nvmlDeviceResetMemoryLockedClocks -> 0"),
        not_reset="1500 MHz after it",
        fast_link="nvlink",
        alone=("nvmlDeviceSetComputeMode 3 -> 0", "nvmlDeviceSetComputeMode 0 -> 0"),
        kinds=("compute", "graphics", "mps"),
    )


def amd_board(library: Path, folder: Path) -> Board:
    """An MI300X."""
    return Board(
        platform="rocm",
        driver=SimulatedAmdDriver(library, folder / "amd-world"),
        world=AmdWorld,
        gpu=MI300X,
        lost="!31",
        failed=12,
        error="AMD SMI error",
        temperature={"metrics": None},
        gone=(31, 12, 0xFFFFFFFF),
        not_permitted=10,
        locked=SetState(sm_locked=(0, 1500), perf_level=PERF_DETERMINISM),
        lock_function="amdsmi_set_gpu_perf_determinism_mode",
        reset_function="amdsmi_set_gpu_perf_level",
        by_hand=("`amd-smi reset --perf-determinism`",),
        refused="!10",
        division="compute partitions",
        divided={"partition": "CPX"},
        vendor="amd",
        toolchain='rocm = "7.2"',
        locking=("amdsmi_set_gpu_perf_determinism_mode 1500 -> 0",),
        resetting=("amdsmi_set_gpu_perf_level 0 -> 0",),
        not_reset="the performance level is 8 and not 0",
        fast_link="xgmi",
        policy={"clock_target": 1500},  # it has no level with clocks for profiling
    )
