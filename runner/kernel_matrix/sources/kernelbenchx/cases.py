"""Find the calls of a function in a test by interpreting its syntax tree.

No code is run. Loops over literals are followed; a loop over another value is followed once.
"""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

MOST_ROUNDS = 64
"""Iterations of a loop that are followed; more calls than that are not needed."""

MOST_STEPS = 20_000
"""Statements that are followed, including iterations; a hostile test could nest loops."""

_MAX_NUMBER = 1 << 40
"""Larger numbers are not computed with, because they cannot be sizes."""

UNKNOWN = object()
"""Literal of a value that is not known from the text."""

_KINDS: Mapping[str, str] = {
    **dict.fromkeys(("float32", "float"), "fp32"),
    **dict.fromkeys(("float64", "double"), "fp64"),
    **dict.fromkeys(("float16", "half"), "fp16"),
    "bfloat16": "bf16",
    "int8": "int8",
    **dict.fromkeys(("int32", "int"), "int32"),
    "bool": "bool",
    **dict.fromkeys(("int16", "short", "int64", "long", "uint8"), "whole"),
    **dict.fromkeys(("complex64", "complex128", "cfloat", "cdouble"), "complex"),
}
"""Name of a dtype in torch, or of the tensor method that casts to it → kind of number."""

_NORMAL = frozenset({"randn", "randn_like", "rand_tensor"})
"""Calls that draw from normal distributions; such inputs may get outliers."""
_WHOLE = {"rand_int": "whole", "randint": "whole", "randperm": "whole", "rand_bool": "bool"}
"""Calls that draw whole numbers → kind of number."""
_DRAWS = _NORMAL | set(_WHOLE) | {"rand", "rand_like", "normal", "bernoulli", "uniform_", "normal_", "random_"}
_FIXED_TENSORS = frozenset({"tensor", "zeros", "ones", "full", "eye", "empty", "arange", "linspace"})
"""Calls that make a tensor of fixed values."""
_KEEPING = frozenset({"to", "cuda", "clone", "contiguous", "detach", "requires_grad_"})
"""Methods that do not change the numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOrigin:
    """Facts about a value that are known from the text."""

    literal: Any = UNKNOWN
    """The value, if known."""
    drawn: bool = False
    """It depends on random numbers."""
    plain: bool = True
    """All floating tensors in it are unchanged draws from normal distributions."""
    elements: int = 0
    """Number of elements of the largest tensor in it, as far as known."""
    kinds: frozenset[str] = frozenset()
    """Kinds of number in its tensors, see :data:`_KINDS`."""
    words: frozenset[str] = frozenset()
    """All literals that it was made from."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCall:
    """One call of the function."""

    number: int
    """Number among all calls of the test, from 0."""
    line: int
    made: ValueOrigin
    """Facts about all of its arguments together."""
    positional: tuple[Any, ...]
    """Positional arguments if known, else :data:`UNKNOWN`."""
    named: Mapping[str, Any]
    """Keyword arguments if known, else :data:`UNKNOWN`."""

    @property
    def alike(self) -> tuple[int, frozenset[str]]:
        """Key that is equal for calls that differ only in random numbers."""
        return self.line, self.made.words

    @property
    def kind(self) -> str:
        """Main kind of number of the arguments; of several floating ones the narrowest."""
        order = ("complex", "fp16", "bf16", "fp32", "fp64", "int8", "int32", "whole", "bool")
        return next((kind for kind in order if kind in self.made.kinds), "fp32")


def cases_of(test: ast.Module, function: str) -> tuple[TestCall, ...]:
    """Return the calls of ``function`` in the module ``test`` in order; functions of the test count as called once."""
    walk = _Walk(function)
    walk.block(test.body, {})
    return tuple(walk.cases)


