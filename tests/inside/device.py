"""A simulated device with memory of its own: what judge and workers, threads of this process, take of it.

Sources of candidates and problems import :data:`DEVICE`. The main thread is the judge.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import pytest

GIB = 1 << 30
NAME = "simulated"
"""Name of its platform."""


class SimulatedDevice:
    """Memory by thread: what is in use, and what the thread's allocator keeps without use."""

    def __init__(self) -> None:
        self.reset()

    def reset(self, total: int = 16 * GIB, contexts: int = GIB) -> None:
        """Begin anew."""
        self.total, self.contexts = total, contexts
        self._used: Counter[int] = Counter()
        self._kept: Counter[int] = Counter()
        self._peak: Counter[int] = Counter()
        self._limits: dict[int, int] = {}
        self._readings = 0
        self.samplers = 0

    @property
    def free(self) -> int:
        """Memory that no process has taken, bytes."""
        return self.total - self.contexts - sum(self._used.values()) - sum(self._kept.values())

    def take(self, gib: float) -> None:
        """Allocate memory.

        Raises:
            torch.OutOfMemoryError: If there is too little.
        """
        import torch  # noqa: PLC0415  # may be absent

        thread, nbytes = threading.get_ident(), int(gib * GIB)
        missing = max(0, nbytes - self._kept[thread])
        if missing > min(self.free, self._limits.get(thread, self.total) - self.own_memory()):
            raise torch.OutOfMemoryError(f"CUDA out of memory. Tried to allocate {gib:.2f} GiB.")
        self._kept[thread] -= nbytes - missing
        self._used[thread] += nbytes
        self._peak[thread] = max(self._peak[thread], self._used[thread])

    def give(self, gib: float) -> None:
        """Free memory, which the thread's allocator keeps."""
        thread, nbytes = threading.get_ident(), int(gib * GIB)
        self._used[thread] -= nbytes
        self._kept[thread] += nbytes

    @contextmanager
    def use(self, gib: float) -> Iterator[None]:
        """Have memory for a while, until it is seen if a thread reads the peak."""
        self.take(gib)
        seen = self._readings + 2  # one reading may have begun before
        try:
            while self.samplers and self._readings < seen:
                time.sleep(0.001)
            yield
        finally:
            self.give(gib)

    def end(self) -> None:
        """Free all that this thread has, as the end of its process would."""
        self._used.pop(threading.get_ident(), None)
        self.release_memory()

    # ---- members of a platform

    def device_memory(self) -> tuple[int, int]:
        free = self.free
        self._readings += 1
        return free, self.total

    def own_memory(self) -> int:
        thread = threading.get_ident()
        return self._used[thread] + self._kept[thread]

    def release_memory(self, share: float = 0.0) -> None:
        self._kept.pop(threading.get_ident(), None)

    def take_peak(self) -> int:
        thread = threading.get_ident()
        peak, self._peak[thread] = self._peak[thread] - self._used[thread], self._used[thread]
        return peak

    def limit_memory(self, nbytes: int) -> None:
        self._limits[threading.get_ident()] = nbytes


DEVICE = SimulatedDevice()


def install(patch: pytest.MonkeyPatch) -> None:
    """Make a platform :data:`NAME` of the CPU's with the memory of :data:`DEVICE`."""
    from kernel_matrix.inside.judge import device_memory, memory_blame  # noqa: PLC0415
    from kernel_matrix.inside.platform import load_platform  # noqa: PLC0415
    from kernel_matrix.inside.worker import service  # noqa: PLC0415
    from kernel_matrix.platforms.cpu import inside  # noqa: PLC0415

    platform = ModuleType(f"kernel_matrix.platforms.{NAME}.inside")
    vars(platform).update({name: value for name, value in vars(inside).items() if not name.startswith("__")})
    for name in ("device_memory", "own_memory", "release_memory", "take_peak", "limit_memory"):
        setattr(platform, name, getattr(DEVICE, name))
    package = ModuleType(f"kernel_matrix.platforms.{NAME}")
    patch.setattr(package, "__path__", [], raising=False)
    patch.setitem(sys.modules, package.__name__, package)
    patch.setitem(sys.modules, platform.__name__, platform)
    serve = service.serve

    class CountedReader(device_memory._LowestFree):
        def __enter__(self) -> None:
            super().__enter__()
            DEVICE.samplers += 1

        def __exit__(self, *error: object) -> None:
            DEVICE.samplers -= 1
            super().__exit__(*error)

    def serve_and_end(*arguments: Any) -> None:
        serve(*arguments)
        DEVICE.end()

    patch.setattr(device_memory, "_LowestFree", CountedReader)
    patch.setattr(service, "serve", serve_and_end)
    patch.setattr(memory_blame, "_GONE_S", 0.1)  # a thread keeps its connection
    load_platform.cache_clear()
    DEVICE.reset()
