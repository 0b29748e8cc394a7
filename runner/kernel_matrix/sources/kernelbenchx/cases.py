"""Which calls a test makes of a function, read off its text: loops over what is written down are gone through.

Nothing is run. What cannot be told is guessed: a loop over anything else is taken to go round once.
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
"""Of one loop; nobody writes down more calls than that."""

MOST_STEPS = 20_000
"""Statements that are gone through, loops and all; what comes after them is not seen."""

_LARGE = 1 << 40
"""No size in a test is; such a number is not computed with."""

UNKNOWN = object()
"""The literal of a value that is not written down."""

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
"""What torch calls a dtype, or a tensor the change to it → kind of number."""

_NORMAL = frozenset({"randn", "randn_like", "rand_tensor"})
"""Calls that draw from normal distributions: such numbers can be made larger, or whole."""
_WHOLE = {"rand_int": "whole", "randint": "whole", "randperm": "whole", "rand_bool": "bool"}
"""Calls that draw whole numbers → their kind."""
_DRAWS = _NORMAL | set(_WHOLE) | {"rand", "rand_like", "normal", "bernoulli", "uniform_", "normal_", "random_"}
_FIXED = frozenset({"tensor", "zeros", "ones", "full", "eye", "empty", "arange", "linspace"})
"""Calls that make a tensor of what is written down."""
_KEEPING = frozenset({"to", "cuda", "clone", "contiguous", "detach", "requires_grad_"})
"""Methods that leave the numbers what they are."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueOrigin:
    """What a value was made from, as far as the text says."""

    literal: Any = UNKNOWN
    """The value itself, where it is written down."""
    drawn: bool = False
    """A random generator had a part in it."""
    plain: bool = True
    """All floating tensors in it are as they were drawn from normal distributions."""
    elements: int = 0
    """Of the largest tensor in it, as far as shapes are written down."""
    kinds: frozenset[str] = frozenset()
    """Kinds of number in its tensors, see :data:`_KINDS`."""
    words: frozenset[str] = frozenset()
    """Everything that is written down of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TestCall:
    """One call of the function."""

    number: int
    """Its place among all calls that the test makes, from 0."""
    line: int
    made: ValueOrigin
    """What its arguments are made from."""
    positional: tuple[Any, ...]
    """Its arguments, where they are written down; else :data:`UNKNOWN`."""
    named: Mapping[str, Any]
    """The same of those given by name."""

    @property
    def alike(self) -> tuple[int, frozenset[str]]:
        """Equal for calls that differ in their random numbers alone."""
        return self.line, self.made.words

    @property
    def kind(self) -> str:
        """The one kind of number that it is about; of several floating ones the narrowest."""
        order = ("complex", "fp16", "bf16", "fp32", "fp64", "int8", "int32", "whole", "bool")
        return next((kind for kind in order if kind in self.made.kinds), "fp32")


def cases_of(test: ast.Module, function: str) -> tuple[TestCall, ...]:
    """The calls that the module ``test`` makes of ``function``, in order; each of its own functions is run once."""
    walk = _Walk(function)
    walk.block(test.body, {})
    return tuple(walk.cases)


@dataclass(slots=True)
class _Walk:
    """Goes through a test as Python would, with little more than names and loops."""

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
                value = self._made(node.value, names)
                for target in node.targets:
                    _assign(target, value, names)
            case ast.AugAssign() | ast.AnnAssign(value=ast.expr()):
                value = _changed([self._made(part, names) for part in _parts_of(node)])
                _assign(node.target, value, names)
            case ast.For():
                for item in _rounds(self._made(node.iter, names)):
                    _assign(node.target, item, names)
                    self.block(node.body, names)
            case ast.If():
                for branch in _branches(self._made(node.test, names), node.body, node.orelse):
                    self.block(branch, names)
            case ast.With():
                for manager in node.items:
                    self._made(manager.context_expr, names)
                self.block(node.body, names)
            case ast.Try():
                self.block([*node.body, *node.orelse, *node.finalbody], names)
            case _:
                for part in _parts_of(node):
                    self._made(part, names)

    def _made(self, node: ast.expr, names: dict[str, ValueOrigin]) -> ValueOrigin:  # noqa: PLR0911  # one line per kind of expression
        match node:
            case ast.Constant():
                return _written(node.value)
            case ast.Attribute(value=ast.Name(id="torch"), attr=attribute):
                return _written(_Dtype(attribute)) if attribute in _KINDS else ValueOrigin()
            case ast.Name():
                return names.get(node.id, ValueOrigin())
            case ast.Call():
                return self._call(node, names)
            case ast.ListComp(generators=[loop]) | ast.GeneratorExp(generators=[loop]):
                return _together([self._made(node.elt, inner) for inner in self._rounds_of(loop, names)])
            case ast.Tuple() | ast.List() | ast.Starred():
                parts = [self._made(part, names) for part in _parts_of(node)]
                return replace(_together(parts), literal=_computed(node, parts))
            case _:
                parts = [self._made(part, names) for part in _parts_of(node)]
                return replace(_changed(parts), literal=_computed(node, parts))

    def _rounds_of(self, loop: ast.comprehension, names: dict[str, ValueOrigin]) -> Iterator[dict[str, ValueOrigin]]:
        for item in _rounds(self._made(loop.iter, names)):
            inner = dict(names)
            _assign(loop.target, item, inner)
            yield inner

    def _call(self, node: ast.Call, names: dict[str, ValueOrigin]) -> ValueOrigin:
        receiver = [self._made(node.func.value, names)] if isinstance(node.func, ast.Attribute) else []
        positional = [self._made(argument, names) for argument in node.args]
        named = {keyword.arg or "": self._made(keyword.value, names) for keyword in node.keywords}
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        given = [*positional, *named.values()]
        if not receiver and name == self.function:
            self.cases.append(
                TestCall(
                    number=len(self.cases),
                    line=node.lineno,
                    made=_together(given),
                    positional=tuple(argument.literal for argument in positional),
                    named={keyword: argument.literal for keyword, argument in named.items()},
                )
            )
        if name in _DRAWS or name in _FIXED:
            return _tensor(name, _together([*receiver, *given]), positional, named)
        if name in _BUILTINS and not receiver and all(part.literal is not UNKNOWN for part in given):
            return _written(_first_of(name, [part.literal for part in positional]))
        if name in _KINDS:
            return replace(_together(receiver), kinds=frozenset({_KINDS[name]}))
        whole = _together([*receiver, *given]) if name in _KEEPING else _changed([*receiver, *given])
        is_cast = name == "to" and _together(given).kinds
        return replace(whole, kinds=_together(given).kinds) if is_cast else whole


class _Dtype(str):
    """The name of a dtype as a literal: tests loop over them."""

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
            _assign(part, _written(literal[place]) if known else replace(value, literal=UNKNOWN), names)
    elif isinstance(target, (ast.Subscript, ast.Attribute)) and isinstance(target.value, ast.Name):
        names[target.value.id] = _changed([names.get(target.value.id, ValueOrigin()), value])


def _rounds(items: ValueOrigin) -> list[ValueOrigin]:
    """What a loop's variable is, round by round."""
    if isinstance(items.literal, (tuple, list)):
        return [_written(item) for item in items.literal[:MOST_ROUNDS]]
    return [replace(items, literal=UNKNOWN)]