@dataclass(slots=True)
class _Walk:
    """Interpreter of a test that follows assignments, loops and branches."""

    function: str
    cases: list[TestCall] = field(default_factory=list)
    steps: int = 0

    def block(self, statements: Sequence[ast.stmt], names: dict[str, ValueOrigin]) -> None:
        for statement in statements:
            self.steps += 1
            if self.steps < MOST_STEPS:
                self._statement(statement, names)

    def _statement(self, node: ast.stmt, names: dict[str, ValueOrigin]) -> None:  # noqa: C901, PLR0912  # one case per kind
        match node:
            case ast.FunctionDef():
                self.block(node.body, dict(names))
            case ast.Assign():
                value = self._evaluate(node.value, names)
                for target in node.targets:
                    _assign(target, value, names)
            case ast.AugAssign() | ast.AnnAssign(value=ast.expr()):
                value = _transform([self._evaluate(part, names) for part in _subexpressions(node)])
                _assign(node.target, value, names)
            case ast.For():
                for item in _loop_values(self._evaluate(node.iter, names)):
                    _assign(node.target, item, names)
                    self.block(node.body, names)
            case ast.If():
                for branch in _branches(self._evaluate(node.test, names), node.body, node.orelse):
                    self.block(branch, names)
            case ast.With():
                for manager in node.items:
                    self._evaluate(manager.context_expr, names)
                self.block(node.body, names)
            case ast.Try():
                self.block([*node.body, *node.orelse, *node.finalbody], names)
            case _:
                for part in _subexpressions(node):
                    self._evaluate(part, names)

    def _evaluate(self, node: ast.expr, names: dict[str, ValueOrigin]) -> ValueOrigin:  # noqa: PLR0911  # one line per kind of expression
        match node:
            case ast.Constant():
                return _literal(node.value)
            case ast.Attribute(value=ast.Name(id="torch"), attr=attribute):
                return _literal(_Dtype(attribute)) if attribute in _KINDS else ValueOrigin()
            case ast.Name():
                return names.get(node.id, ValueOrigin())
            case ast.Call():
                return self._call(node, names)
            case ast.ListComp(generators=[loop]) | ast.GeneratorExp(generators=[loop]):
                return _combine([self._evaluate(node.elt, inner) for inner in self._comprehension_scopes(loop, names)])
            case ast.Tuple() | ast.List() | ast.Starred():
                parts = [self._evaluate(part, names) for part in _subexpressions(node)]
                return replace(_combine(parts), literal=_compute(node, parts))
            case _:
                parts = [self._evaluate(part, names) for part in _subexpressions(node)]
                return replace(_transform(parts), literal=_compute(node, parts))

    def _comprehension_scopes(
        self, loop: ast.comprehension, names: dict[str, ValueOrigin]
    ) -> Iterator[dict[str, ValueOrigin]]:
        for item in _loop_values(self._evaluate(loop.iter, names)):
            inner = dict(names)
            _assign(loop.target, item, inner)
            yield inner

    def _call(self, node: ast.Call, names: dict[str, ValueOrigin]) -> ValueOrigin:
        receiver = [self._evaluate(node.func.value, names)] if isinstance(node.func, ast.Attribute) else []
        positional = [self._evaluate(argument, names) for argument in node.args]
        named = {keyword.arg or "": self._evaluate(keyword.value, names) for keyword in node.keywords}
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [*positional, *named.values()]
        if not receiver and name == self.function:
            self.cases.append(
                TestCall(
                    number=len(self.cases),
                    line=node.lineno,
                    made=_combine(given),
                    positional=tuple(argument.literal for argument in positional),
                    named={keyword: argument.literal for keyword, argument in named.items()},
                )
            )
        if name in _DRAWS or name in _FIXED_TENSORS:
            return _make_tensor(name, _combine([*receiver, *given]), positional, named)
        if name in _BUILTINS and not receiver and all(part.literal is not UNKNOWN for part in given):
            return _literal(_first_items(name, [part.literal for part in positional]))
        if name in _KINDS:
            return replace(_combine(receiver), kinds=frozenset({_KINDS[name]}))
        whole = _combine([*receiver, *given]) if name in _KEEPING else _transform([*receiver, *given])
        is_cast = name == "to" and _combine(given).kinds
        return replace(whole, kinds=_combine(given).kinds) if is_cast else whole


class _Dtype(str):
    """Name of a dtype as a literal, because tests loop over dtypes."""

    __slots__ = ()


_BUILTINS: Mapping[str, Callable[..., Any]] = {"range": range, "enumerate": enumerate, "zip": zip}

_OPERATIONS: Mapping[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.FloorDiv: operator.floordiv,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
}


def _assign(target: ast.expr, value: ValueOrigin, names: dict[str, ValueOrigin]) -> None:
    if isinstance(target, ast.Name):
        names[target.id] = value
    elif isinstance(target, (ast.Tuple, ast.List)):
        literal = value.literal
        known = isinstance(literal, (tuple, list)) and len(literal) == len(target.elts)
        for place, part in enumerate(target.elts):
            _assign(part, _literal(literal[place]) if known else replace(value, literal=UNKNOWN), names)
    elif isinstance(target, (ast.Subscript, ast.Attribute)) and isinstance(target.value, ast.Name):
        names[target.value.id] = _transform([names.get(target.value.id, ValueOrigin()), value])


def _loop_values(items: ValueOrigin) -> list[ValueOrigin]:
    """Return the values of a loop's variable."""
    if isinstance(items.literal, (tuple, list)):
        return [_literal(item) for item in items.literal[:MOST_ROUNDS]]
    return [replace(items, literal=UNKNOWN)]


