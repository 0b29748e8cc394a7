"""Recording of the kernels that the GPU runs: with CUPTI's library if torch loads one, else with torch's profiler."""

from __future__ import annotations

from pathlib import Path
from typing import Callable, Iterable

from kernel_matrix.inside.gpu_activity import record_activity as record
from kernel_matrix.inside.platform import Activity
from kernel_matrix.platforms.cuda.inside.cupti import loaded_library, recorder


def record_activity() -> Callable[[], Iterable[Activity]]:
    """Start a tracer of the GPU and return the function that ends it.

    If no GPU is in use, or it cannot be traced, that function returns no activity.
    """
    library = loaded_library()
    return record(None if library is None else lambda: _start(library))


def _start(library: Path) -> Callable[[], Iterable[Activity]]:
    started = recorder(library)
    started.start()
    return started.stop
