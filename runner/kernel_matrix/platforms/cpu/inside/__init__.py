"""The CPU, as judge, workers and builders see it. The simplest inside half, and the example for others.

Calls are over when they return, and the host's clock times them. Memory is shared as sealed anonymous files.
"""

from __future__ import annotations

import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterable, Iterator, List, Mapping, Optional, Sequence, Tuple

from kernel_matrix.inside.known_answers import WORDS, right_answer, worked_out
from kernel_matrix.inside.platform import Activity, DeviceHealth, SensorError, Sensors

if TYPE_CHECKING:
    from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
    from kernel_matrix.inside.memory import Arena
    from kernel_matrix.inside.wire import KernelCode
    from kernel_matrix.model.enums import Dtype

TORCH_DEVICE = "cpu"
IS_ACCELERATOR = False
NEEDS_DEVICE: Tuple[str, ...] = ()


def transport() -> str:
    """Name the shared file."""
    return "memfd"


def create_arena(nbytes: int) -> Arena:
    """Make an anonymous file that a worker cannot shrink while the judge uses it."""
    from kernel_matrix.inside.memory import create_shared_file, map_file  # noqa: PLC0415  # torch comes with it

    return map_file(create_shared_file(nbytes), nbytes)


def open_arena(descriptor: int, nbytes: int) -> Arena:
    """Map the file."""
    from kernel_matrix.inside.memory import map_file  # noqa: PLC0415  # torch comes with it

    return map_file(descriptor, nbytes)


def free_bytes() -> None:
    """Return None: the host's memory is limited by the sandbox."""


def release_memory(share: float = 0.0) -> None:
    """Do nothing: torch keeps no memory of the host."""


def cache_bytes() -> int:
    """Return 0: caches are not flushed."""
    return 0


def open_device() -> None:
    """Do nothing."""


def synchronize() -> None:
    """Do nothing: calls are over when they return."""


def make_timer() -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
    """Time calls by the host's clock."""

    def timed(function: Callable[[], Any]) -> Tuple[Any, int]:
        started = time.perf_counter_ns()
        returned = function()
        return returned, time.perf_counter_ns() - started

    return timed


def capture(function: Callable[[], Any]) -> None:
    """Return None: there is nothing to capture calls with."""


def record_activity() -> Callable[[], Iterable[Activity]]:
    """Record nothing: no kernels are launched but those of Triton's interpreter."""
    return list


def measure_clock(phase: str) -> None:
    """Return None: cores change their clocks one by one."""


def measure_anchor(phase: str) -> None:
    """Return None: there are no fixed kernels."""


def check_health(seconds: float) -> DeviceHealth:  # noqa: ARG001  # no clock is read
    """Work out a few known answers in this interpreter."""
    started = time.monotonic()
    wrong = [index for index in range(0, WORDS, WORDS // 64) if worked_out(index) != right_answer(index)]
    reason = f"known answers: {len(wrong)} are wrong, the first is number {wrong[0]}" if wrong else ""
    return DeviceHealth(not wrong, reason, None, time.monotonic() - started)


@contextmanager
def sensors(uuid: str) -> Iterator[Sensors]:
    """Raise: there are no sensors to wait for."""
    raise SensorError(f"{uuid or 'a CPU'} has no sensors")
    yield


def describe() -> Mapping[str, Optional[str]]:
    """Return nothing beyond what is read on every platform."""
    return {}


def product_sizes() -> Sequence[int]:
    """Return sizes that take milliseconds."""
    return (256, 512)


def buffer_bytes() -> int:
    """Return more than most caches hold."""
    return 64 << 20


def compiler_settings(remarks: Optional[Path] = None) -> Dict[str, str]:  # noqa: ARG001  # none is asked for any
    """Return nothing: compilers choose this machine."""
    return {}


def kernels_in(folder: Path, log: str) -> List[KernelCode]:  # noqa: ARG001  # a CPU has no kernels
    """Return nothing: functions of a shared library are not told apart."""
    return []


def compile_ahead(
    source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype, target: CompileTarget
) -> CompiledAhead:
    """Refuse: nothing is compiled ahead for a CPU."""
    raise NotImplementedError("nothing is compiled ahead for a CPU")
