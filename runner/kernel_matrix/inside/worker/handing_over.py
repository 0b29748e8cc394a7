"""Handing a call's outputs over: into the judge's buffers as far as they fit, with a description of each."""

from __future__ import annotations

from typing import Any, List, Optional, Tuple

import torch

from kernel_matrix.inside.memory import dtype_name
from kernel_matrix.inside.wire import MAX_DIMENSIONS, OutputAlias, OutputClaim, Structure

_TENSORS = (torch.Tensor, torch.nn.Parameter)  # exact types: subclasses can run code when they are read


def flatten(returned: Any) -> Tuple[Structure, List[torch.Tensor]]:
    """Return the type of a model's result, and its tensors; none unless it is a tensor or a flat tuple or list."""
    if type(returned) in _TENSORS:
        return Structure.TENSOR, [returned]
    if isinstance(returned, (tuple, list)) and all(type(r) in _TENSORS for r in returned):
        return (Structure.TUPLE if isinstance(returned, tuple) else Structure.LIST), list(returned)
    return Structure.OTHER, []


def fits(output: torch.Tensor, view: torch.Tensor) -> bool:
    """Return True if ``output`` has the shape, the dtype and the device of ``view``."""
    return (output.shape, output.dtype, output.device.type) == (view.shape, view.dtype, view.device.type)


def copy_one(output: torch.Tensor, view: Optional[torch.Tensor], alias: OutputAlias) -> OutputClaim:
    """Copy an output into its place if it has one and fits; return its description."""
    copied = view is not None and fits(output, view)
    if copied and view is not None:
        view.copy_(output)
    same_device = view is None or output.device.type == view.device.type
    return describe(output, same_device=same_device, copied=copied, alias=alias)


def describe(
    output: torch.Tensor, *, same_device: bool, copied: bool, alias: OutputAlias = OutputAlias.NONE
) -> OutputClaim:
    """Return an output's description."""
    shape = tuple(output.shape)[:MAX_DIMENSIONS]
    return OutputClaim(dtype_name(output.dtype), shape, same_device, copied, output.is_contiguous(), alias)
