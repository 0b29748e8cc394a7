"""An operator of PyTorch's test database (OpInfo) as a problem in KernelBench's form.

This file is a template: the host never imports it, but stages it with other constants as the module of a problem. It
must run on Python 3.9.

:data:`CALL` has one call of the operator as JSON, without the numbers in its tensors::

    {"function": "torch.nn.functional.linear",
     "positional": [{"tensor": [4, 8], "dtype": "float"}, {"tensor": [3, 8], "dtype": "float"}],
     "named": {}}

Every argument with a tensor in it is an item of ``get_inputs()``, positional ones first; all others are constants.
Values without a JSON form are written as a dictionary of one key: ``{"dtype": "int64"}``,
``{"memory_format": "channels_last"}``, ``{"layout": "strided"}``, ``{"slice": [0, 3, null]}``, ``{"complex": [1, 2]}``,
``{"float": "inf"}``. Tuples become lists.
"""
# ruff: noqa: UP033, UP035  # syntax and library of Python 3.9

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
"""Name in the database."""
VARIANT = ""
"""Name of the variant in the database; mostly empty."""
SAMPLED = "float"
"""Dtype of the samples; ``float`` is torch's default dtype."""
CALL = ""
"""The call as JSON, see above."""

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
    """An argument of a sample cannot be written as JSON."""


class Model(torch.nn.Module):  # type: ignore[misc]  # types are checked without torch
    """One call of a function of torch, with ``{"input": i}`` in place of the i-th input among its arguments."""

    def __init__(self, function: str, positional: list[Any], named: dict[str, Any]) -> None:
        super().__init__()
        self.function = function
        self.positional = [_argument_builder(value) for value in positional]
        self.named = {name: _argument_builder(value) for name, value in named.items()}

    def forward(self, *inputs: Any) -> Any:
        """Return the operator's result: a tensor, or a flat tuple or list of tensors."""
        positional = [value(inputs) for value in self.positional]
        return function_at(self.function)(*positional, **{name: value(inputs) for name, value in self.named.items()})


def get_inputs() -> list[Any]:
    """Return the arguments that have tensors, newly drawn on the default device."""
    call = json.loads(CALL)
    given = [*call["positional"], *call["named"].values()]
    if any("low" in spec for value in given for spec in _tensor_specs(value)):
        return [_draw(value) for value in given if _has_tensor(value)]
    positional, named = _find_sample(call)
    return [_detach(value) for value in (*positional, *named.values()) if _tensors_in(value)]


def get_init_inputs() -> list[Any]:
    """Return the name of the function, and its arguments with ``{"input": i}`` in place of the i-th input."""
    call = json.loads(CALL)
    places = iter(range(len(call["positional"]) + len(call["named"])))

    def mark_input(value: Any) -> Any:
        return {"input": next(places)} if _has_tensor(value) else value

    positional = [mark_input(value) for value in call["positional"]]
    return [call["function"], positional, {name: mark_input(value) for name, value in call["named"].items()}]


@functools.lru_cache(maxsize=None)
def function_at(path: str) -> Callable[..., Any]:
    """Return the function named ``torch.nn.functional.linear`` or the like."""
    found: Any = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    function: Callable[..., Any] = found
    return function


