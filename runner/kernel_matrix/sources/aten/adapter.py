"""Any operator of PyTorch's own test database (OpInfo) as a problem in KernelBench's form.

This file is a template: it is never imported on a host, but staged as a problem's module with other constants. Images
carry Pythons from 3.9 on.

One call of the operator, which stands in :data:`CALL` as JSON, says everything but the numbers in its tensors::

    {"function": "torch.nn.functional.linear",
     "positional": [{"tensor": [4, 8], "dtype": "float"}, {"tensor": [3, 8], "dtype": "float"}],
     "named": {}}

Every argument with a tensor in it, positional ones first, is one of ``get_inputs()``; all others are constants, and the
same in every process. What JSON has no word for is written as a dictionary of one key: ``{"dtype": "int64"}``,
``{"memory_format": "channels_last"}``, ``{"layout": "strided"}``, ``{"slice": [0, 3, null]}``, ``{"complex": [1, 2]}``,
``{"float": "inf"}``. Tuples are lists.
"""
# ruff: noqa: UP033, UP035  # a folder of texts; the syntax and library of Python 3.9

from __future__ import annotations

import functools
import importlib
import importlib.util
import json
import math
import sys
import types
import warnings
from typing import Any, Callable, Iterator

import torch

OPERATOR = ""
"""Its name in the database."""
VARIANT = ""
"""Name of the variant there; mostly empty."""
SAMPLED = "float"
"""Dtype that the database is asked for; ``float``: what numbers are drawn in by default."""
CALL = ""
"""See above."""

DATABASE = "torch.testing._internal.common_methods_invocations"

_SPECIAL: dict[str, Callable[[Any], Any]] = {
    "dtype": lambda name: getattr(torch, name),
    "memory_format": lambda name: getattr(torch, name),
    "layout": lambda name: getattr(torch, name),
    "slice": lambda ends: slice(*ends),
    "complex": lambda parts: complex(*parts),
    "float": float,
}


class NotPlainError(TypeError):
    """An argument of a sample cannot be written down."""


class Model(torch.nn.Module):  # type: ignore[misc]  # the host has no torch to look at
    """One call of a function of torch: ``positional`` and ``named`` with ``{"input": i}`` where an input belongs."""

    def __init__(self, function: str, positional: list[Any], named: dict[str, Any]) -> None:
        super().__init__()
        self.function = function
        self.positional = [_filled(value) for value in positional]
        self.named = {name: _filled(value) for name, value in named.items()}

    def forward(self, *inputs: Any) -> Any:
        """The operator's answer: a tensor, or a flat tuple or list of tensors."""
        positional = [value(inputs) for value in self.positional]
        return function_at(self.function)(*positional, **{name: value(inputs) for name, value in self.named.items()})


def get_inputs() -> list[Any]:
    """The arguments with tensors in them, drawn anew on the default device."""
    call = json.loads(CALL)
    given = [*call["positional"], *call["named"].values()]
    if any("low" in spec for value in given for spec in _specs_in(value)):
        return [_drawn(value) for value in given if _has_tensor(value)]
    positional, named = _sample_like(call)
    return [_detached(value) for value in (*positional, *named.values()) if _tensors_in(value)]


def get_init_inputs() -> list[Any]:
    """Name of the function, and its arguments with ``{"input": i}`` in place of the i-th input."""
    call = json.loads(CALL)
    places = iter(range(len(call["positional"]) + len(call["named"])))

    def marked(value: Any) -> Any:
        return {"input": next(places)} if _has_tensor(value) else value

    positional = [marked(value) for value in call["positional"]]
    return [call["function"], positional, {name: marked(value) for name, value in call["named"].items()}]


@functools.lru_cache(maxsize=None)
def function_at(path: str) -> Callable[..., Any]:
    """``torch.nn.functional.linear`` → that function."""
    found: Any = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    function: Callable[..., Any] = found
    return function


def encode(value: Any, sampled: torch.dtype) -> Any:  # noqa: PLR0911  # one line per kind of value
    """An argument as :data:`CALL` has it.

    :param sampled: the floating dtype that counts as ``float``.
    :raises NotPlainError: when there is no way to write it.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, torch.Tensor):
        return _encode_tensor(value, sampled)
    if isinstance(value, float):
        return value if math.isfinite(value) else {"float": repr(value)}
    if isinstance(value, (list, tuple)):
        return [encode(item, sampled) for item in value]
    if isinstance(value, complex):
        return {"complex": [value.real, value.imag]}
    if isinstance(value, slice):
        return {"slice": [encode(end, sampled) for end in (value.start, value.stop, value.step)]}
    for kind in ("dtype", "memory_format", "layout"):
        if isinstance(value, getattr(torch, kind)):
            return {kind: str(value).split(".")[-1]}
    raise NotPlainError(f"an argument of type {type(value).__name__}")


def samples(operator: Any, device: str, dtype: torch.dtype) -> Iterator[tuple[list[Any], dict[str, Any]]]:
    """Positional and named arguments of each of the operator's samples, drawn now."""
    # Not the method sample_inputs(), which sets the same seeds before each sample, whatever the judge's are.
    with torch.no_grad():
        for sample in operator.sample_inputs_func(operator, device, dtype, False):
            yield [sample.input, *sample.args], dict(sample.kwargs)


