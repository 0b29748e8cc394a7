"""Call forms: the arguments of a model's calls without their values, as needed to compile ahead of time."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, List, Mapping, Tuple

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from kernel_matrix.inside.arguments import encode_arguments
from kernel_matrix.inside.input_generation import cast, draw_inputs
from kernel_matrix.inside.memory import dtype_name
from kernel_matrix.inside.source_module import import_file
from kernel_matrix.model.enums import Dtype, InputMode


@dataclass(frozen=True)
class CompileTarget:
    """A device to compile for."""

    arch: str
    """What the compiler is told: a compute capability (``9.0`` or ``9.0a``), or a name such as ``gfx942``."""
    shared_bytes: int = 99 << 10
    """Most shared memory that a block may have; given to a candidate that asks for it."""
    multiprocessors: int = 128
    """Number of SMs; given to a candidate that asks for it."""


@dataclass(frozen=True)
class TensorShape:
    """A tensor without its values."""

    dtype: str
    size: Tuple[int, ...]
    stride: Tuple[int, ...]

    def tensor(self, device: str) -> torch.Tensor:
        """Return a tensor of this shape; under ``FakeTensorMode`` it takes no memory."""
        return torch.empty_strided(self.size, self.stride, dtype=getattr(torch, self.dtype), device=device)


@dataclass(frozen=True)
class CallForm:
    """Arguments of a model's constructor and calls, without the values of tensors: plain data."""

    init: Tuple[Any, ...]
    """Arguments as written by :func:`.encode_arguments`; tensors by their index in ``tensors``."""
    inputs: Tuple[Any, ...]
    tensors: Tuple[TensorShape, ...]


@dataclass(frozen=True)
class CompiledAhead:
    """Result of compiling ahead of time; the compiled kernels are in ``TRITON_CACHE_DIR``."""

    stopped: str = ""
    """Reason why the model could not run to its end without values (kernels may be missing); empty if it could."""


def call_form(problem: Path, values: Mapping[str, Any], dtype: Dtype) -> CallForm:
    """Return the constructor and call arguments of the problem's model on one workload; nothing is computed.

    Args:
        problem: Path of the problem's source.
        values: Values of the problem's module constants.
        dtype: Dtype of the cell.

    Raises:
        Exception: Any exception of the problem.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        module = import_file(problem, "kernel_matrix_problem", values)
        init = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
        tensors: List[torch.Tensor] = []
        encoded = encode_arguments([cast(value, "cpu", dtype) for value in init], tensors)
        inputs = encode_arguments(draw_inputs(module, "cpu", dtype, InputMode.STANDARD, 0), tensors)
    shapes = tuple(TensorShape(dtype_name(t.dtype), tuple(t.shape), tuple(t.stride())) for t in tensors)
    return CallForm(tuple(encoded), tuple(inputs), shapes)
