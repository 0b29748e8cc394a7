"""A definition's function as a model: its reference as ``Model``, a solution of it as ``ModelNew``.

This file is a template: the host fills in ``FACTS`` and the sizes of a workload's axes, and stages it beside the files
that it reads. It may import only the standard library, torch and ``kernel_matrix.inside``.

Every input keeps its dtype of the definition. Inputs that a cell would cast are passed as integers of the same size
(``carrier``), and ``forward`` views them as their real dtype without a copy.
"""
# ruff: noqa: B905, UP035  # images may have Python 3.9

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any, Callable, Sequence

import torch
from torch import nn

FACTS: dict[str, Any] = json.loads("@FACTS@")
"""``inputs``, ``outputs``: name, shape (axes), dtype, carrier. ``constants``: sizes. ``axes``: names of other axes.

For a problem also ``cell`` (dtype of inputs without carrier), ``maker`` and ``workloads`` (input → source). For a
solution also ``entry`` (``module`` and ``function``, or sources to compile), ``destination`` and ``expressions``.
"""

workload = ""
"""The workload of ``get_inputs``."""
# @AXES@

RANGES = {"int8": (-128, 128), "uint8": (0, 256), "bool": (0, 2)}
"""Range of drawn integers, without its upper end."""
RANGE = (-1024, 1024)
"""Range of wider integers, without its upper end."""

_read: dict[str, torch.Tensor] = {}


# ---- the problem


class Model(nn.Module):  # type: ignore[misc]
    """The definition's reference."""

    def __init__(self) -> None:
        super().__init__()
        self._function = _reference().run

    def forward(self, *arguments: Any) -> Any:
        """Return the outputs in the definition's order and dtypes; with wider inputs in the dtypes they have."""
        returned = _in_order(self._function(*_declared(arguments)))
        if not _are_widened(arguments):
            returned = [value.to(_dtype(spec["dtype"])) for spec, value in zip(FACTS["outputs"], returned)]
        return _as_returned(returned)


def get_inputs() -> list[Any]:
    """Make new inputs for one call of the workload."""
    sources = FACTS["workloads"][workload]
    made: dict[str, Any] = {}
    if any(source["type"] == "custom" for source in sources.values()):
        scalars = {name: source["value"] for name, source in sources.items() if source["type"] == "scalar"}
        maker = getattr(_reference(), FACTS["maker"])
        made = maker({**_sizes(), **scalars}, torch.empty(0).device)
    return [_input(spec, sources[spec["name"]], made) for spec in FACTS["inputs"]]


def _input(spec: dict[str, Any], source: dict[str, Any], made: dict[str, Any]) -> Any:
    if source["type"] == "scalar":
        return source["value"]
    if source["type"] == "custom":
        value = made[spec["name"]]
        if spec["shape"] is None:
            return value
        if value.dtype is not _dtype(spec["dtype"]) or list(value.shape) != _shape(spec):
            found = f"{value.dtype} {list(value.shape)}"
            raise ValueError(f"{FACTS['maker']} makes {spec['name']} {found}; expected: {spec['dtype']} {_shape(spec)}")
    elif source["type"] == "safetensors":
        value = _from_file(spec, source)
    else:
        value = _drawn(spec)
    return value.view(_dtype(spec["carrier"])) if spec["carrier"] else value


def _drawn(spec: dict[str, Any]) -> torch.Tensor:
    """Draw standard normal numbers, or integers of a range."""
    dtype = _dtype(spec["dtype"])
    if not dtype.is_floating_point:
        low, high = RANGES.get(spec["dtype"], RANGE)
        return torch.randint(low, high, _shape(spec), dtype=dtype)
    drawn = torch.randn(_shape(spec))
    return drawn.to(dtype) if spec["carrier"] else drawn


def _from_file(spec: dict[str, Any], source: dict[str, Any]) -> torch.Tensor:
    """Return a copy of a tensor in a file, whose offset the host has read; the file is read only once."""
    place = f"{source['file']}:{source['start']}:{spec['name']}"
    if place not in _read:
        with Path(__file__).with_name(source["file"]).open("rb") as file:
            file.seek(source["start"])
            content = bytearray(file.read(source["nbytes"]))
        if len(content) != source["nbytes"]:
            raise ValueError(f"{source['file']} ends before {source['start'] + source['nbytes']} bytes")
        flat = torch.frombuffer(content, dtype=torch.uint8) if content else torch.empty(0, dtype=torch.uint8)
        _read[place] = flat.to(torch.empty(0).device).view(_dtype(spec["dtype"])).view(_shape(spec))
    return _read[place].clone()


