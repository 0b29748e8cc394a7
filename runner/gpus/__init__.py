"""The devices of this host: the ``Gpu`` noun, the ``Vendor`` protocol and the registry.

A vendor is a module with four functions. To add one: one file here and one line in :data:`VENDORS`.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True, kw_only=True)
class Gpu:
    """One device a cell can run on. ``cpu`` is one too: the embedded default."""

    vendor: str
    """Registry key: ``cpu`` or ``nvidia``."""
    uuid: str
    """NVML's UUID, or ``cpu``."""
    name: str
    """NVML's product name, or the CPU's model name."""
    index: int = 0
    minor: int | None = None
    """Number of its device node, ``/dev/nvidia<minor>``."""
    compute_capability: str | None = None
    """``"9.0"``; null for a CPU."""
    memory_bytes: int = 0
    driver: str | None = None
    """Kernel driver version, e.g. ``580.159.04``."""
    cuda_driver: str | None = None
    """Newest CUDA the driver runs, e.g. ``13.0``."""

    @property
    def torch_device(self) -> str:
        """What torch calls it inside a container that sees only this one."""
        return "cpu" if self.vendor == "cpu" else "cuda"


@dataclass(frozen=True, slots=True, kw_only=True)
class Inventory:
    """What a vendor's library says: devices, or the reason there are none."""

    gpus: tuple[Gpu, ...] = ()
    reason: str = ""
    """Why the list is empty or incomplete, in words."""


class Vendor(Protocol):
    """What the runner needs to know from a vendor's library."""

    def inventory(self) -> Inventory:
        """All devices of this vendor; never raises for an absent driver, says so in ``reason``."""
        ...

    def opened(self) -> AbstractContextManager[None]:
        """Keep the vendor's library open over many questions; calls nest.

        :raises runner.errors.InfrastructureError: when it cannot be opened.
        """
        ...

    def processes(self, gpu: Gpu) -> Sequence[int]:
        """PIDs with a context on ``gpu`` (host PIDs).

        :raises runner.errors.InfrastructureError: when the driver cannot say.
        """
        ...

    def snapshot(self, gpu: Gpu) -> dict[str, float | int | str | None]:
        """Clocks, power, temperature, used memory and event reasons now; a field that is not supported is null.

        :raises runner.errors.InfrastructureError: when the device does not answer at all.
        """
        ...


VENDORS = {"cpu": "runner.gpus.cpu", "nvidia": "runner.gpus.nvidia"}
"""Vendor name → module, imported when asked for."""


def vendor(name: str) -> Vendor:
    """The vendor module registered as ``name``."""
    import importlib  # noqa: PLC0415  # NVML's bindings are loaded only when a GPU is asked for

    module: Vendor = importlib.import_module(VENDORS[name])
    return module


def host_inventory() -> dict[str, Inventory]:
    """Every vendor's inventory on this host."""
    return {name: vendor(name).inventory() for name in VENDORS}
