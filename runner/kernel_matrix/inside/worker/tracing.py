"""Which kernels a call runs: a trace of one call, in the process that makes it.

Whatever it says is a claim, like a time: the traced code runs in the same process. On a GPU the platform's
tracer is asked; on a CPU, where Triton's interpreter stands for the device, launches are counted as they are made.
"""

from __future__ import annotations

import re
import sys
import time
from contextlib import contextmanager, suppress
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple

from kernel_matrix.inside.platform import InsidePlatform
from kernel_matrix.inside.wire import MAX_KERNELS

Kernels = List[Tuple[str, int, int]]
"""(name, launches, device nanoseconds of all launches), longest first."""

_LIBRARIES = frozenset(
    {"at", "c10", "caffe2", "cub", "thrust", "cutlass", "cute", "cudnn", "cublas", "cusparse", "cufft", "nccl"}
)
"""Namespaces whose kernels are never a candidate's own, whatever they are called."""

_SPECIALISATION = re.compile(r"(_\d+(de|dc|d|e|c)?)*(_?\d+(de|dc|d|e|c))*")
"""What older Tritons append to a kernel's name: ``softmax_kernel_0d1d2de``."""


def trace(function: Callable[[], Any], platform: InsidePlatform) -> Tuple[Any, Kernels]:
    """Call ``function`` once with a tracer attached.

    :return: what it returned, and its kernels, at most :data:`~kernel_matrix.inside.wire.MAX_KERNELS`; none where
    nothing ran
        or nothing could be traced.
    :raises Exception: whatever ``function`` raises. Tracing itself never does.
    """
    counted: Dict[str, List[int]] = {}
    with _interpreted_launches(counted), _device_activity(platform, counted):
        returned = function()
    kernels = [(name, launches, spent_ns) for name, (launches, spent_ns) in counted.items()]
    return returned, sorted(kernels, key=lambda kernel: -kernel[2])[:MAX_KERNELS]


def own(name: str, own_kernels: Sequence[str]) -> bool:
    """Whether a kernel that was seen as ``name`` is one of ``own_kernels``, the names that a source defines.

    :param name: as the tracer gives it: ``void softmax_kernel<float>(float const*, int)``, its mangled form, or a
        Triton kernel's name with what was appended for a specialisation.
    """
    *namespaces, base = _path(name)
    if namespaces and namespaces[0] in _LIBRARIES:
        return False
    return any(base == mine or _is_specialised(base, mine) for mine in own_kernels)


def _is_specialised(base: str, mine: str) -> bool:
    return base.startswith(mine) and _SPECIALISATION.fullmatch(base[len(mine) :]) is not None


def _path(name: str) -> List[str]:
    """The namespaces of a kernel and its bare name."""
    if name.startswith("_Z"):
        return _unmangled(name) or [name]
    plain = _without_brackets(name.replace("(anonymous namespace)::", ""))
    words = plain.split("(", maxsplit=1)[0].split()
    return words[-1].split("::") if words else [name]


def _without_brackets(name: str) -> str:
    """``name`` without template arguments, which may hold names, commas and brackets themselves."""
    depth, kept = 0, []
    for character in name:
        depth += character == "<"
        if depth == 0:
            kept.append(character)
        depth -= character == ">" and depth > 0
    return "".join(kept)


def _unmangled(name: str) -> List[str]:
    """The leading names of an Itanium-mangled symbol: ``_ZN2at6kernelIfEEvPf`` → ``at``, ``kernel``."""
    parts: List[str] = []
    rest = re.sub(r"^_ZN?[LK]?", "", name)
    while True:
        found = re.match(r"L?(\d+)", rest)
        if found is None:
            return parts
        length = int(found.group(1))
        part, rest = rest[found.end() : found.end() + length], rest[found.end() + length :]
        if not part.startswith("_GLOBAL__N_"):  # what an unnamed namespace is called
            parts.append(part)
        if not name.startswith("_ZN"):
            return parts


# ---- the device


@contextmanager
def _device_activity(platform: InsidePlatform, counted: Dict[str, List[int]]) -> Iterator[None]:
    """Add what the device does inside to ``counted``."""
    stop = platform.record_activity()
    try:
        yield
    finally:
        with suppress(Exception):  # a tracer that fails has seen nothing
            for name, spent_ns in stop():
                _count(counted, name, spent_ns)


# ---- Triton's interpreter


@contextmanager
def _interpreted_launches(counted: Dict[str, List[int]]) -> Iterator[None]:
    """Add launches through Triton's interpreter to ``counted``, with the time each takes."""
    executor = _grid_executor()
    if executor is None:
        yield
        return
    launch = executor.__call__

    def counting(self: Any, *arguments: Any, **options: Any) -> Any:
        started = time.perf_counter_ns()
        returned = launch(self, *arguments, **options)
        # Not of a launch that raised: nothing ran.
        _count(counted, getattr(self.fn, "__name__", "?"), time.perf_counter_ns() - started)
        return returned

    executor.__call__ = counting
    try:
        yield
    finally:
        executor.__call__ = launch


def _grid_executor() -> Optional[Any]:
    """The class that runs an interpreted kernel's grid; null where Triton's interpreter is not loaded."""
    return getattr(sys.modules.get("triton.runtime.interpreter"), "GridExecutor", None)


def _count(counted: Dict[str, List[int]], name: str, spent_ns: int) -> None:
    if len(counted) >= MAX_KERNELS and name not in counted:
        return
    entry = counted.setdefault(name, [0, 0])
    entry[0] += 1
    entry[1] += max(0, spent_ns)
