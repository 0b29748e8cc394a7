"""Read ``definition.json``: axes, inputs and outputs (name, shape, dtype) and reference of an operator.

The format is that of flashinfer-bench; SOL-ExecBench adds computed axes and inputs made by a function.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from kernel_matrix.model.enums import Dtype
from kernel_matrix.python_syntax import parse
from kernel_matrix.sources.document import ID_FORM, UnreadableFileError, line_of_json_key, parse_json_object, read_text
from kernel_matrix.sources.formula import FormulaError, evaluate, evaluate_tree

ITEMSIZES = {
    "float64": 8,
    "float32": 4,
    "float16": 2,
    "bfloat16": 2,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "int64": 8,
    "int32": 4,
    "int16": 2,
    "int8": 1,
    "uint8": 1,
    "bool": 1,
}
"""Supported dtype in torch's names → bytes of one element."""

CELL_DTYPES = {
    "float64": Dtype.FP64,
    "float32": Dtype.FP32,
    "float16": Dtype.FP16,
    "bfloat16": Dtype.BF16,
    "float8_e4m3fn": Dtype.FP8_E4M3,
    "float8_e5m2": Dtype.FP8_E5M2,
}
"""Floating dtype of the inputs → dtype of the cell."""

MAX_AXIS = 1 << 48
"""Largest size of an axis; a tensor with a larger one fits into no machine."""
MAX_NAMES = 256
"""Most axes, inputs or outputs of one definition."""

RUN = "run"
"""Function that the reference must define."""

_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_COMPARISONS = (ast.Eq, ast.GtE, ast.LtE, ast.Gt, ast.Lt)


@dataclass(frozen=True, slots=True)
class TensorDefinition:
    """One named input or output."""

    name: str
    shape: tuple[str, ...] | None
    """Names of its axes; ``None`` for a plain number."""
    dtype: str

    @property
    def is_float_tensor(self) -> bool:
        """True for a tensor, not a plain number, of a floating dtype."""
        return self.dtype in CELL_DTYPES and self.shape is not None


@dataclass(frozen=True)
class OperatorDefinition:
    """An operator as described by its file."""

    path: Path
    text: str
    name: str
    op_type: str
    tags: tuple[str, ...]
    description: str
    constants: Mapping[str, int]
    """Axes of a fixed size."""
    variables: tuple[str, ...]
    """Axes whose size a workload gives."""
    expressions: Mapping[str, str]
    """Axis → formula of its size."""
    inputs: tuple[TensorDefinition, ...]
    outputs: tuple[TensorDefinition, ...]
    reference: str
    maker: str
    """Function of the reference that makes inputs; empty if there is none."""
    constraints: tuple[str, ...]

    @cached_property
    def dtype(self) -> Dtype:
        """Dtype of its cells: that of its first floating input, or FP32."""
        return next((CELL_DTYPES[tensor.dtype] for tensor in self.inputs if tensor.is_float_tensor), Dtype.FP32)

    def carrier(self, tensor: TensorDefinition) -> str:
        """Return the integer dtype as which an input is passed to a model, or an empty text for its own dtype.

        A cell casts every floating input to its own dtype. Inputs of another dtype, and inputs of 8 bits, which a
        reference would receive in a wider dtype, must not be cast. They are passed as integers of the same size.
        """
        own = CELL_DTYPES.get(tensor.dtype) is self.dtype and ITEMSIZES[tensor.dtype] > 1
        return "" if own or not tensor.is_float_tensor else f"int{8 * ITEMSIZES[tensor.dtype]}"

    def sizes(self, given: Mapping[str, int]) -> dict[str, int]:
        """Return the size of every axis.

        Args:
            given: sizes of the variable axes.

        Raises:
            FormulaError: the size of a computed axis is invalid.
        """
        sizes = {**self.constants, **given}
        for axis, formula in self.expressions.items():
            size = evaluate(formula, sizes)
            if size != int(size) or not 0 <= size <= MAX_AXIS:
                raise FormulaError(f"axis {axis} = {formula} is {size:g}; must be a whole number from 0 to 2**48")
            sizes[axis] = int(size)
        return sizes

    def broken_constraint(self, sizes: Mapping[str, int]) -> str:
        """Return the first violated constraint on axes, or an empty text.

        Constraints on the values of inputs, and those in another form, are not checked.
        """
        return next((text for text in self.constraints if _holds(text, sizes) is False), "")

    def constrained_inputs(self) -> frozenset[str]:
        """Return the names of inputs in constraints."""
        words = {word for text in self.constraints for word in re.findall(r"[A-Za-z_]\w*", text)}
        return frozenset(tensor.name for tensor in self.inputs if tensor.name in words)

    def tensor_facts(self, tensors: Sequence[TensorDefinition]) -> list[dict[str, Any]]:
        """Return the facts about inputs or outputs for the adapter."""
        return [
            {"name": t.name, "shape": t.shape, "dtype": t.dtype, "carrier": self.carrier(t) if t in self.inputs else ""}
            for t in tensors
        ]

    def error(self, reason: str, key: str) -> UnreadableFileError:
        """Make the exception for an invalid value at ``key``."""
        return invalid_value(self.path, self.text, key, reason)


