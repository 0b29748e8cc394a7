"""A candidate's source as rules look at it: a tree, the full names behind aliases, and the C++ inside strings."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.scan.embedded_cpp import CppText, native_texts
from kernel_matrix.scan.names import QualifiedNames
from kernel_matrix.scan.reach import ReachableCode
from kernel_matrix.scan.rule_match import MOST_EVIDENCE, RuleMatch

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class ScannedSource:
    """One candidate, parsed."""

    text: str
    tree: ast.Module
    language: Language
    dtype: Dtype
    entry: str
    """The class that is constructed and called."""

    @cached_property
    def lines(self) -> list[str]:
        """The source, line by line."""
        return self.text.splitlines()

    @cached_property
    def names(self) -> QualifiedNames:
        """What a name of this file stands for."""
        return QualifiedNames.of(self.tree)

    @cached_property
    def native(self) -> tuple[CppText, ...]:
        """The C++ in this file's strings."""
        return tuple(native_texts(self.tree))

    @cached_property
    def reach(self) -> ReachableCode:
        """What a call of the entry may come by."""
        return ReachableCode.of(self.tree, self.entry)

    @cached_property
    def module_variables(self) -> frozenset[str]:
        """Names that the module itself gives a value: extensions, as a rule."""
        nodes = (part for statement in self.tree.body if not _is_scope(statement) for part in ast.walk(statement))
        return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))

    @cached_property
    def kernel_definitions(self) -> tuple[ast.FunctionDef, ...]:
        """Functions that Triton compiles, helpers included."""
        functions = (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))
        return tuple(f for f in functions if any(self._is_jit(decorator) for decorator in f.decorator_list))

    @cached_property
    def host_nodes(self) -> tuple[ast.AST, ...]:
        """Every node outside of Triton kernels: what Python itself runs."""
        return tuple(_walk_but(self.tree, set(self.kernel_definitions)))

    @cached_property
    def kernel_nodes(self) -> tuple[ast.AST, ...]:
        """Every node inside of a Triton kernel."""
        return tuple(node for function in self.kernel_definitions for node in ast.walk(function))

    def called(self, nodes: Iterable[ast.AST] | None = None) -> Iterator[tuple[ast.Call, str]]:
        """The calls among ``nodes`` (null: all of the host's) whose function has a known full name."""
        for node in self.host_nodes if nodes is None else nodes:
            if isinstance(node, ast.Call) and (name := self.names.full(node.func)):
                yield node, name

    def finding(self, rule: str, at: ast.AST | int | None, message: str) -> RuleMatch:
        """A finding about the line of ``at``."""
        line = getattr(at, "lineno", None) if isinstance(at, ast.AST) else at
        shown = self.lines[line - 1].strip()[:MOST_EVIDENCE] if line is not None and line <= len(self.lines) else ""
        return RuleMatch(rule, line, message, shown)

    def _is_jit(self, decorator: ast.expr) -> bool:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = self.names.full(target)
        return name.startswith("triton.") and name.endswith(".jit")


def read_source(text: str, *, language: Language, dtype: Dtype, entry: str) -> ScannedSource | None:
    """The candidate whose source ``text`` is; null where it is no Python."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return ScannedSource(text, tree, language, dtype, entry)


def _is_scope(statement: ast.stmt) -> bool:
    return isinstance(statement, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef))


def _walk_but(tree: ast.AST, without: set[ast.FunctionDef]) -> Iterator[ast.AST]:
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if node not in without:
            yield node
            pending += reversed(list(ast.iter_child_nodes(node)))