def _sizes() -> dict[str, int]:
    return {**FACTS["constants"], **{axis: globals()[axis] for axis in FACTS["axes"]}}


def _shape(spec: dict[str, Any]) -> list[int]:
    sizes = _sizes()
    return [sizes[axis] for axis in spec["shape"]]


def _are_widened(arguments: Sequence[Any]) -> bool:
    """Return True for inputs in a higher precision, with which the judge computes the expected outputs."""
    cast = (a for spec, a in zip(FACTS["inputs"], arguments) if not spec["carrier"] and torch.is_tensor(a))
    return any(a.is_floating_point() and a.dtype is not _dtype(FACTS["cell"]) for a in cast)


def _reference() -> Any:
    path = Path(__file__).with_name("reference_run.py")
    spec = importlib.util.spec_from_file_location("reference_run", path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path.name} is not a Python source file")
    module = importlib.util.module_from_spec(spec)
    sys.modules["reference_run"] = module  # Triton and dataclasses look it up there
    spec.loader.exec_module(module)
    return module


# ---- a solution


class ModelNew(nn.Module):  # type: ignore[misc]
    """A solution's function."""

    def forward(self, *arguments: Any) -> Any:
        """Return the outputs in the definition's order, returned by the function or written into new tensors."""
        given = _declared(arguments)
        if not FACTS["destination"]:
            return _as_returned(_in_order(FUNCTION(*given)))
        outputs = _destinations(given)
        FUNCTION(*given, *outputs)
        return _as_returned(outputs)


def _destinations(given: Sequence[Any]) -> list[torch.Tensor]:
    """Allocate the outputs; sizes of axes that no input has are computed."""
    sizes = dict(FACTS["constants"])
    device = next((value.device for value in given if torch.is_tensor(value)), None)
    for spec, value in zip(FACTS["inputs"], given):
        sizes.update(zip(spec["shape"] or (), value.shape) if torch.is_tensor(value) else ())
    for axis, expression in FACTS["expressions"].items():
        if axis not in sizes:
            sizes[axis] = int(eval(expression, {"__builtins__": {}}, sizes))  # noqa: S307  # the host has checked it
    shapes = [[sizes[axis] for axis in spec["shape"]] for spec in FACTS["outputs"]]
    return [torch.empty(s, dtype=_dtype(o["dtype"]), device=device) for s, o in zip(shapes, FACTS["outputs"])]


def _entry(entry: dict[str, Any]) -> Callable[..., Any]:
    if "sources" in entry:
        return getattr(_compiled(entry), entry["function"])  # type: ignore[no-any-return]
    sys.path.insert(0, str(Path(__file__).parent))
    return getattr(importlib.import_module(entry["module"]), entry["function"])  # type: ignore[no-any-return]


def _compiled(entry: dict[str, Any]) -> Any:
    """Compile and load the extension."""
    from kernel_matrix.inside.native_extension import load_extension  # noqa: PLC0415  # only such solutions need it

    return load_extension(
        Path(__file__).parent,
        entry["extension"],
        entry["files"],
        entry["sources"],
        flags=entry,
        with_cuda=entry["with_cuda"],
    )


# ---- both


def _declared(arguments: Sequence[Any]) -> list[Any]:
    """View the arguments in the definition's dtypes."""
    pairs = zip(FACTS["inputs"], arguments)
    return [value.view(_dtype(spec["dtype"])) if spec["carrier"] else value for spec, value in pairs]


def _in_order(returned: Any) -> list[Any]:
    """Return one tensor per output from a returned dictionary, sequence or single value."""
    names = [spec["name"] for spec in FACTS["outputs"]]
    if isinstance(returned, dict):
        missing = [name for name in names if name not in returned]
        if missing:
            raise ValueError(f"does not return {', '.join(missing)}")
        values: list[Any] = [returned[name] for name in names]
    else:
        values = list(returned) if isinstance(returned, (tuple, list)) else [returned]
    if len(values) != len(names):
        raise ValueError(f"returns {len(values)} outputs; expected {len(names)}: {', '.join(names)}")
    return [_tensor(spec, value) for spec, value in zip(FACTS["outputs"], values)]


def _tensor(spec: dict[str, Any], value: Any) -> Any:
    return torch.tensor(value, dtype=_dtype(spec["dtype"])) if isinstance(value, (bool, int, float)) else value


def _as_returned(values: Sequence[Any]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _dtype(name: str) -> torch.dtype:
    return getattr(torch, name)


if "entry" in FACTS:
    FUNCTION = _entry(FACTS["entry"])