def invalid_value(path: Path, text: str, key: str, reason: str) -> UnreadableFileError:
    """Make the exception for an invalid value at ``key``, such as ``axes.M``, in a JSON file with this text."""
    return UnreadableFileError(path, f"{key}: {reason}", line_of_json_key(text, key.rpartition(".")[2]))


def read_definition(path: Path) -> OperatorDefinition:
    """Read one ``definition.json`` without running any of its code.

    Raises:
        UnreadableFileError: with the line of the first fault.
    """
    text = read_text(path)
    values = parse_json_object(path, text)
    reader = _Reader(path, text)
    name = reader.text(values, "name")
    if not ID_FORM.match(name):
        raise reader.error(f"{name!r} cannot be an id; allowed: letters, digits, '.', '_' and '-'", "name")
    axes = reader.table(values, "axes")
    definition = OperatorDefinition(
        path=path,
        text=text,
        name=name,
        op_type=str(values.get("op_type") or ""),
        tags=tuple(tag for tag in values.get("tags") or () if isinstance(tag, str))[:MAX_NAMES],
        description=" ".join(str(values.get("description") or "").split()),
        constants={axis: reader.size(it, axis) for axis, it in axes.items() if it["type"] == "const"},
        variables=tuple(axis for axis, it in axes.items() if it["type"] == "var"),
        expressions={axis: reader.text(it, "expression") for axis, it in axes.items() if it["type"] == "expr"},
        inputs=reader.tensors(values, "inputs", axes),
        outputs=reader.tensors(values, "outputs", axes),
        reference=reader.text(values, "reference"),
        maker=str(values.get("custom_inputs_entrypoint") or ""),
        constraints=tuple(it for it in values.get("constraints") or () if isinstance(it, str))[:MAX_NAMES],
    )
    _check_reference(definition)
    return definition


def writes_into_inputs(definition: OperatorDefinition) -> bool:
    """Return True if the source of the reference's ``run`` seems to write into an argument."""
    run = next(n for n in parse(definition.reference).body if isinstance(n, ast.FunctionDef) and n.name == RUN)
    parameters = {argument.arg for argument in (*run.args.posonlyargs, *run.args.args)}
    return any(_mutated_name(node) in parameters for node in ast.walk(run))


def _mutated_name(node: ast.AST) -> str:
    """Return ``x`` of ``x.add_(…)``, ``x[…] = …`` and ``x += …``, else an empty text."""
    target: ast.expr | None = None
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
        in_place = node.func.attr.endswith("_") and not node.func.attr.endswith("__")
        target = node.func.value if in_place else None
    elif isinstance(node, ast.Assign):
        target = next((t.value for t in node.targets if isinstance(t, ast.Subscript)), None)
    elif isinstance(node, ast.AugAssign):
        target = node.target.value if isinstance(node.target, ast.Subscript) else node.target
    return target.id if isinstance(target, ast.Name) else ""


