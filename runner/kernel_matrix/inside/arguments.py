"""Argument lists as JSON, with tensors replaced by their index in a list of tensors.

Only the judge sends them and only workers read them, so nothing here parses a candidate's data.
"""

from __future__ import annotations

from typing import Any, List, Sequence

import torch

from kernel_matrix.inside.memory import dtype_name


class NotTransferableError(ValueError):
    """An argument cannot be sent to a worker."""


def encode_arguments(arguments: Sequence[Any], tensors: List[torch.Tensor]) -> List[Any]:
    """Return JSON for ``arguments``, and append their tensors to ``tensors``.

    Raises:
        NotTransferableError: For anything but tensors, numbers, strings, booleans, None, dtypes, and lists, tuples or
            dictionaries of these.
    """
    return [_encode(argument, tensors) for argument in arguments]


def decode_arguments(encoded: Sequence[Any], tensors: Sequence[torch.Tensor]) -> List[Any]:
    """Return the arguments, with ``tensors`` in their places."""
    return [_decode(item, tensors) for item in encoded]


def _encode(value: Any, tensors: List[torch.Tensor]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors.append(value)
        return {"tensor": len(tensors) - 1}
    if value is None or isinstance(value, (bool, int, str)):
        return {"value": value}
    if isinstance(value, float):
        return {"float": value.hex()}
    if isinstance(value, (list, tuple)):
        kind = "tuple" if isinstance(value, tuple) else "list"
        return {kind: [_encode(item, tensors) for item in value]}
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {"dict": {key: _encode(item, tensors) for key, item in value.items()}}
    if isinstance(value, torch.dtype):
        return {"dtype": dtype_name(value)}
    raise NotTransferableError(f"an argument of type {type(value).__name__} cannot be handed to a candidate")


def _decode(item: Any, tensors: Sequence[torch.Tensor]) -> Any:  # noqa: PLR0911  # one line per kind of value
    (kind, value), *_ = item.items()
    if kind == "tensor":
        return tensors[value]
    if kind == "float":
        return float.fromhex(value)
    if kind == "tuple":
        return tuple(_decode(part, tensors) for part in value)
    if kind == "list":
        return [_decode(part, tensors) for part in value]
    if kind == "dict":
        return {key: _decode(part, tensors) for key, part in value.items()}
    if kind == "dtype":
        return getattr(torch, value)
    return value
