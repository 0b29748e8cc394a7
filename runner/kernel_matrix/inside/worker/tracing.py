"""Trace of the kernels that one call runs, made in the process that makes the call.

Like a time, a trace is a claim, because the traced code runs in the same process. On a GPU the platform's tracer is
used; on a CPU, where Triton's interpreter stands for the device, launches are counted as they are made.
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
"""Namespaces of libraries, whose kernels are never a candidate's own, whatever their name."""

_SPECIALISATION = re.compile(r"(_\d+(de|dc|d|e|c)?)*(_?\d+(de|dc|d|e|c))*")
"""Suffix that older Tritons append to a kernel's name: ``softmax_kernel_0d1d2de``."""


def trace(function: Callable[[], Any], platform: InsidePlatform) -> Tuple[Any, Kernels]:
    """Call ``function`` once with a tracer attached.

    Returns:
        Its result, and its kernels, at most :data:`~kernel_matrix.inside.wire.MAX_KERNELS`; no kernels if none ran or
        none could be traced.

    Raises:
        Exception: Any exception of ``function``. Tracing itself never raises.
    """
    counted: Dict[str, List[int]] = {}
    with _interpreted_launches(counted), _device_activity(platform, counted):
        returned = function()
    kernels = [(name, launches, spent_ns) for name, (launches, spent_ns) in counted.items()]
    return returned, sorted(kernels, key=lambda kernel: -kernel[2])[:MAX_KERNELS]


def own(name: str, own_kernels: Sequence[str]) -> bool:
    """Return whether a kernel traced as ``name`` is one of ``own_kernels``.

    Args:
        name: Name given by the tracer: ``void softmax_kernel<float>(float const*, int)``, its mangled form, or a Triton
            kernel's name with a suffix for a specialisation.
        own_kernels: Names of the kernels that the candidate's source defines.
    """
    *namespaces, base = _path(name)
    if namespaces and namespaces[0] in _LIBRARIES:
        return False
    return any(base == mine or _is_specialised(base, mine) for mine in own_kernels)


def _is_specialised(base: str, mine: str) -> bool:
    return base.startswith(mine) and _SPECIALISATION.fullmatch(base[len(mine) :]) is not None


def _path(name: str) -> List[str]:
    """Return the namespaces of a kernel and its bare name."""
    if name.startswith("_Z"):
        return _unmangled(name) or [name]
    plain = _without_brackets(name.replace("(anonymous namespace)::", ""))
    words = plain.split("(", maxsplit=1)[0].split()
    return words[-1].split("::") if words else [name]


def _without_brackets(name: str) -> str:
    """Return ``name`` without template arguments, which may contain names, commas and brackets themselves."""
    depth, kept = 0, []
    for character in name:
        depth += character == "<"
        if depth == 0:
            kept.append(character)
        depth -= character == ">" and depth > 0
    return "".join(kept)


def _unmangled(name: str) -> List[str]:
    """Return the leading names of an Itanium-mangled symbol: ``_ZN2at6kernelIfEEvPf`` → ``at``, ``kernel``."""
    parts: List[str] = []
    rest = re.sub(r"^_ZN?[LK]?", "", name)
    while True:
        found = re.match(r"L?(\d+)", rest)
        if found is None:
            return parts
        length = int(found.group(1))
        part, rest = rest[found.end() : found.end() + length], rest[found.end() + length :]
        if not part.startswith("_GLOBAL__N_"):  # the mangled name of an unnamed namespace
            parts.append(part)
        if not name.startswith("_ZN"):
            return parts


# ---- the device


@contextmanager
def _device_activity(platform: InsidePlatform, counted: Dict[str, List[int]]) -> Iterator[None]:
    """Add the device's activity during the context to ``counted``."""
    stop = platform.record_activity()
    try:
        yield
    finally:
        with suppress(Exception):  # a tracer that fails has recorded nothing
            for name, spent_ns in stop():
                _count(counted, name, spent_ns)


# ---- Triton's interpreter


@contextmanager
def _interpreted_launches(counted: Dict[str, List[int]]) -> Iterator[None]:
    """Add launches through Triton's interpreter during the context to ``counted``, with the time of each."""
    executor = _grid_executor()
    if executor is None:
        yield
        return
    launch = executor.__call__

    def counting(self: Any, *arguments: Any, **options: Any) -> Any:
        started = time.perf_counter_ns()
        returned = launch(self, *arguments, **options)
        # A launch that raised has run nothing.
        _count(counted, getattr(self.fn, "__name__", "?"), time.perf_counter_ns() - started)
        return returned

    executor.__call__ = counting
    try:
        yield
    finally:
        executor.__call__ = launch


def _grid_executor() -> Optional[Any]:
    """Return the class that runs an interpreted kernel's grid; ``None`` if Triton's interpreter is not loaded."""
    return getattr(sys.modules.get("triton.runtime.interpreter"), "GridExecutor", None)


def _count(counted: Dict[str, List[int]], name: str, spent_ns: int) -> None:
    if len(counted) >= MAX_KERNELS and name not in counted:
        return
    entry = counted.setdefault(name, [0, 0])
    entry[0] += 1
    entry[1] += max(0, spent_ns)
