"""NVIDIA GPUs. Only :mod:`kernel_matrix.platforms.cuda.settings` changes a device."""

from kernel_matrix.platforms import CostFigures
from kernel_matrix.platforms.cuda.clocks import clock_choices
from kernel_matrix.platforms.cuda.details import details
from kernel_matrix.platforms.cuda.device_access import container_access, process_access
from kernel_matrix.platforms.cuda.doctor_access import examine_access
from kernel_matrix.platforms.cuda.doctor_driver import examine_driver
from kernel_matrix.platforms.cuda.doctor_toolkit import examine_toolkit
from kernel_matrix.platforms.cuda.inventory import inventory
from kernel_matrix.platforms.cuda.modes import MPS_SERVER, modes
from kernel_matrix.platforms.cuda.nvml_calls import opened
from kernel_matrix.platforms.cuda.processes import processes
from kernel_matrix.platforms.cuda.sanitizer_output import sanitizer_report
from kernel_matrix.platforms.cuda.settings import settings
from kernel_matrix.platforms.cuda.telemetry import clocks, sampler, snapshot
from kernel_matrix.platforms.cuda.toolchains import (
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

VENDOR = "nvidia"
TITLE = "NVIDIA GPU"
IS_ACCELERATOR = True
PROVEN = True
LINK_KINDS = ("nvswitch", "nvlink", "pcie", "host")
"""``host``: the way leads through the host's processors, beyond one PCIe host bridge."""
NEEDS_IMAGES = True
SANITIZER = "kernel_matrix.platforms.cuda.inside.sanitized"
ACCESS_ADVICE = "install the NVIDIA container toolkit (`nvidia-ctk runtime configure`) and restart the daemon"
DAEMON_ERRORS = (
    ("could not select device driver", "the daemon cannot give GPUs to containers", ACCESS_ADVICE),
    (
        "CDI device",  # "CDI device injection failed" of Docker, "unresolvable CDI devices" of Podman
        "the daemon's CDI specification no longer matches this machine's GPUs",
        "renew it: `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
    ),
)
HIDDEN = {"NVIDIA_VISIBLE_DEVICES": "void", "NVIDIA_DRIVER_CAPABILITIES": "compute,utility"}
HIDDEN_IN_PROCESS = {"CUDA_VISIBLE_DEVICES": ""}
CACHES = {"CUDA_CACHE_PATH": "cuda"}
PROGRAM_FOLDERS = ("/usr/local/cuda/bin",)
SHARING_SERVER = MPS_SERVER
DIVISION = "MIG"
ADVICE = {
    "persistence": "run nvidia-persistenced (or nvidia-smi -pm 1)",
    "ecc": "see nvidia-smi -q -d ECC,ROW_REMAPPER",
    "mig": "nvidia-smi --mig 0 (as root, on an idle GPU)",
    "mps": "echo quit | nvidia-cuda-mps-control",
    "compute_mode": "nvidia-smi --compute-mode 0",
    "settings": "`nvidia-smi -i {uuid} -rgc` and `nvidia-smi -i {uuid} -rmc` and `nvidia-smi -i {uuid} -c 0`",
}
COST = CostFigures(start_s=1.5, call_s=0.03, timed_call_s=0.0025)
"""Typical times on an H200. The start is short because torch is imported before it is the session's turn."""

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