def _branches(condition: ValueOrigin, yes: list[ast.stmt], no: list[ast.stmt]) -> list[list[ast.stmt]]:
    if condition.literal is UNKNOWN:
        return [yes, no]
    return [yes if condition.literal else no]


def _first_items(builtin: str, arguments: Sequence[Any]) -> Any:
    """Return the first items of ``range(…)`` and the like, as many as a loop is followed for."""
    try:
        return list(itertools.islice(_BUILTINS[builtin](*arguments), MOST_ROUNDS))
    except (TypeError, ValueError):
        return UNKNOWN


def _subexpressions(node: ast.AST) -> Iterator[ast.expr]:
    return (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def _literal(value: Any) -> ValueOrigin:
    kinds = frozenset({_KINDS[value]}) if isinstance(value, _Dtype) else frozenset[str]()
    return ValueOrigin(literal=value, kinds=kinds, words=frozenset({repr(value)}))


def _combine(parts: Sequence[ValueOrigin]) -> ValueOrigin:
    """Return the facts about several values together."""
    return ValueOrigin(
        drawn=any(part.drawn for part in parts),
        plain=all(part.plain for part in parts),
        elements=max((part.elements for part in parts), default=0),
        kinds=frozenset().union(*(part.kinds for part in parts)),
        words=frozenset().union(*(part.words for part in parts)),
    )


def _transform(parts: Sequence[ValueOrigin]) -> ValueOrigin:
    """Return the facts about a result computed from several values; its tensors are not plain draws."""
    whole = _combine(parts)
    return replace(whole, plain=whole.plain and not whole.elements)


def _make_tensor(
    name: str, given: ValueOrigin, positional: Sequence[ValueOrigin], named: Mapping[str, ValueOrigin]
) -> ValueOrigin:
    """Return the facts about a new tensor, drawn or made of fixed values."""
    first = positional[0].literal if positional else named.get("size", ValueOrigin()).literal
    sizes = next((p.literal for p in positional if isinstance(p.literal, (tuple, list))), first)
    if name == "tensor":
        elements = len(list(_leaves(first)))
    elif isinstance(sizes, (tuple, list)):
        elements = _product(sizes)
    else:
        elements = _product([p.literal for p in positional])
    kinds = named["dtype"].kinds if "dtype" in named else _default_kinds(name, given, first)
    plain = name in _NORMAL and named.get("mode", ValueOrigin()).literal != "uniform"
    return ValueOrigin(
        drawn=name in _DRAWS or given.drawn,
        plain=plain or name in _WHOLE,
        elements=max(elements, given.elements, 1),
        kinds=kinds,
        words=given.words,
    )


def _default_kinds(name: str, given: ValueOrigin, first: Any) -> frozenset[str]:
    """Return the kinds of number of a new tensor without a dtype argument."""
    if name in _WHOLE:
        return frozenset({_WHOLE[name]})
    if name.endswith(("_like", "_")):
        return given.kinds
    leaves = {type(leaf) for leaf in _leaves(first)} if name in ("tensor", "arange") else set[type]()
    if complex in leaves:
        return frozenset({"complex"})
    if leaves and leaves <= {bool, int}:
        return frozenset({"bool" if leaves == {bool} else "whole"})
    return frozenset({"fp32"})


def _leaves(value: Any) -> Iterator[Any]:
    for part in value if isinstance(value, (tuple, list)) else ():
        yield from _leaves(part)
    if not isinstance(value, (tuple, list)) and value is not UNKNOWN:
        yield value


def _product(sizes: Sequence[Any]) -> int:
    """Multiply the sizes that are known."""
    return math.prod(size for size in sizes if type(size) is int and 0 <= size < _MAX_NUMBER)


def _compute(node: ast.expr, parts: Sequence[ValueOrigin]) -> Any:
    """Return the value of an expression of known values, or :data:`UNKNOWN`."""
    values = [part.literal for part in parts]
    if any(value is UNKNOWN for value in values):
        return UNKNOWN
    match node:
        case ast.Tuple():
            return tuple(values)
        case ast.List():
            return values
        case ast.BinOp(op=operation) | ast.Compare(ops=[operation]) if type(operation) in _OPERATIONS:
            return _apply(_OPERATIONS[type(operation)], values)
        case _:
            return UNKNOWN


def _apply(operation: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    """Apply an operation to two numbers that are not too large, or compare two values."""
    numbers = all(type(value) in (int, float) and abs(value) < _MAX_NUMBER for value in values)
    if not numbers and operation not in (operator.eq, operator.ne):
        return UNKNOWN
    try:
        return operation(*values)
    except ZeroDivisionError:
        return UNKNOWN
