"""Environment inside that is specific to CUDA: the driver, its libraries and the GPU."""

from __future__ import annotations

import ctypes
from typing import Mapping, Optional

import torch

from kernel_matrix.inside.environment import read_tools
from kernel_matrix.inside.loaded_libraries import mapped_library


def describe() -> Mapping[str, Optional[str]]:
    """Return the fields of the environment that are about CUDA and the GPU."""
    properties = torch.cuda.get_device_properties(0)
    return {
        "cudnn": _cudnn_version(),
        "nvcc": read_tools()["nvcc"],
        "cuda_driver": _driver_version(),
        "libcuda": _path_of_libcuda(),
        "device_name": str(torch.cuda.get_device_name(0)),
        "compute_capability": f"{properties.major}.{properties.minor}",
    }


def _cudnn_version() -> Optional[str]:
    version = torch.backends.cudnn.version()
    return None if version is None else str(version)


def _driver_version() -> Optional[str]:
    version = ctypes.c_int()
    try:
        code = ctypes.CDLL("libcuda.so.1").cuDriverGetVersion(ctypes.byref(version))
    except OSError:
        return None
    return f"{version.value // 1000}.{version.value % 1000 // 10}" if code == 0 else None


def _path_of_libcuda() -> Optional[str]:
    path = mapped_library(r"libcuda\.so.*")
    return None if path is None else str(path)
