"""FLOPs and bytes as formulas over a problem's constants: ``2 * M * N * K``.

Formulas come from files that anybody may have written, so they are read as syntax and never run as Python.
"""

from __future__ import annotations

import ast
import difflib
import math
import operator
from collections.abc import Callable, Mapping

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
_ALLOWED = "numbers, constants of the problem, itemsize, + - * / // % ** ( ) min max"


class FormulaError(ValueError):
    """A formula cannot be read or has no finite value; the message says which part and what is allowed."""


def evaluate(formula: str, names: Mapping[str, Number]) -> float:
    """The value of ``formula``, computed in floating point, with ``names`` for its variables.

    :raises FormulaError: for anything but numbers, known names, arithmetic, ``min`` and ``max``, and for results that
        are not finite.
    """
    return evaluate_tree(_parse(formula), names)


def evaluate_tree(tree: ast.expr, names: Mapping[str, Number]) -> float:
    """The value of an expression that was parsed before, see :func:`evaluate`."""
    try:
        value = _value(tree, names)
    except ZeroDivisionError:
        raise FormulaError("divides by zero") from None
    except (OverflowError, ValueError) as error:
        raise error if isinstance(error, FormulaError) else FormulaError("has no finite value") from None
    except RecursionError:
        raise FormulaError("is nested too deeply") from None
    if not math.isfinite(value):
        raise FormulaError("has no finite value")
    return value


def _parse(formula: str) -> ast.expr:
    try:
        return ast.parse(formula.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise FormulaError(f"{formula!r} is no formula; allowed: {_ALLOWED}") from None


def _value(node: ast.expr, names: Mapping[str, Number]) -> float:
    if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and not isinstance(node.value, bool):
        return float(node.value)
    if isinstance(node, ast.Name):
        return _named(node.id, names)
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        return -_value(node.operand, names)
    if isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        return _OPERATORS[type(node.op)](_value(node.left, names), _value(node.right, names))
    if isinstance(node, ast.Call) and not node.keywords and node.args:
        return _called(node, names)
    raise FormulaError(f"{ast.unparse(node)!r} is not allowed; allowed: {_ALLOWED}")


def _named(name: str, names: Mapping[str, Number]) -> float:
    if name in names:
        return float(names[name])
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"; did you mean {close[0]!r}?" if close else ""
    raise FormulaError(f"{name!r} is not known; known: {', '.join(sorted(names))}{hint}")


def _called(node: ast.Call, names: Mapping[str, Number]) -> float:
    function = _FUNCTIONS.get(node.func.id) if isinstance(node.func, ast.Name) else None
    if function is None:
        raise FormulaError(f"{ast.unparse(node.func)!r} cannot be called; only min and max can")
    values = [_value(argument, names) for argument in node.args]
    return function(values)
