"""What a model is called with, without values, and what it is compiled for: all that compiling ahead needs to know."""

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
    """Compute capability, ``9.0`` or ``9.0a``."""
    shared_bytes: int = 99 << 10
    """Shared memory that a block may have at most: what a candidate is told that asks."""
    multiprocessors: int = 128
    """SMs, likewise."""

    @property
    def number(self) -> int:
        """Compute capability × 10."""
        major, minor = self.arch.rstrip("af").split(".")
        return 10 * int(major) + int(minor)


@dataclass(frozen=True)
class TensorShape:
    """A tensor without its values."""

    dtype: str
    size: Tuple[int, ...]
    stride: Tuple[int, ...]

    def tensor(self, device: str) -> torch.Tensor:
        """One of this shape; under ``FakeTensorMode`` without memory."""
        return torch.empty_strided(self.size, self.stride, dtype=getattr(torch, self.dtype), device=device)


@dataclass(frozen=True)
class CallForm:
    """What a model is constructed and called with, but for the values of tensors: plain data."""

    init: Tuple[Any, ...]
    """As :func:`.encode_arguments` writes them; tensors by their place in ``tensors``."""
    inputs: Tuple[Any, ...]
    tensors: Tuple[TensorShape, ...]


@dataclass(frozen=True)
class CompiledAhead:
    """What compiling ahead came to, beside what now lies in ``TRITON_CACHE_DIR``."""

    stopped: str = ""
    """Why the model could not be run to its end without values, in words: kernels may be missing. Empty: it could."""


def call_form(problem: Path, values: Mapping[str, Any], dtype: Dtype) -> CallForm:
    """What the problem's model is constructed and called with, on one workload; nothing is computed.

    :param values: of the problem's module constants.
    :raises Exception: whatever the problem raises.
    """
    with FakeTensorMode(allow_non_fake_inputs=True):
        module = import_file(problem, "kernel_matrix_problem", values)
        init = module.get_init_inputs() if hasattr(module, "get_init_inputs") else []
        tensors: List[torch.Tensor] = []
        encoded = encode_arguments([cast(value, "cpu", dtype) for value in init], tensors)
        inputs = encode_arguments(draw_inputs(module, "cpu", dtype, InputMode.STANDARD, 0), tensors)
    shapes = tuple(TensorShape(dtype_name(t.dtype), tuple(t.shape), tuple(t.stride())) for t in tensors)
    return CallForm(tuple(encoded), tuple(inputs), shapes)
