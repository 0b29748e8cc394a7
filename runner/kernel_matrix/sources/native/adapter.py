"""A function of a C++ or CUDA file as ``ModelNew``.

A template: the host puts what it knows of the file in place of the text that ``FACTS`` is made from. It runs beside
that file. Standard library, torch and the runner's core only.
"""
# a file to copy from, in no package

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from kernel_matrix.inside.native_extension import load_extension

FACTS: dict[str, Any] = json.loads("@FACTS@")
"""``file``, ``function`` (its name in Python, too), ``extension``, ``sources``, ``written`` and ``with_cuda``."""

_EXTENSION = load_extension(
    Path(__file__).parent,
    FACTS["extension"],
    [FACTS["file"]],
    FACTS["sources"],
    written=FACTS["written"],
    with_cuda=FACTS["with_cuda"],
)
_FUNCTION = getattr(_EXTENSION, FACTS["function"])


class ModelNew(nn.Module):  # type: ignore[misc]
    """Calls the function with the reference's inputs, in their order."""

    def __init__(self, *_given: Any, **_named: Any) -> None:
        super().__init__()

    def forward(self, *inputs: Any) -> Any:
        """What the function returns: a tensor, or a tuple of them."""
        return _FUNCTION(*inputs)
