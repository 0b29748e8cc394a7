"""A function ``solution`` of one rank as a module in KernelBench's form.

This file is a template: the host fills in ``NUMBER`` and stages it beside ``FILE``, which defines the function, and for
a problem beside ``INPUTS``, which makes its arguments. Arguments that are filled with a few numbers, the same in each
call, are drawn anew.
"""

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

M = 1024
N = 1024

NUMBER = 0
"""Number of the problem."""
FILE = "solution"
INPUTS = "input_output_tensors"
LOOKED_AT = 4096
FEW = 64
"""Tensors with no more different numbers than these, of the first ones, are taken for filled ones."""

_trial = 0  # the same on all ranks, which draw one after the other


class Model(torch.nn.Module):  # type: ignore[misc]  # types are checked without torch
    """Calls the function."""

    def __init__(self) -> None:
        super().__init__()
        self._solution = _load(FILE).solution

    def forward(self, *arguments: Any) -> Any:
        """Return what the function returns."""
        return self._solution(*arguments)


ModelNew = Model


def get_inputs() -> list[Any]:
    """Make the arguments of one rank."""
    global _trial  # noqa: PLW0603  # see above
    rank, ranks = dist.get_rank(), dist.get_world_size()
    if rank == 0:
        _trial = int(torch.randint(1 << 31, ()))
    make = _load(INPUTS).create_input_tensor
    made = list(make(rank, ranks, NUMBER, (M, N), torch.get_default_dtype(), _trial, torch.empty(0).device))
    made = [None if value is dist.group.WORLD else value for value in made]  # groups cannot be handed to a rank
    floating = [value for value in made if isinstance(value, torch.Tensor) and value.is_floating_point()]
    if all(len(value.flatten()[:LOOKED_AT].unique()) <= FEW for value in floating):
        return [torch.randn_like(value) if any(value is one for one in floating) else value for value in made]
    return made


def _load(name: str) -> ModuleType:
    """Import a file beside this one."""
    spec = importlib.util.spec_from_file_location(name, Path(__file__).with_name(f"{name}.py"))
    if spec is None or spec.loader is None:
        raise ImportError(f"{name}.py cannot be imported")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
