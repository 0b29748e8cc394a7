"""Software versions and settings inside the container, as found."""

from __future__ import annotations

import importlib.metadata
import os
import platform as host
import re
import shutil
import subprocess
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Dict, Optional

import torch

from kernel_matrix.inside.platform import InsidePlatform
from kernel_matrix.model.messages import InsideEnvironment

_SETTINGS = ("TRITON_DEFAULT_FP_FUSION", "TRITON_INTERPRET", "CUBLAS_WORKSPACE_CONFIG", "TORCH_CUDA_ARCH_LIST")


def read_environment(platform: InsidePlatform) -> InsideEnvironment:
    """Return versions and settings; None for what is absent."""
    found = InsideEnvironment(
        python=host.python_version(),
        torch=str(torch.__version__),
        cuda=torch.version.cuda,
        cudnn=None,
        triton=_installed_version("triton"),
        ptxas=read_tools()["ptxas"],
        nvcc=None,
        cuda_driver=None,
        libcuda=None,
        device_name=host.processor() or host.machine(),
        compute_capability=None,
        l2_bytes=platform.cache_bytes() or None,
        platform=host.platform(),
        libc="-".join(host.libc_ver()),
        threads=torch.get_num_threads(),
        settings=_settings(),
    )
    return replace(found, **platform.describe())  # type: ignore[arg-type]  # names and types are those of the class


@lru_cache(maxsize=None)
def read_tools() -> Dict[str, Optional[str]]:
    """Return the versions of the compilers, None if absent; cached, since each query starts a process."""
    found = {"ptxas": _bundled_ptxas() or shutil.which("ptxas"), "nvcc": shutil.which("nvcc")}
    return {name: _tool_version(path) for name, path in found.items()}


def _settings() -> Dict[str, str]:
    found = {name: os.environ[name] for name in _SETTINGS if name in os.environ}
    found["matmul_allow_tf32"] = str(torch.backends.cuda.matmul.allow_tf32).lower()
    found["cudnn_allow_tf32"] = str(torch.backends.cudnn.allow_tf32).lower()
    return found


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
