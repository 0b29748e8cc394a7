"""One question to an NVIDIA GPU, asked by a program of its own on the simulated driver."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sim.nvml import H200, SimulatedDriver

PROGRAM = """
import dataclasses, json
from kernel_matrix.errors import InfrastructureError
from kernel_matrix.platforms import ComputeMode, Gpu
from kernel_matrix.platforms.registry import get_platform
nvidia = get_platform("cuda")
gpu = Gpu(platform="cuda", uuid={uuid!r}, name={name!r})
try:
    said = {question}
except InfrastructureError as error:
    said = {{"error": type(error).__name__, **vars(error)}}
print(json.dumps(dataclasses.asdict(said) if dataclasses.is_dataclass(said) else said))
"""


@pytest.fixture
def ask(driver: SimulatedDriver) -> Callable[..., Any]:
    """What an expression about ``nvidia`` and ``gpu`` is, as JSON; an error of ours as its class and fields."""

    def asked(question: str, *, uuid: str = H200["uuid"], name: str = "the GPU") -> Any:
        return driver.ask(PROGRAM.format(question=question, uuid=uuid, name=name))

    return asked
