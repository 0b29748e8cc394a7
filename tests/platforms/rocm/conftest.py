"""One question to an AMD GPU, asked by a program of its own on the simulated driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.amd_smi import MI300X, SimulatedAmdDriver

IMPORTS = """
import dataclasses, json, sys
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.platforms import ComputeMode, Gpu
from kernel_matrix.platforms.rocm.clocks import clock_choices
from kernel_matrix.platforms.rocm.details import details
from kernel_matrix.platforms.rocm.inventory import inventory
from kernel_matrix.platforms.rocm.modes import modes
from kernel_matrix.platforms.rocm.processes import processes
from kernel_matrix.platforms.rocm.settings import settings
from kernel_matrix.platforms.rocm.smi_calls import opened
from kernel_matrix.platforms.rocm.telemetry import clocks, sampler, snapshot
"""

PROGRAM = """
gpu = Gpu(platform="rocm", uuid={uuid!r}, name={name!r})
try:
    said = {question}
except InfrastructureError as error:
    said = {{"error": type(error).__name__, **vars(error)}}
print(json.dumps(dataclasses.asdict(said) if dataclasses.is_dataclass(said) else said))
"""


@pytest.fixture
def driver(amd_driver: SimulatedAmdDriver) -> SimulatedAmdDriver:
    """The simulated AMD driver."""
    return amd_driver


@pytest.fixture
def ask(driver: SimulatedAmdDriver) -> Callable[..., Any]:
    """Evaluates an expression about ``gpu`` and returns it as JSON; an error of ours as its class and fields."""

    def asked(question: str, *, uuid: str = MI300X["uuid"], name: str = "the GPU") -> Any:
        return driver.ask(IMPORTS + PROGRAM.format(question=question, uuid=uuid, name=name))

    return asked
