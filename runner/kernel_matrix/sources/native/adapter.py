"""A function of a C++ or CUDA file as ``ModelNew``.

This file is a template: the host fills in ``FACTS`` and stages it beside that file. It may import only the standard
library, torch and ``kernel_matrix.inside``.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from kernel_matrix.inside.native_extension import load_extension

FACTS: dict[str, Any] = json.loads("@FACTS@")
"""``file``, ``function`` (also its name in Python), ``extension``, ``sources``, ``written`` and ``with_cuda``."""

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
        """Return the result of the function: a tensor, or a tuple of tensors."""
        return _FUNCTION(*inputs)