def _holds(constraint: str, sizes: Mapping[str, int]) -> bool | None:
    """Evaluate a comparison of sizes; return ``None`` for a constraint of another form."""
    try:
        tree = ast.parse(constraint.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(tree, ast.Compare) or len(tree.ops) != 1 or not isinstance(tree.ops[0], _COMPARISONS):
        return None
    try:
        left, right = (evaluate_tree(side, sizes) for side in (tree.left, tree.comparators[0]))
    except FormulaError:
        return None
    signs = {ast.Eq: left == right, ast.GtE: left >= right, ast.LtE: left <= right, ast.Gt: left > right}
    return signs.get(type(tree.ops[0]), left < right)


def _check_reference(definition: OperatorDefinition) -> None:
    try:
        tree = parse(definition.reference)
    except SyntaxError as error:
        raise definition.error(f"not valid Python at its line {error.lineno}: {error.msg}", "reference") from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise definition.error(f"not valid Python: {str(error) or 'nested too deeply'}", "reference") from None
    functions = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    for name, key in ((RUN, "reference"), (definition.maker, "custom_inputs_entrypoint")):
        if name and name not in functions:
            raise definition.error(f"the reference defines no function {name!r}", key)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reader of values of the right type from parsed JSON."""

    path: Path
    content: str

    def error(self, reason: str, key: str) -> UnreadableFileError:
        return invalid_value(self.path, self.content, key, reason)

    def text(self, values: Mapping[str, Any], key: str) -> str:
        value = values.get(key)
        if not isinstance(value, str) or not value.strip():
            raise self.error(f"must be a text; got {_shorten(value)}", key)
        return value

    def size(self, axis: Mapping[str, Any], name: str) -> int:
        value = axis.get("value")
        if type(value) is not int or not 0 <= value <= MAX_AXIS:
            raise self.error(f"value must be a whole number from 0 to 2**48; got {_shorten(value)}", f"axes.{name}")
        return value

    def table(self, values: Mapping[str, Any], key: str) -> Mapping[str, Any]:
        """Read an object of objects whose names are identifiers; axes must have a type."""
        found = values.get(key)
        if not isinstance(found, dict) or len(found) > MAX_NAMES:
            raise self.error(f"must be an object of at most {MAX_NAMES} entries; got {_shorten(found)}", key)
        for name, value in found.items():
            if not _IDENTIFIER.match(name):
                raise self.error(f"{name!r} cannot be a name; allowed: letters, digits and '_'", key)
            if not isinstance(value, dict):
                raise self.error(f"must be an object; got {_shorten(value)}", f"{key}.{name}")
            if key == "axes" and value.get("type") not in ("const", "var", "expr"):
                raise self.error(f"type must be const, var or expr; got {_shorten(value.get('type'))}", f"{key}.{name}")
        return found

    def tensors(self, values: Mapping[str, Any], key: str, axes: Mapping[str, Any]) -> tuple[TensorDefinition, ...]:
        found = tuple(self.tensor(f"{key}.{name}", name, it, axes) for name, it in self.table(values, key).items())
        if not found:
            raise self.error("there are none", key)
        return found

    def tensor(self, key: str, name: str, value: Mapping[str, Any], axes: Mapping[str, Any]) -> TensorDefinition:
        shape, dtype = value.get("shape"), value.get("dtype")
        if not isinstance(dtype, str) or dtype not in ITEMSIZES:
            raise self.error(f"dtype {_shorten(dtype)} is unsupported; supported: {', '.join(ITEMSIZES)}", key)
        if shape is None:
            return TensorDefinition(name, None, dtype)
        if not isinstance(shape, list) or len(shape) > 16:
            raise self.error(f"shape must be a list of axes or null; got {_shorten(shape)}", key)
        for axis in shape:
            if not isinstance(axis, str) or axis not in axes:
                raise self.error(f"shape names {_shorten(axis)}, which is not an axis; axes: {', '.join(axes)}", key)
        return TensorDefinition(name, tuple(shape), dtype)


def _shorten(value: Any) -> str:
    return json.dumps(value)[:80]
