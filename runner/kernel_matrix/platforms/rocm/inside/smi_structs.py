"""Structures of AMD's management library, as far as this program reads them.

Their layouts are those of ``amdsmi.h`` of the library's version 26 (ROCm 7). Version 25 (ROCm 6.4) has the same ones up
to the last member that is read here; older versions differ. Releases add members at the end, so that every structure
has room behind it.
"""

from __future__ import annotations

from ctypes import Structure, c_char, c_ubyte, c_uint16, c_uint32, c_uint64
from typing import Any

KNOWN_VERSIONS = (25, 26)
"""First numbers of the library's versions that have these layouts."""

_TEXT = c_char * 256
_ROOM = c_ubyte * 4096


class AsicInfo(Structure):
    """``amdsmi_asic_info_t``."""

    _fields_ = (
        ("market_name", _TEXT),
        ("vendor_id", c_uint32),
        ("vendor_name", _TEXT),
        ("subvendor_id", c_uint32),
        ("device_id", c_uint64),
        ("rev_id", c_uint32),
        ("asic_serial", _TEXT),
        ("oam_id", c_uint32),
        ("num_of_compute_units", c_uint32),
        ("target_graphics_version", c_uint64),
        ("room", _ROOM),
    )


class DriverInfo(Structure):
    """``amdsmi_driver_info_t``."""

    _fields_ = (("driver_version", _TEXT), ("room", _ROOM))


class EnumerationInfo(Structure):
    """``amdsmi_enumeration_info_t``."""

    _fields_ = (("drm_render", c_uint32), ("room", _ROOM))


class ClockInfo(Structure):
    """``amdsmi_clk_info_t``, in MHz."""

    _fields_ = (("clk", c_uint32), ("min_clk", c_uint32), ("max_clk", c_uint32), ("room", _ROOM))


class PowerCap(Structure):
    """``amdsmi_power_cap_info_t``, in microwatts."""

    _fields_ = (
        ("power_cap", c_uint64),
        ("default_power_cap", c_uint64),
        ("dpm_cap", c_uint64),
        ("min_power_cap", c_uint64),
        ("max_power_cap", c_uint64),
        ("room", _ROOM),
    )


class ErrorCount(Structure):
    """``amdsmi_error_count_t``."""

    _fields_ = (("correctable_count", c_uint64), ("uncorrectable_count", c_uint64), ("room", _ROOM))


class ProcessInfo(Structure):
    """``amdsmi_proc_info_t``. Its size is exact, because the library fills an array of them."""

    _fields_ = (("name", _TEXT), ("pid", c_uint32), ("others", c_uint64 * 55))


class GpuMetrics(Structure):
    """``amdsmi_gpu_metrics_t``: °C, percent, watts, MHz; counters in cycles of the device's firmware."""

    _fields_ = (
        ("header", c_uint16 * 2),
        ("temperature_edge", c_uint16),
        ("temperature_hotspot", c_uint16),
        ("temperatures", c_uint16 * 4),
        ("average_gfx_activity", c_uint16),
        ("activities", c_uint16 * 2),
        ("average_socket_power", c_uint16),
        ("energy_and_time", c_uint64 * 2),
        ("average_clocks", c_uint16 * 7),
        ("current_gfxclk", c_uint16),
        ("current_socclk", c_uint16),
        ("current_uclk", c_uint16),
        ("video_clocks", c_uint16 * 4),
        ("throttle_status", c_uint32),
        ("fan_and_link", c_uint16 * 3),
        ("activity_counters", c_uint32 * 2),
        ("temperature_hbm", c_uint16 * 4),
        ("firmware_timestamp", c_uint64),
        ("voltages", c_uint16 * 3),
        ("indep_throttle_status", c_uint64),
        ("current_socket_power", c_uint16),
        ("vcn_activity", c_uint16 * 4),
        ("gfxclk_lock_status", c_uint32),
        ("xgmi_link", c_uint16 * 2),
        ("pcie_counters", c_uint64 * 5),
        ("xgmi_counters", c_uint64 * 16),
        ("clocks_of_parts", c_uint16 * 20),
        ("jpeg_activity", c_uint16 * 32),
        ("pcie_nak_counters", c_uint32 * 2),
        ("accumulation_counter", c_uint64),
        ("prochot_residency_acc", c_uint64),
        ("ppt_residency_acc", c_uint64),
        ("socket_thm_residency_acc", c_uint64),
        ("vr_thm_residency_acc", c_uint64),
        ("hbm_thm_residency_acc", c_uint64),
        ("room", c_ubyte * 8192),
    )


def member(structure: Structure, name: str) -> Any:
    """Return a member of a structure; ``None`` for a number whose bits are all ones, which means "not reported"."""
    value = getattr(structure, name)
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return None if value == (1 << 8 * getattr(type(structure), name).size) - 1 else value
