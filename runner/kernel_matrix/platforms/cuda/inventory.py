"""Inventory of this host's NVIDIA GPUs."""

from __future__ import annotations

import pynvml

from kernel_matrix.errors import InfrastructureError
from kernel_matrix.platforms import Gpu, PlatformInventory
from kernel_matrix.platforms.cuda.links import with_links
from kernel_matrix.platforms.cuda.nvml_calls import opened, translated, value_of


def inventory() -> PlatformInventory:
    """Return all NVIDIA GPUs of this host in the driver's order; without a usable driver none, but a reason."""
    try:
        with opened(), translated("NVML"):
            return _read_inventory()
    except InfrastructureError as error:
        return PlatformInventory(reason=_describe(error))


def _read_inventory() -> PlatformInventory:
    driver = value_of(pynvml.nvmlSystemGetDriverVersion)
    cuda = _cuda_version(value_of(pynvml.nvmlSystemGetCudaDriverVersion))
    answers = [_try_gpu(index, driver=driver, cuda_driver=cuda) for index in range(pynvml.nvmlDeviceGetCount())]
    reasons = [answer for answer in answers if isinstance(answer, str)]
    if not answers:
        reasons = [f"the NVIDIA driver {driver or ''} sees no GPU; look for `NVRM` in `dmesg`"]
    gpus = [answer for answer in answers if isinstance(answer, Gpu)]
    return PlatformInventory(gpus=with_links(gpus), reason="; ".join(reasons))


def _try_gpu(index: int, *, driver: str | None, cuda_driver: str | None) -> Gpu | str:
    """Return the GPU at ``index``, or the reason why it cannot be used; other GPUs still can."""
    try:
        return _read_gpu(index, driver=driver, cuda_driver=cuda_driver)
    except InfrastructureError as error:
        return _describe(error)


def _read_gpu(index: int, *, driver: str | None, cuda_driver: str | None) -> Gpu:
    with translated(f"GPU {index}"):
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        capability = value_of(pynvml.nvmlDeviceGetCudaComputeCapability, handle)
        memory = value_of(pynvml.nvmlDeviceGetMemoryInfo, handle)
        return Gpu(
            platform="cuda",
            uuid=pynvml.nvmlDeviceGetUUID(handle),
            name=pynvml.nvmlDeviceGetName(handle),
            index=index,
            minor=value_of(pynvml.nvmlDeviceGetMinorNumber, handle),
            compute_capability=None if capability is None else "{}.{}".format(*capability),
            memory_bytes=0 if memory is None else memory.total,
            driver=driver,
            cuda_driver=cuda_driver,
        )


def _describe(error: InfrastructureError) -> str:
    return f"{error.what}: {error.next_step}"


def _cuda_version(number: int | None) -> str | None:
    """Translate NVML's number of a CUDA version: 13000 is ``13.0``."""
    return None if number is None else f"{number // 1000}.{number % 1000 // 10}"
