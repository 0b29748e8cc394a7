"""AMD GPUs. What runs on them was tested on a simulated driver alone.

Only :mod:`kernel_matrix.platforms.rocm.settings` changes a device.
"""

from __future__ import annotations

from collections.abc import Mapping

from kernel_matrix.platforms import CostFigures
from kernel_matrix.platforms.defaults import (
    CACHES,
    PROVEN,
    SANITIZER,
    SHARING_SERVER,
    examine_toolkit,
    sanitizer_report,
)
from kernel_matrix.platforms.rocm.clocks import clock_choices
from kernel_matrix.platforms.rocm.details import details
from kernel_matrix.platforms.rocm.device_access import VISIBLE, container_access, process_access
from kernel_matrix.platforms.rocm.doctor_access import ADVICE as ACCESS_ADVICE
from kernel_matrix.platforms.rocm.doctor_access import examine_access
from kernel_matrix.platforms.rocm.doctor_driver import examine_driver
from kernel_matrix.platforms.rocm.inventory import inventory
from kernel_matrix.platforms.rocm.modes import modes
from kernel_matrix.platforms.rocm.processes import processes
from kernel_matrix.platforms.rocm.settings import settings
from kernel_matrix.platforms.rocm.smi_calls import opened
from kernel_matrix.platforms.rocm.telemetry import clocks, sampler, snapshot
from kernel_matrix.platforms.rocm.toolchains import (
    PROGRAMS,
    code_skip_reason,
    compile_limits,
    compile_settings,
    compile_target,
    compiles,
    driver_note,
    driver_skip_reason,
    dtype_skip_reason,
    interprets,
    language_skip_reason,
    launch_failure_reason,
    local_compiler,
    occupancy,
    toolchain_gaps,
)

VENDOR = "amd"
TITLE = "AMD GPU"
IS_ACCELERATOR = True
LINK_KINDS = ("xgmi", "pcie", "host")
"""``host``: the way leads from one of the host's processors to another one."""
NEEDS_IMAGES = True
DAEMON_ERRORS = (
    (
        "CDI device",  # "CDI device injection failed" of Docker, "unresolvable CDI devices" of Podman
        "the daemon's CDI specification no longer matches this machine's GPUs",
        "renew it: `amd-ctk cdi generate --output=/etc/cdi/amd.json`",
    ),
    ('custom device "/dev/kfd"', "the daemon's machine has no AMD driver", ACCESS_ADVICE),
)
HIDDEN = {"AMD_VISIBLE_DEVICES": "none"}
HIDDEN_IN_PROCESS = {VISIBLE: ""}
PROGRAM_FOLDERS = (PROGRAMS,)
COST = CostFigures(start_s=1.5, call_s=0.03, timed_call_s=0.0025)
"""Those of NVIDIA GPUs; none were measured."""
DIVISION = "compute partitions"
ADVICE: Mapping[str, str] = {
    "ecc": "see amd-smi metric --ecc",
    "mig": "amd-smi set --compute-partition SPX (as root, on an idle GPU)",
    "settings": "`amd-smi reset --perf-determinism`",
}


__all__ = [
    "ACCESS_ADVICE",
    "ADVICE",
    "CACHES",
    "COST",
    "DAEMON_ERRORS",
    "DIVISION",
    "HIDDEN",
    "HIDDEN_IN_PROCESS",
    "IS_ACCELERATOR",
    "LINK_KINDS",
    "NEEDS_IMAGES",
    "PROGRAM_FOLDERS",
    "PROVEN",
    "SANITIZER",
    "SHARING_SERVER",
    "TITLE",
    "VENDOR",
    "clock_choices",
    "clocks",
    "code_skip_reason",
    "compile_limits",
    "compile_settings",
    "compile_target",
    "compiles",
    "container_access",
    "details",
    "driver_note",
    "driver_skip_reason",
    "dtype_skip_reason",
    "examine_access",
    "examine_driver",
    "examine_toolkit",
    "interprets",
    "inventory",
    "language_skip_reason",
    "launch_failure_reason",
    "local_compiler",
    "modes",
    "occupancy",
    "opened",
    "process_access",
    "processes",
    "sampler",
    "sanitizer_report",
    "settings",
    "snapshot",
    "toolchain_gaps",
]
