"""Links between the NVIDIA GPUs of a host, as NVML describes them.

An NVLink counts for a pair if its far end is the other GPU, or a switch. A virtual machine hides far ends, so that the
driver's statement whether the pair can use NVLink has the last word. All other pairs have PCIe in common, or only the
host's processors.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pynvml

from kernel_matrix.platforms import Gpu, GpuLink, holds_for_all
from kernel_matrix.platforms.cuda.nvml_calls import ask
from kernel_matrix.platforms.data_sheets import all_sheets

_READ = 0  # NVML_P2P_CAPS_INDEX_READ, which is a tuple by mistake in nvidia-ml-py

_BYTES_PER_LANE = {
    1: 2.5e9 * 8 / 10 / 8,
    2: 5e9 * 8 / 10 / 8,
    3: 8e9 * 128 / 130 / 8,
    4: 16e9 * 128 / 130 / 8,
    5: 32e9 * 128 / 130 / 8,
    6: 64e9 * 242 / 256 / 8,
}
"""Generation of PCIe → bytes per second of a lane in one direction: transfer rate × encoding, of its specification."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _LinkEnd:
    """One GPU with what NVML says of its connections."""

    gpu: Gpu
    handle: Any
    address: tuple[int, ...] | None
    """Address on the PCI bus."""
    far_ends: tuple[tuple[int, ...] | None, ...]
    """PCI address of the far end of each active NVLink; ``None`` if the driver hides it."""
    switches: int
    """How many of the far ends are switches."""
    nvlink_bytes_per_s: float | None
    """Bandwidth of one NVLink in one direction."""
    pcie_generation: int | None
    """Newest one that the GPU and its slot can have."""
    pcie_lanes: int | None


def with_links(gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
    """Return ``gpus``, each with its links to the others. NVML must be open; what it does not answer is ``None``."""
    if len(gpus) == 1:
        return tuple(gpus)
    ends = [_read_end(gpu) for gpu in gpus]
    return tuple(replace(end.gpu, links=tuple(_link(end, other) for other in ends if other is not end)) for end in ends)


def _read_end(gpu: Gpu) -> _LinkEnd:
    handle = _answer(pynvml.nvmlDeviceGetHandleByUUID, gpu.uuid)
    active = [
        link
        for link in range(pynvml.NVML_NVLINK_MAX_LINKS)
        if _answer(pynvml.nvmlDeviceGetNvLinkState, handle, link) == pynvml.NVML_FEATURE_ENABLED
    ]
    kinds = [_answer(pynvml.nvmlDeviceGetNvLinkRemoteDeviceType, handle, link) for link in active]
    return _LinkEnd(
        gpu=gpu,
        handle=handle,
        address=_address(_answer(pynvml.nvmlDeviceGetPciInfo, handle)),
        far_ends=tuple(_address(_answer(pynvml.nvmlDeviceGetNvLinkRemotePciInfo, handle, link)) for link in active),
        switches=kinds.count(pynvml.NVML_NVLINK_DEVICE_TYPE_SWITCH),
        nvlink_bytes_per_s=_nvlink_speed(handle) or _speed_of_sheet(gpu.name, len(active)),
        pcie_generation=_answer(pynvml.nvmlDeviceGetMaxPcieLinkGeneration, handle),
        pcie_lanes=_answer(pynvml.nvmlDeviceGetMaxPcieLinkWidth, handle),
    )


def _link(one: _LinkEnd, other: _LinkEnd) -> GpuLink:
    kind, lanes = _kind(one, other)
    rate: float | None = None
    if kind == "pcie":
        lanes = _least(one.pcie_lanes, other.pcie_lanes)
        rate = _BYTES_PER_LANE.get(_least(one.pcie_generation, other.pcie_generation) or 0)
    elif lanes:
        rate = one.nvlink_bytes_per_s
    accesses = (_can(one, other, capability) for capability in (_READ, pynvml.NVML_P2P_CAPS_INDEX_WRITE))
    return GpuLink(
        to=other.gpu.uuid,
        kind=kind,
        lanes=lanes,
        bytes_per_s=lanes * rate if lanes and rate else None,
        peer=holds_for_all(accesses),
    )


def _kind(one: _LinkEnd, other: _LinkEnd) -> tuple[str | None, int | None]:
    """Return the kind of link from one GPU to another, and the number of NVLinks if that is known."""
    direct = one.far_ends.count(other.address) if other.address is not None else 0
    can = _can(one, other, pynvml.NVML_P2P_CAPS_INDEX_NVLINK)
    if direct and can is not False:
        return "nvlink", direct
    if can:
        return ("nvswitch", one.switches) if one.switches else ("nvlink", None)
    ancestor = _answer(pynvml.nvmlDeviceGetTopologyCommonAncestor, one.handle, other.handle)
    if ancestor is None:
        return None, None
    return ("pcie" if ancestor <= pynvml.NVML_TOPOLOGY_HOSTBRIDGE else "host"), None


def _can(one: _LinkEnd, other: _LinkEnd, capability: int) -> bool | None:
    status = _answer(pynvml.nvmlDeviceGetP2PStatus, one.handle, other.handle, capability)
    return None if status in (None, pynvml.NVML_P2P_STATUS_UNKNOWN) else status == pynvml.NVML_P2P_STATUS_OK


def _nvlink_speed(handle: Any) -> float | None:
    """Return the bandwidth of an NVLink; the driver's field is in megabytes per second of one direction."""
    answers = _answer(pynvml.nvmlDeviceGetFieldValues, handle, [pynvml.NVML_FI_DEV_NVLINK_SPEED_MBPS_COMMON])
    if not answers or answers[0].nvmlReturn != pynvml.NVML_SUCCESS:
        return None
    return float(answers[0].value.uiVal) * 1e6 or None


def _speed_of_sheet(name: str, links: int) -> float | None:
    """Return what the data sheet says of one of ``links`` NVLinks; in a virtual machine the driver does not answer."""
    products = (sheet.product for sheet in all_sheets())
    both_directions = next((product.nvlink_bytes_per_s for product in products if name in product.names), None)
    return both_directions / 2 / links if both_directions and links else None


def _address(pci: Any) -> tuple[int, ...] | None:
    return None if pci is None else (pci.domain, pci.bus, pci.device)


def _least(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


def _answer(query: Callable[..., Any], *args: Any) -> Any:
    """Return the answer to ``query``; ``None`` for every failure, also of a GPU that is lost meanwhile."""
    try:
        return ask(query, *args).value
    except pynvml.NVMLError:
        return None