def _branches(condition: ValueOrigin, yes: list[ast.stmt], no: list[ast.stmt]) -> list[list[ast.stmt]]:
    if condition.literal is UNKNOWN:
        return [yes, no]
    return [yes if condition.literal else no]


def _first_of(builtin: str, arguments: Sequence[Any]) -> Any:
    """As many items of ``range(…)`` and the like as a loop is followed for."""
    try:
        return list(itertools.islice(_BUILTINS[builtin](*arguments), MOST_ROUNDS))
    except (TypeError, ValueError):
        return UNKNOWN


def _parts_of(node: ast.AST) -> Iterator[ast.expr]:
    return (child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))


def _written(value: Any) -> ValueOrigin:
    kinds = frozenset({_KINDS[value]}) if isinstance(value, _Dtype) else frozenset[str]()
    return ValueOrigin(literal=value, kinds=kinds, words=frozenset({repr(value)}))


def _together(parts: Sequence[ValueOrigin]) -> ValueOrigin:
    """Several values side by side."""
    return ValueOrigin(
        drawn=any(part.drawn for part in parts),
        plain=all(part.plain for part in parts),
        elements=max((part.elements for part in parts), default=0),
        kinds=frozenset().union(*(part.kinds for part in parts)),
        words=frozenset().union(*(part.words for part in parts)),
    )


def _changed(parts: Sequence[ValueOrigin]) -> ValueOrigin:
    """What is computed from several values: of tensors, others than were drawn."""
    whole = _together(parts)
    return replace(whole, plain=whole.plain and not whole.elements)


def _tensor(
    name: str, given: ValueOrigin, positional: Sequence[ValueOrigin], named: Mapping[str, ValueOrigin]
) -> ValueOrigin:
    """A tensor that is drawn, or made of what is written down."""
    first = positional[0].literal if positional else named.get("size", ValueOrigin()).literal
    sizes = next((p.literal for p in positional if isinstance(p.literal, (tuple, list))), first)
    if name == "tensor":
        elements = len(list(_leaves(first)))
    elif isinstance(sizes, (tuple, list)):
        elements = _product(sizes)
    else:
        elements = _product([p.literal for p in positional])
    kinds = named["dtype"].kinds if "dtype" in named else _usual_kinds(name, given, first)
    plain = name in _NORMAL and named.get("mode", ValueOrigin()).literal != "uniform"
    return ValueOrigin(
        drawn=name in _DRAWS or given.drawn,
        plain=plain or name in _WHOLE,
        elements=max(elements, given.elements, 1),
        kinds=kinds,
        words=given.words,
    )


def _usual_kinds(name: str, given: ValueOrigin, first: Any) -> frozenset[str]:
    """What a tensor is of where nobody says."""
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
    """Of the sizes that are known."""
    return math.prod(size for size in sizes if type(size) is int and 0 <= size < _LARGE)


def _computed(node: ast.expr, parts: Sequence[ValueOrigin]) -> Any:
    """The value of an expression over what is written down."""
    values = [part.literal for part in parts]
    if any(value is UNKNOWN for value in values):
        return UNKNOWN
    match node:
        case ast.Tuple():
            return tuple(values)
        case ast.List():
            return values
        case ast.BinOp(op=operation) | ast.Compare(ops=[operation]) if type(operation) in _OPERATIONS:
            return _operated(_OPERATIONS[type(operation)], values)
        case _:
            return UNKNOWN


def _operated(operation: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    """Of two numbers of a size that shapes have, or of two words that are compared."""
    numbers = all(type(value) in (int, float) and abs(value) < _LARGE for value in values)
    if not numbers and operation not in (operator.eq, operator.ne):
        return UNKNOWN
    try:
        return operation(*values)
    except ZeroDivisionError:
        return UNKNOWN
