"""A simulated device whose memory is counted tensor by tensor, in the judge and in workers, threads of this process.

It is a thousandth of a real one, and so are the sizes on which the judge decides: a MiB stands for a GiB. What torch
takes within an operator is not seen. Each thread keeps what it frees until it releases it, as torch's allocator does.
"""

from __future__ import annotations

import sys
import threading
import weakref
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch._dynamo  # else the first call in a dispatch mode imports it, which may take longer than a call may
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from kernel_matrix.inside import input_generation, input_properties
from kernel_matrix.inside.judge import bits, device_memory, input_supply, memory_blame, timing, tolerance, verification
from kernel_matrix.inside.memory import Arena
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.worker import service
from kernel_matrix.platforms.cpu import inside as cpu
from tests.inside import device

MIB = 1 << 20
SCALE = 1024
SCALED = {
    bits: ("CHUNK", "HASHED"),
    device_memory: ("CAP_SLACK_BYTES", "UNEXPLAINED_BYTES"),
    input_generation: ("PIECE",),
    input_properties: ("LONGEST",),
    input_supply: ("SMALL_BYTES",),
    memory_blame: ("MARGIN_BYTES", "RESERVE_BYTES", "UNEXPLAINED_BYTES"),
    timing: ("MOVED_BYTES",),
    tolerance: ("CHUNK",),
    verification: ("LARGE", "RESERVE_BYTES", "GLANCED"),
}
UNCOUNTED = 512  # bytes; smaller tensors are not counted


class CountedMemory:
    """Memory by thread, and the judge's arenas. Also members of a platform."""

    def __init__(self, total: int, contexts: int) -> None:
        self.total, self.contexts = total, contexts
        self.most = 0
        """Most memory in use on the whole device so far, bytes."""
        self._judge = threading.get_ident()
        self._used: Counter[int] = Counter()
        self._reserved: Counter[int] = Counter()
        self._peaks: Counter[int] = Counter()
        self._limits: dict[int, int] = {}
        self._storages: set[int] = set()
        self._arenas: dict[int, int] = {}  # address → bytes, also as workers map them
        self._lent_bytes = 0

    def count(self, storage: torch.UntypedStorage) -> None:
        """Count a storage until it is freed, unless it is known or an arena's.

        Raises:
            torch.OutOfMemoryError: If there is too little memory.
        """
        nbytes = storage.nbytes()
        if nbytes < UNCOUNTED or storage._cdata in self._storages:
            return
        place, thread = storage.data_ptr(), threading.get_ident()
        if any(start <= place < start + size for start, size in list(self._arenas.items())):
            return
        self._reserve(thread, self._used[thread] + nbytes)
        self._used[thread] += nbytes
        self._peaks[thread] = max(self._peaks[thread], self._used[thread])
        self._storages.add(storage._cdata)
        weakref.finalize(storage, self._free, storage._cdata, nbytes, thread)

    def _free(self, storage: int, nbytes: int, thread: int) -> None:
        self._storages.discard(storage)
        self._used[thread] -= nbytes

    def _reserve(self, thread: int, nbytes: int) -> None:
        missing = max(0, nbytes - self._reserved[thread])
        if missing > self._room(thread):
            self._reserved[thread] = self._used[thread]  # as torch does before it gives up
            missing = nbytes - self._reserved[thread]
        if missing > self._room(thread):
            raise torch.OutOfMemoryError("CUDA out of memory.")
        self._reserved[thread] += missing
        self.most = max(self.most, self.total - self.free)

    def _room(self, thread: int) -> int:
        lent = self._lent_bytes if thread == self._judge else 0
        return min(self.free, self._limits.get(thread, self.total) - self._reserved[thread] - lent)

    @property
    def free(self) -> int:
        """Memory that no thread has, bytes."""
        return self.total - self.contexts - self._lent_bytes - sum(self._reserved.values())

    # ---- members of a platform

    def device_memory(self) -> tuple[int, int]:
        return max(0, self.free), self.total

    def own_memory(self) -> int:
        thread = threading.get_ident()
        return self._reserved[thread] + (self._lent_bytes if thread == self._judge else 0)

    def free_bytes(self) -> int:
        thread = threading.get_ident()
        return self._room(thread) + self._reserved[thread] - self._used[thread]

    def release_memory(self, share: float = 0.0) -> None:
        thread, enough = threading.get_ident(), self.total * share
        if not share or self._reserved[thread] - self._used[thread] > enough or self.free < enough:
            self._reserved[thread] = self._used[thread]

    def take_peak(self) -> int:
        thread = threading.get_ident()
        peak, self._peaks[thread] = self._peaks[thread] - self._used[thread], self._used[thread]
        return max(0, peak)

    def limit_memory(self, nbytes: int) -> None:
        self._limits[threading.get_ident()] = nbytes

    def create_arena(self, nbytes: int) -> Arena:
        if nbytes > self.free:
            self.release_memory()
        if nbytes > self.free:
            raise torch.OutOfMemoryError("no bytes left on the device for an arena")
        self._lent_bytes += nbytes
        self.most = max(self.most, self.total - self.free)
        return self._known(cpu.create_arena(nbytes), nbytes)

    def open_arena(self, descriptor: int, nbytes: int) -> Arena:
        return self._known(cpu.open_arena(descriptor, nbytes), 0)

    def _known(self, arena: Arena, nbytes: int) -> Arena:
        storage = arena.tensor.untyped_storage()
        self._arenas[storage.data_ptr()] = storage.nbytes()
        weakref.finalize(storage, self._forget, storage.data_ptr(), nbytes)
        return arena

    def _forget(self, place: int, nbytes: int) -> None:
        self._arenas.pop(place, None)
        self._lent_bytes -= nbytes

    # ---- threads

    @contextmanager
    def counting(self) -> Iterator[None]:
        """Count what this thread has; at the end it has nothing more."""
        with _Counting(self):
            yield
        thread = threading.get_ident()
        self._used.pop(thread, None)
        self._reserved.pop(thread, None)


class _Counting(TorchDispatchMode):
    def __init__(self, memory: CountedMemory) -> None:
        super().__init__()
        self._memory = memory

    def __torch_dispatch__(self, function: Any, _types: Any, arguments: Any = (), named: Any = None) -> Any:
        result = function(*arguments, **(named or {}))
        # Nearly all results are single tensors, and there are very many.
        for one in (result,) if isinstance(result, torch.Tensor) else tree_leaves(result):
            if isinstance(one, torch.Tensor) and one.device.type == "cpu":
                self._memory.count(one.untyped_storage())
        return result


def install(patch: pytest.MonkeyPatch, total: int, contexts: int) -> CountedMemory:
    """Make the platform :data:`.device.NAME` with memory that is counted, in workers and where it is asked for."""
    device.install(patch)
    memory = CountedMemory(total, contexts)
    platform = sys.modules[f"kernel_matrix.platforms.{device.NAME}.inside"]
    for name in (
        "device_memory",
        "own_memory",
        "free_bytes",
        "release_memory",
        "take_peak",
        "limit_memory",
        "create_arena",
        "open_arena",
    ):
        setattr(platform, name, getattr(memory, name))
    for module, names in SCALED.items():
        for name in names:
            patch.setattr(module, name, max(1, getattr(module, name) // SCALE))
    serve = service.Worker.serve

    def counted(worker: service.Worker) -> None:
        with memory.counting():
            serve(worker)

    patch.setattr(service.Worker, "serve", counted)
    load_platform.cache_clear()
    return memory
