"""Members of :class:`~kernel_matrix.inside.platform.InsidePlatform` for a device that lacks what they are about.

A platform's ``inside`` imports those that fit it, and defines the others.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import (
    TYPE_CHECKING,
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterable,
    Iterator,
    List,
    Mapping,
    Optional,
    Sequence,
    Tuple,
)

from kernel_matrix.inside.platform import Activity, EnergyCounter, SensorError, Sensors

if TYPE_CHECKING:
    from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
    from kernel_matrix.inside.memory import Arena
    from kernel_matrix.inside.wire import KernelCode
    from kernel_matrix.model.enums import Dtype

__all__ = [
    "COLLECTIVES",
    "NEEDS_DEVICE",
    "cache_bytes",
    "capture",
    "compile_ahead",
    "compiler_settings",
    "describe",
    "device_memory",
    "energy_counter",
    "free_bytes",
    "judge_settings",
    "kernels_in",
    "limit_memory",
    "measure_anchor",
    "measure_clock",
    "missing_path",
    "on_device",
    "open_device",
    "open_pool",
    "own_memory",
    "pool_bytes",
    "record_activity",
    "release_memory",
    "sensors",
    "synchronize",
    "take_peak",
]

NEEDS_DEVICE: Tuple[str, ...] = ()
COLLECTIVES = "gloo"


def pool_bytes(outputs: Sequence[int], calls: int) -> int:  # noqa: ARG001  # part of the protocol
    """Return 0: there are no pools."""
    return 0


def open_pool(arena: Arena) -> None:
    """Return None: torch cannot allocate in given memory."""


def free_bytes() -> None:
    """Return None: torch has no memory of its own on the device."""


def release_memory(share: float = 0.0) -> None:
    """Do nothing: torch keeps no memory."""


def device_memory() -> None:
    """Return None: the device has no memory of its own."""


def own_memory() -> int:
    """Return 0: the device has no memory of its own."""
    return 0


def take_peak() -> None:
    """Return None: torch does not count what it has on the host."""


def limit_memory(nbytes: int) -> None:
    """Do nothing: the sandbox limits the host's memory."""


def judge_settings() -> Mapping[str, str]:
    """Return nothing: torch has no memory of its own on the device."""
    return {}


def cache_bytes() -> int:
    """Return 0: no cache is flushed."""
    return 0


def on_device(rank: int) -> ContextManager[None]:  # noqa: ARG001  # part of the protocol
    """Do nothing: all ranks use the same device."""
    return nullcontext()


def missing_path(ranks: int) -> str:  # noqa: ARG001  # part of the protocol
    """Return that none is missing: all ranks use the same memory."""
    return ""


def open_device() -> None:
    """Do nothing: there is nothing to open."""


def synchronize() -> None:
    """Do nothing: calls are over when they return."""


def capture(function: Callable[[], Any]) -> None:
    """Return None: there is nothing to capture calls with."""


def record_activity() -> Callable[[], Iterable[Activity]]:
    """Record nothing: there is no tracer."""
    return list


def measure_clock(phase: str) -> None:
    """Return None: no clock can be read from inside a kernel."""


def measure_anchor(phase: str) -> None:
    """Return None: there are no fixed kernels."""


@contextmanager
def sensors(uuid: str) -> Iterator[Sensors]:
    """Raise: there are no sensors to wait for."""
    raise SensorError(f"{uuid or 'the device'} has no sensors")
    yield


@contextmanager
def energy_counter(uuid: str) -> Iterator[EnergyCounter]:
    """Raise: no energy is counted."""
    raise SensorError(f"{uuid or 'the device'} has no energy counter")
    yield


def describe() -> Mapping[str, Optional[str]]:
    """Return nothing beyond what is read on every platform."""
    return {}


def compiler_settings(remarks: Optional[Path] = None) -> Dict[str, str]:  # noqa: ARG001  # none is asked for any
    """Return nothing: compilers choose this machine."""
    return {}


def kernels_in(folder: Path, log: str) -> List[KernelCode]:  # noqa: ARG001  # none is found
    """Return nothing: no compiler's output is read."""
    return []


def compile_ahead(
    source: Path,  # noqa: ARG001  # part of the protocol, as all that follow
    entry: str,  # noqa: ARG001
    forms: Sequence[CallForm],  # noqa: ARG001
    dtype: Dtype,  # noqa: ARG001
    target: CompileTarget,  # noqa: ARG001
) -> CompiledAhead:
    """Compile nothing: kernels are compiled on the device, when they are called first."""
    from kernel_matrix.inside.build.call_forms import CompiledAhead  # noqa: PLC0415  # brings torch

    return CompiledAhead(stopped="nothing is compiled ahead for this platform")
