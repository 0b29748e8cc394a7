"""Inside half of the platform of AMD GPUs. So far it only compiles: no cell runs on such a device yet."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Callable, NoReturn, Sequence, Tuple

from kernel_matrix.inside.platform import DeviceError, DeviceHealth
from kernel_matrix.inside.platform_defaults import *  # noqa: F403  # members that are not there yet
from kernel_matrix.platforms.rocm.inside.build.machine_code import kernels_in as kernels_in

if TYPE_CHECKING:
    from kernel_matrix.inside.build.call_forms import CallForm, CompiledAhead, CompileTarget
    from kernel_matrix.inside.memory import Arena
    from kernel_matrix.model.enums import Dtype

TORCH_DEVICE = "cuda"
"""Name of AMD GPUs in torch, too."""
IS_ACCELERATOR = True
NEEDS_DEVICE = ("No HIP GPUs are available", "Found no NVIDIA driver")
COLLECTIVES = "nccl"

# Each module is imported by the function that needs it, because most of them import torch.
# ruff: noqa: PLC0415


def transport() -> str:
    """Return that there is none yet."""
    return "none"


def create_arena(nbytes: int) -> Arena:  # noqa: ARG001  # part of the protocol
    """Raise: no memory can be shared yet."""
    _refuse()


def open_arena(descriptor: int, nbytes: int) -> Arena:  # noqa: ARG001  # part of the protocol
    """Raise: no memory can be shared yet."""
    _refuse()


def make_timer() -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
    """Raise: no call can be timed yet."""
    _refuse()


def check_health(seconds: float) -> DeviceHealth:  # noqa: ARG001  # part of the protocol
    """Return that the device could not be checked."""
    return DeviceHealth(None, _NOT_YET, None, 0.0)


def product_sizes() -> Sequence[int]:
    """Return sizes of matrix products that fill every compute unit."""
    return (4096, 8192)


def buffer_bytes() -> int:
    """Return several times the Infinity Cache of 256 MiB."""
    return 1 << 30


def compile_ahead(  # type: ignore[no-redef]  # in place of the default
    source: Path, entry: str, forms: Sequence[CallForm], dtype: Dtype, target: CompileTarget
) -> CompiledAhead:
    """Compile Triton kernels under a fake driver that only knows its target."""
    from kernel_matrix.platforms.rocm.inside.build.triton_target import compile_ahead as compile_all

    return compile_all(source, entry, forms, dtype, target)


_NOT_YET = "candidates are only compiled for AMD GPUs so far"


def _refuse() -> NoReturn:
    raise DeviceError(_NOT_YET)
