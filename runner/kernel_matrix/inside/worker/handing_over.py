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


def copy_one(output: torch.Tensor, view: Optional[torch.Tensor], alias: OutputAlias) -> OutputClaim:
    """Copy an output into its place if it has one and fits; return its description."""
    fits = view is not None and output.shape == view.shape and output.dtype == view.dtype
    same_device = view is None or output.device.type == view.device.type
    copied = fits and same_device
    if copied and view is not None:
        view.copy_(output)
    shape = tuple(output.shape)[:MAX_DIMENSIONS]
    return OutputClaim(dtype_name(output.dtype), shape, same_device, copied, output.is_contiguous(), alias)
