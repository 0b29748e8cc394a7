"""Access to the descriptions of fields; see :mod:`kernel_matrix.model.fields`."""

from __future__ import annotations

import ast
import inspect
import textwrap
import types
import typing
from dataclasses import dataclass, fields, is_dataclass
from typing import Any, TypeVar

from kernel_matrix.model.fields import JsonOf

M = TypeVar("M")


@dataclass(frozen=True, slots=True)
class Description:
    """Type and marks of an annotation."""

    kind: Any
    """The type without its own marks; types inside a tuple or mapping keep theirs."""
    nullable: bool
    marks: tuple[Any, ...]

    def mark(self, of: type[M]) -> M | None:
        """Return the outermost mark of a class."""
        return next((mark for mark in reversed(self.marks) if isinstance(mark, of)), None)

    @property
    def dataclass(self) -> type | None:
        """Dataclass whose JSON form the value has; ``None`` for other values."""
        form = self.mark(JsonOf)
        if form is not None:
            return form.kind
        return self.kind if isinstance(self.kind, type) and is_dataclass(self.kind) else None


def describe(hint: Any) -> Description:
    """Return the description of an annotation."""
    if typing.get_origin(hint) is typing.Annotated:
        inner, *marks = typing.get_args(hint)
        found = describe(inner)
        return Description(found.kind, found.nullable, (*found.marks, *marks))
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        (one,) = (one for one in typing.get_args(hint) if one is not type(None))
        found = describe(one)
        return Description(found.kind, nullable=True, marks=found.marks)
    return Description(hint, nullable=False, marks=())


def described_fields(kind: type) -> dict[str, Description]:
    """Return the description of each field of a dataclass, by field name."""
    hints = typing.get_type_hints(kind, include_extras=True)
    return {field.name: describe(hints[field.name]) for field in fields(kind)}


def field_docs(kind: type) -> dict[str, str]:
    """Return the docstring of each field of a dataclass on one line, by field name; empty where there is none."""
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    assert isinstance(tree, ast.ClassDef)  # noqa: S101  # the source of a class is a class
    docs = dict.fromkeys((field.name for field in fields(kind)), "")
    for statement, below in zip(tree.body, tree.body[1:], strict=False):
        if not isinstance(statement, ast.AnnAssign) or not isinstance(statement.target, ast.Name):
            continue
        if isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant) and isinstance(below.value.value, str):
            docs[statement.target.id] = " ".join(below.value.value.split())
    return docs
