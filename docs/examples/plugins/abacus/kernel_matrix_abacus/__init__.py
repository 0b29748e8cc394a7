"""The platform ``abacus``: one device, which the host's processors play. Its inside half is :mod:`.inside`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.platforms import CostFigures, DeviceAccess, DeviceDetails, Gpu, PlatformInventory, TelemetrySample
from kernel_matrix.platforms.defaults import *  # noqa: F403  # members for what the device lacks

VENDOR = "acme"
TITLE = "Abacus"
IS_ACCELERATOR = True
NEEDS_IMAGES = False
COST = CostFigures(start_s=3.0, call_s=0.05, timed_call_s=0.01)

_ABACUS = Gpu(platform="abacus", uuid="ABACUS-1", name="Acme Abacus", memory_bytes=1 << 30, driver="1.0")


def inventory() -> PlatformInventory:
    """Return the one device."""
    return PlatformInventory(gpus=(_ABACUS,))


def processes(gpu: Gpu) -> Sequence[int]:  # noqa: ARG001  # there is one device
    """Return nothing: no process is listed on it."""
    return ()


def snapshot(gpu: Gpu) -> dict[str, float | int | str | None]:  # noqa: ARG001  # as above
    """Return its temperature, which never changes."""
    return {"temperature_c": 20}


def details(gpu: Gpu) -> DeviceDetails:  # noqa: ARG001  # as above
    """Return the number of its rods."""
    return DeviceDetails(values={"rods": 13}, missing={})


def sampler(gpu: Gpu) -> Callable[[], TelemetrySample]:
    """Return a function that looks for processes on it; the lease calls it many times a second."""
    return lambda: TelemetrySample(at_ns=time.monotonic_ns(), temperature_c=20, pids=tuple(processes(gpu)))


def language_skip_reason(language: Language, compute_capability: str | None) -> str | None:  # noqa: ARG001  # it has none
    """Return why it does not run ``language``: it runs what PyTorch runs."""
    return None if language is Language.TORCH else f"an Abacus has no compiler for {language.value}"


def dtype_skip_reason(dtype: Dtype, language: Language, compute_capability: str | None) -> None:
    """Return None: it computes correctly in every dtype."""


def interprets(language: Language) -> bool:  # noqa: ARG001  # as above
    """Return False: no interpreter stands for a compiler."""
    return False


def container_access(info: Mapping[str, Any], gpu: Gpu | None = None) -> DeviceAccess:  # noqa: ARG001  # see below
    """Return the name of the way; nothing has to be shown to a container."""
    return DeviceAccess(way="built in")


def process_access(gpu: Gpu) -> DeviceAccess:  # noqa: ARG001  # see container_access
    """Return the name of the way; nothing has to be shown to a process."""
    return DeviceAccess(way="built in")
