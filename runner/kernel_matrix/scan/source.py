"""A candidate's parsed source as rules read it: syntax tree, full names, and C++ in strings."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from kernel_matrix.model.enums import Dtype, Language
from kernel_matrix.python_syntax import parse
from kernel_matrix.scan.embedded_cpp import CppText, find_cpp_texts
from kernel_matrix.scan.names import QualifiedNames
from kernel_matrix.scan.reach import Definition, ReachableCode
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
    """Class that is constructed and called, or function that is called."""

    @cached_property
    def lines(self) -> list[str]:
        """The source, line by line."""
        return self.text.splitlines()

    @cached_property
    def names(self) -> QualifiedNames:
        """Full names of the names in this file."""
        return QualifiedNames.of(self.tree)

    @cached_property
    def native(self) -> tuple[CppText, ...]:
        """C++ texts in the strings of this file."""
        return tuple(find_cpp_texts(self.tree))

    @cached_property
    def reach(self) -> ReachableCode:
        """Code that a call of the entry may reach."""
        return ReachableCode.of(self.tree, self.entry)

    @cached_property
    def module_variables(self) -> frozenset[str]:
        """Names assigned at module level, which are mostly extensions."""
        statements = (statement for statement in self.tree.body if not isinstance(statement, Definition))
        nodes = (node for statement in statements for node in ast.walk(statement))
        return frozenset(n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store))

    @cached_property
    def kernel_definitions(self) -> tuple[ast.FunctionDef, ...]:
        """Functions that Triton compiles, including helpers of kernels."""
        functions = (node for node in ast.walk(self.tree) if isinstance(node, ast.FunctionDef))
        return tuple(f for f in functions if any(self._is_jit(decorator) for decorator in f.decorator_list))

    @cached_property
    def host_nodes(self) -> tuple[ast.AST, ...]:
        """Every node outside of Triton kernels."""
        return tuple(_walk_without(self.tree, set(self.kernel_definitions)))

    @cached_property
    def kernel_nodes(self) -> tuple[ast.AST, ...]:
        """Every node inside Triton kernels."""
        return tuple(node for function in self.kernel_definitions for node in ast.walk(function))

    def called(self, nodes: Iterable[ast.AST] | None = None) -> Iterator[tuple[ast.Call, str]]:
        """Yield (call, full name of its function) for calls of known functions.

        Args:
            nodes: nodes to search; ``None`` for all outside of Triton kernels.
        """
        for node in self.host_nodes if nodes is None else nodes:
            if isinstance(node, ast.Call) and (name := self.names.full(node.func)):
                yield node, name

    def finding(self, rule: str, at: ast.AST | int | None, message: str) -> RuleMatch:
        """Make a finding about the line of ``at``."""
        line = getattr(at, "lineno", None) if isinstance(at, ast.AST) else at
        shown = self.lines[line - 1].strip()[:MOST_EVIDENCE] if line is not None and line <= len(self.lines) else ""
        return RuleMatch(rule, line, message, shown)

    def _is_jit(self, decorator: ast.expr) -> bool:
        target = decorator.func if isinstance(decorator, ast.Call) else decorator
        name = self.names.full(target)
        return name.startswith("triton.") and name.endswith(".jit")


def read_source(text: str, *, language: Language, dtype: Dtype, entry: str) -> ScannedSource | None:
    """Parse a candidate's source; return ``None`` if it is not valid Python."""
    try:
        tree = parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    return ScannedSource(text, tree, language, dtype, entry)


def _walk_without(tree: ast.AST, without: set[ast.FunctionDef]) -> Iterator[ast.AST]:
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if node not in without:
            yield node
            pending += reversed(list(ast.iter_child_nodes(node)))
