"""Software versions and settings inside the container, as found."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import platform
import re
import shutil
import subprocess
from functools import lru_cache
from pathlib import Path
from typing import Dict, Optional

import torch

from kernel_matrix.inside.loaded_libraries import mapped_library
from kernel_matrix.model.messages import InsideEnvironment

_SETTINGS = ("TRITON_DEFAULT_FP_FUSION", "TRITON_INTERPRET", "CUBLAS_WORKSPACE_CONFIG", "TORCH_CUDA_ARCH_LIST")


def read_environment(device: str) -> InsideEnvironment:
    """Return versions and settings; None for what is absent."""
    cuda = device == "cuda"
    tools = read_tools()
    properties = torch.cuda.get_device_properties(0) if cuda else None
    libcuda = mapped_library(r"libcuda\.so.*") if cuda else None
    return InsideEnvironment(
        python=platform.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        cudnn=_cudnn_version() if cuda else None,
        triton=_installed_version("triton"),
        ptxas=tools["ptxas"],
        nvcc=tools["nvcc"] if cuda else None,
        cuda_driver=_driver_version() if cuda else None,
        libcuda=None if libcuda is None else str(libcuda),
        device_name=device_name(device),
        compute_capability=f"{properties.major}.{properties.minor}" if properties is not None else None,
        l2_bytes=l2_bytes(device) or None,
        platform=platform.platform(),
        libc="-".join(platform.libc_ver()),
        threads=torch.get_num_threads(),
        settings=_settings(),
    )


@lru_cache(maxsize=None)
def read_tools() -> Dict[str, Optional[str]]:
    """Return the versions of the compilers, None if absent; cached, since each query starts a process."""
    found = {"ptxas": _bundled_ptxas() or shutil.which("ptxas"), "nvcc": shutil.which("nvcc")}
    return {name: _tool_version(path) for name, path in found.items()}


def device_name(device: str) -> str:
    """Return the device's name: a GPU's from its driver, a CPU's from the system."""
    if device == "cuda":
        return str(torch.cuda.get_device_name(0))
    return platform.processor() or platform.machine()


def l2_bytes(device: str) -> int:
    """Return the size of the device's L2 cache in bytes; 0 for a CPU, whose caches are not flushed here."""
    if device != "cuda":
        return 0
    return int(getattr(torch.cuda.get_device_properties(0), "L2_cache_size", 0)) or (64 << 20)


def _settings() -> Dict[str, str]:
    found = {name: os.environ[name] for name in _SETTINGS if name in os.environ}
    found["matmul_allow_tf32"] = str(torch.backends.cuda.matmul.allow_tf32).lower()
    found["cudnn_allow_tf32"] = str(torch.backends.cudnn.allow_tf32).lower()
    return found


def _cudnn_version() -> Optional[str]:
    version = torch.backends.cudnn.version()
    return None if version is None else str(version)


def _installed_version(package: str) -> Optional[str]:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def _bundled_ptxas() -> Optional[str]:
    """Return the path of Triton's own ``ptxas``, which compiles its kernels even if the image has another one."""
    try:
        files = importlib.metadata.files("triton") or []
    except importlib.metadata.PackageNotFoundError:
        return None
    paths = [file.locate() for file in files if file.name == "ptxas"]
    return str(paths[0]) if paths and Path(str(paths[0])).exists() else None


def _tool_version(tool: Optional[str]) -> Optional[str]:
    if tool is None:
        return None
    try:
        done = subprocess.run([tool, "--version"], capture_output=True, text=True, timeout=10, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    found = re.search(r"V(\d+\.\d+\.\d+)", done.stdout)
    return found.group(1) if found else None


def _driver_version() -> Optional[str]:
    version = ctypes.c_int()
    try:
        code = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}" if code == 0 else None