def encode(value: Any, sampled: torch.dtype) -> Any:  # noqa: PLR0911  # one line per kind of value
    """Encode an argument as in :data:`CALL`.

    Args:
        value: the argument.
        sampled: floating dtype that is written as ``float``.

    Raises:
        NotPlainError: it has no JSON form.
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
    """Draw positional and named arguments of each sample of the operator."""
    # The method sample_inputs() is not used: it sets a fixed seed before each sample, in place of the judge's.
    with torch.no_grad():
        for sample in operator.sample_inputs_func(operator, device, dtype, False):
            yield [sample.input, *sample.args], dict(sample.kwargs)


def database() -> list[Any]:
    """Return every ``OpInfo`` of the installed PyTorch.

    Raises:
        ImportError: NumPy is missing.
    """
    # The database imports expecttest for tests that do not run here, and few images have it.
    if "expecttest" not in sys.modules and importlib.util.find_spec("expecttest") is None:
        stand_in = types.ModuleType("expecttest")
        stand_in.TestCase = object  # type: ignore[attr-defined]
        stand_in.assert_expected_inline = None  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stand_in
    # Importing the database would freeze torch's switches for TF32 and others, which the judge sets per workload.
    freeze, torch.backends.disable_global_flags = torch.backends.disable_global_flags, lambda: None
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found: list[Any] = importlib.import_module(DATABASE).op_db
    finally:
        torch.backends.disable_global_flags = freeze
    return found


def _argument_builder(value: Any) -> Callable[[tuple[Any, ...]], Any]:
    """Return a function from the inputs to one argument."""
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


def _find_sample(call: Any) -> tuple[list[Any], dict[str, Any]]:
    """Find the first sample with the arguments of the call, whose order differs between versions of PyTorch.

    Raises:
        LookupError: there is none.
    """
    dtype = torch.get_default_dtype() if SAMPLED == "float" else getattr(torch, SAMPLED)
    device = str(torch.empty(0).device)
    for positional, named in samples(_operator(), device, dtype):
        if call.get("swapped"):
            positional[:2] = positional[1::-1]
        if _matches_call(positional, call["positional"], dtype) and _matches_call(named, call["named"], dtype):
            return positional, named
    raise LookupError(f"OpInfo of torch {torch.__version__} has no such sample of {OPERATOR} {VARIANT}".rstrip())


@functools.lru_cache(maxsize=None)
def _operator() -> Any:
    for operator in database():
        if (operator.name, operator.variant_test_name) == (OPERATOR, VARIANT):
            return operator
    raise LookupError(f"OpInfo of torch {torch.__version__} has no operator {OPERATOR} {VARIANT}".rstrip())


def _matches_call(arguments: Any, wanted: Any, sampled: torch.dtype) -> bool:
    try:
        if isinstance(arguments, dict):
            return _equal_but_draws({name: encode(value, sampled) for name, value in arguments.items()}, wanted)
        return _equal_but_draws(encode(arguments, sampled), wanted)
    except NotPlainError:
        return False


def _equal_but_draws(one: Any, other: Any) -> bool:
    """Return True if equal except for texts and floats, which some samples draw; those of the call are used."""
    if isinstance(one, dict) and isinstance(other, dict) and "tensor" not in one:
        return one.keys() == other.keys() and all(_equal_but_draws(value, other[key]) for key, value in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal_but_draws, one, other))
    both_vary = any(isinstance(one, kind) and isinstance(other, kind) for kind in (float, str))
    return both_vary or bool(one == other)


def _tensor_specs(value: Any) -> Iterator[dict[str, Any]]:
    """Yield every tensor of an encoded argument."""
    if isinstance(value, list):
        for item in value:
            yield from _tensor_specs(item)
    elif isinstance(value, dict) and "tensor" in value:
        yield value


def _has_tensor(value: Any) -> bool:
    return next(_tensor_specs(value), None) is not None


def _tensors_in(value: Any) -> list[torch.Tensor]:
    if isinstance(value, (list, tuple)):
        return [tensor for item in value for tensor in _tensors_in(item)]
    return [value] if isinstance(value, torch.Tensor) else []


def _detach(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_detach(item) for item in value]
    return value.detach() if isinstance(value, torch.Tensor) else value


def _draw(value: Any) -> Any:
    """Draw an argument whose tensors have a range from ``low`` to just below ``high``."""
    if isinstance(value, list):
        return [_draw(item) for item in value]
    if not isinstance(value, dict) or "tensor" not in value:
        return _decode(value)
    low, high, shape = value["low"], value["high"], value["tensor"]
    if value["dtype"] == "float":
        return torch.empty(shape).uniform_(low, high)
    return torch.randint(low, high, shape, dtype=getattr(torch, value["dtype"]))