def database() -> list[Any]:
    """Every ``OpInfo`` of this PyTorch.

    :raises ImportError: when NumPy is missing.
    """
    # The module's own import: a base class of tests, and a function that nobody calls here. Few images have it.
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = object  # type: ignore[attr-defined]
        stand_in.assert_expected_inline = None  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    # Importing it would freeze the switches for TF32 and the like, which the judge sets for each workload.
    freeze, torch.backends.disable_global_flags = torch.backends.disable_global_flags, lambda: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: list[Any] = importlib.import_module(DATABASE).op_db
    finally:
        torch.backends.disable_global_flags = freeze
    return found


def _filled(value: Any) -> Callable[[tuple[Any, ...]], Any]:
    """What gives one argument, once the inputs are there."""
    if isinstance(value, dict) and "input" in value:
        place = value["input"]
        return lambda inputs: inputs[place]
    constant = _decode(value)
    return lambda _inputs: constant


def _decode(value: Any) -> Any:
    if isinstance(value, list):
        return [_decode(item) for item in value]
    if isinstance(value, dict):
        ((kind, what),) = value.items()
        return _SPECIAL[kind](what)
    return value


def _encode_tensor(value: torch.Tensor, sampled: torch.dtype) -> dict[str, Any]:
    if type(value) not in (torch.Tensor, torch.nn.Parameter) or value.layout is not torch.strided:
        raise NotPlainError(f"a {value.layout} tensor of type {type(value).__name__}")
    is_float = value.dtype is sampled and value.dtype.is_floating_point
    dtype = "float" if is_float else str(value.dtype).split(".")[-1]
    return {"tensor": list(value.shape), "dtype": dtype}


def _sample_like(call: Any) -> tuple[list[Any], dict[str, Any]]:
    """The first of the samples whose arguments are these: another PyTorch may have them in another order.

    :raises LookupError: when there is none.
    """
    dtype = torch.get_default_dtype() if SAMPLED == "float" else getattr(torch, SAMPLED)
    device = str(torch.empty(0).device)
    for positional, named in samples(_operator(), device, dtype):
        if call.get("swapped"):
            positional[:2] = positional[1::-1]
        if _is_like(positional, call["positional"], dtype) and _is_like(named, call["named"], dtype):
            return positional, named
    raise LookupError(f"OpInfo of torch {torch.__version__} has no such sample of {OPERATOR} {VARIANT}".rstrip())


@functools.lru_cache(maxsize=None)
def _operator() -> Any:
    for operator in database():
        if (operator.name, operator.variant_test_name) == (OPERATOR, VARIANT):
            return operator
    raise LookupError(f"OpInfo of torch {torch.__version__} has no operator {OPERATOR} {VARIANT}".rstrip())


def _is_like(arguments: Any, wanted: Any, sampled: torch.dtype) -> bool:
    try:
        if isinstance(arguments, dict):
            return _alike({name: encode(value, sampled) for name, value in arguments.items()}, wanted)
        return _alike(encode(arguments, sampled), wanted)
    except NotPlainError:
        return False


def _alike(one: Any, other: Any) -> bool:
    """Equal, but for words and numbers that are not whole: some samples draw these too, and the call's own are used."""
    if isinstance(one, dict) and isinstance(other, dict) and "tensor" not in one:
        return one.keys() == other.keys() and all(_alike(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_alike, one, other))
    both_vary = any(isinstance(one, kind) and isinstance(other, kind) for kind in (float, str))
    return both_vary or bool(one == other)


def _specs_in(value: Any) -> Iterator[dict[str, Any]]:
    """Every tensor of an encoded argument."""
    if isinstance(value, list):
        for item in value:
            yield from _specs_in(item)
    elif isinstance(value, dict) and "tensor" in value:
        yield value


def _has_tensor(value: Any) -> bool:
    return next(_specs_in(value), None) is not None


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors_in(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def _detached(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_detached(item) for item in value]
    return value.detach() if isinstance(value, torch.Tensor) else value


def _drawn(value: Any) -> Any:
    """An argument whose tensors say between which numbers they lie: ``low`` included, ``high`` not."""
    if isinstance(value, list):
        return [_drawn(item) for item in value]
    if not isinstance(value, dict) or "tensor" not in value:
        return _decode(value)
    low, high, shape = value["low"], value["high"], value["tensor"]
    if value["dtype"] == "float":
        return torch.empty(shape).uniform_(low, high)
    return torch.randint(low, high, shape, dtype=getattr(torch, value["dtype"]))
