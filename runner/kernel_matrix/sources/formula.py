"""Evaluate formulas over a problem's constants, such as ``2 * M * N * K``.

Formulas come from untrusted files, so their syntax tree is interpreted here and never run as Python.
"""

from __future__ import annotations

import ast
import math
import operator
from collections.abc import Callable, Mapping
from functools import lru_cache

from kernel_matrix.errors import suggestion

Number = int | float

_OPERATORS: Mapping[type[ast.operator], Callable[[float, float], float]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
    ast.Pow: math.pow,
}
_FUNCTIONS: Mapping[str, Callable[..., float]] = {"min": min, "max": max}
_ALLOWED = "numbers, constants of the problem, itemsize, ranks, + - * / // % ** ( ) min max"


class FormulaError(ValueError):
    """A formula cannot be read or has no finite value; the message names the part and the allowed syntax."""


def evaluate(formula: str, names: Mapping[str, Number]) -> float:
    """Evaluate ``formula`` in floating point.

    Args:
        formula: an expression of numbers, names, arithmetic, ``min`` and ``max``.
        names: values of the names.

    Raises:
        FormulaError: the formula has other syntax or unknown names, or its value is not finite.
    """
    return evaluate_tree(_parsed(formula), names)


@lru_cache(maxsize=4096)  # a formula has a value for each dtype
def _parsed(formula: str) -> ast.expr:
    try:
        return ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(f"{formula!r} is not a formula; allowed: {_ALLOWED}") from None


def evaluate_tree(tree: ast.expr, names: Mapping[str, Number]) -> float:
    """Evaluate a parsed expression; see :func:`evaluate`."""
    try:
        value = _evaluate_node(tree, names)
    except ZeroDivisionError:
        raise FormulaError("divides by zero") from None
    except (OverflowError, ValueError) as error:
        raise error if isinstance(error, FormulaError) else FormulaError("has no finite value") from None
    except RecursionError:
        raise FormulaError("is nested too deeply") from None
    if not math.isfinite(value):
        raise FormulaError("has no finite value")
    return value


def _evaluate_node(node: ast.expr, names: Mapping[str, Number]) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.Name):
        return _look_up(node.id, names)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_evaluate_node(node.operand, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_evaluate_node(node.left, names), _evaluate_node(node.right, names))
    if isinstance(node, ast.Call) and not node.keywords and node.args:
        return _call(node, names)
    raise FormulaError(f"{ast.unparse(node)!r} is not allowed; allowed: {_ALLOWED}")


def _look_up(name: str, names: Mapping[str, Number]) -> float:
    if name in names:
        return float(names[name])
    raise FormulaError(f"{name!r} is not known; known: {', '.join(sorted(names))}{suggestion(name, list(names))}")


def _call(node: ast.Call, names: Mapping[str, Number]) -> float:
    function = _FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is None:
        raise FormulaError(f"{ast.unparse(node.func)!r} cannot be called; only min and max can")
    values = [_evaluate_node(argument, names) for argument in node.args]
    return function(values)
