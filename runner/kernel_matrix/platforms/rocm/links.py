"""Links between the AMD GPUs of a host, as AMD's library describes them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from ctypes import byref, c_bool, c_uint32, c_uint64, c_void_p
from dataclasses import replace
from typing import Any

from kernel_matrix.platforms import Gpu, GpuLink
from kernel_matrix.platforms.rocm.inside import smi_library
from kernel_matrix.platforms.rocm.inside.smi_library import SmiError

_PCIE, _XGMI = 1, 2
"""Types of link: in ``amdsmi_io_link_type_t``, and also in ``amdsmi_link_type_t``, which took its place in ROCm 7."""

_SAME_CPU_HOPS = 2
"""Hops of the library between devices at one CPU node; there are more across CPU nodes."""


def with_links(gpus: Sequence[Gpu], handles: Sequence[c_void_p]) -> tuple[Gpu, ...]:
    """Return ``gpus``, which have these handles, each with its links to the others.

    The library must be open; what it does not answer is ``None``.
    """
    if len(gpus) == 1:
        return tuple(gpus)
    ends = list(zip(gpus, handles, strict=True))
    return tuple(
        replace(gpu, links=tuple(_link(handle, to, other) for other, to in ends if other is not gpu))
        for gpu, handle in ends
    )


def _link(handle: c_void_p, to: c_void_p, other: Gpu) -> GpuLink:
    kind, bandwidth = _answer(_kind, handle, to), _answer(_bandwidth, handle, to)
    lanes, bytes_per_s = bandwidth if bandwidth is not None and kind == "xgmi" else (None, None)
    return GpuLink(
        to=other.uuid, kind=kind, lanes=lanes, bytes_per_s=bytes_per_s, peer=_answer(_has_access, handle, to)
    )


def _kind(handle: c_void_p, to: c_void_p) -> str | None:
    hops, kind = c_uint64(), c_uint32()
    smi_library.call("amdsmi_topo_get_link_type", handle, to, byref(hops), byref(kind))
    if kind.value == _PCIE:
        return "pcie" if hops.value <= _SAME_CPU_HOPS else "host"
    return "xgmi" if kind.value == _XGMI else None


def _bandwidth(handle: c_void_p, to: c_void_p) -> tuple[int | None, float | None]:
    """Return the number of XGMI links and their bandwidth together.

    The library passes on what the kernel driver has in ``/sys/class/kfd``: megabytes per second in one direction, the
    least of one link and the most of all links to the other device.
    """
    least, most = c_uint64(), c_uint64()
    smi_library.call("amdsmi_get_minmax_bandwidth_between_processors", handle, to, byref(least), byref(most))
    links = most.value // least.value if least.value else None
    return links, most.value * 1e6 or None


def _has_access(handle: c_void_p, to: c_void_p) -> bool:
    accessible = c_bool()
    smi_library.call("amdsmi_is_P2P_accessible", handle, to, byref(accessible))
    return accessible.value


def _answer(query: Callable[[c_void_p, c_void_p], Any], handle: c_void_p, to: c_void_p) -> Any:
    """Return the answer to ``query``; ``None`` for every failure, also of a GPU that is lost meanwhile."""
    with suppress(SmiError):
        return query(handle, to)
    return None
