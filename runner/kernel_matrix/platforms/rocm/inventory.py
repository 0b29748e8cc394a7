"""Inventory of this host's AMD GPUs."""

from __future__ import annotations

from ctypes import c_uint64, c_void_p
from pathlib import Path

from kernel_matrix.errors import InfrastructureError
from kernel_matrix.platforms import Gpu, PlatformInventory
from kernel_matrix.platforms.rocm.inside import smi_library
from kernel_matrix.platforms.rocm.inside.smi_library import SmiError, SmiStatus, number, reported, structure
from kernel_matrix.platforms.rocm.inside.smi_structs import AsicInfo, DriverInfo, EnumerationInfo, member
from kernel_matrix.platforms.rocm.links import with_links
from kernel_matrix.platforms.rocm.smi_calls import opened, translated, value_of

_PCI_DEVICES = Path("/sys/bus/pci/devices")
_RENDER = "renderD"
_VRAM = 0


def inventory() -> PlatformInventory:
    """Return all AMD GPUs of this host in the driver's order; without a usable driver none, but a reason."""
    try:
        with opened(), translated("AMD SMI"):
            return _read_inventory()
    except InfrastructureError as error:
        return PlatformInventory(reason=_describe(error))


def llvm_target(handle: c_void_p) -> str:
    """Return the target for which LLVM compiles, such as ``gfx942``. The library has its digits as a number, 0x942."""
    asic = structure("amdsmi_get_gpu_asic_info", AsicInfo, handle)
    return f"gfx{reported(asic, 'target_graphics_version'):x}"


def pci_address(handle: c_void_p) -> str:
    """Return the device's address on the bus, such as ``0000:65:00.0``."""
    packed = number("amdsmi_get_gpu_device_bdf", c_uint64, handle)
    return f"{packed >> 16:04x}:{packed >> 8 & 0xFF:02x}:{packed >> 3 & 0x1F:02x}.{packed & 7}"


def render_node(folder: Path) -> int:
    """Return the number N of ``/dev/dri/renderDN`` of the device with this folder of sysfs.

    Raises:
        SmiError: if it has none.
    """
    for node in folder.glob(f"drm/{_RENDER}*"):
        return int(node.name.removeprefix(_RENDER))
    raise SmiError(SmiStatus.NOT_REPORTED, str(folder))


def memory_bytes(handle: c_void_p, which: str) -> int:
    """Return the ``total`` memory of the device, or the ``usage`` of it."""
    return number(f"amdsmi_get_gpu_memory_{which}", c_uint64, handle, _VRAM)


def _read_inventory() -> PlatformInventory:
    handles = smi_library.devices()
    answers = [_try_gpu(index, handle) for index, handle in enumerate(handles)]
    reasons = [answer for answer in answers if isinstance(answer, str)]
    if not answers:
        reasons = ["the AMD driver sees no GPU; look for `amdgpu` in `dmesg`"]
    gpus = [answer for answer in answers if isinstance(answer, Gpu)]
    linked = with_links(gpus, [handles[gpu.index] for gpu in gpus])
    return PlatformInventory(gpus=linked, reason="; ".join(reasons))


def _try_gpu(index: int, handle: c_void_p) -> Gpu | str:
    """Return the GPU at ``index``, or the reason why it cannot be used; other GPUs still can."""
    try:
        with translated(f"GPU {index}"):
            return _read_gpu(index, handle)
    except InfrastructureError as error:
        return _describe(error)


def _read_gpu(index: int, handle: c_void_p) -> Gpu:
    return Gpu(
        platform="rocm",
        uuid=smi_library.uuid(handle),
        name=value_of(_name, handle) or "AMD GPU",
        index=index,
        minor=value_of(_minor, handle),
        compute_capability=value_of(llvm_target, handle),
        memory_bytes=value_of(memory_bytes, handle, "total") or 0,
        driver=value_of(_driver, handle),
    )


def _name(handle: c_void_p) -> str:
    return str(member(structure("amdsmi_get_gpu_asic_info", AsicInfo, handle), "market_name"))


def _driver(handle: c_void_p) -> str:
    return str(member(structure("amdsmi_get_gpu_driver_info", DriverInfo, handle), "driver_version"))


def _minor(handle: c_void_p) -> int:
    info = value_of(structure, "amdsmi_get_gpu_enumeration_info", EnumerationInfo, handle)
    found = None if info is None else member(info, "drm_render")
    return render_node(_PCI_DEVICES / pci_address(handle)) if found is None else int(found)


def _describe(error: InfrastructureError) -> str:
    return f"{error.what}: {error.next_step}"
