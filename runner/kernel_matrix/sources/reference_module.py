"""Analyse Python sources without running them.

The host never imports a reference or a candidate, because both may be hostile and the host has no torch.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_matrix.model.enums import Language
from kernel_matrix.python_syntax import parse
from kernel_matrix.sources.document import UnreadableFileError, read_bytes
from kernel_matrix.sources.formula import FormulaError, evaluate_tree

Value = int | float | bool | str

_REQUIRED = {"Model": "class Model(nn.Module)", "get_inputs": "def get_inputs()"}
_TRITON_TEXT = re.compile(rb"^\s*@triton\.(jit|autotune|heuristics)\b", re.MULTILINE)
_CUDA_TEXT = re.compile(rb"\b(load_inline|cpp_extension)\b")
_PACKAGE_TEXT = re.compile(rb"^\s*(?:import|from)\s+(tilelang|cutlass)\b", re.MULTILINE)
_HIP_TEXT = re.compile(r"\bhipcc\b|__HIP_PLATFORM|\bhip/hip_runtime\.h\b")
_CUDA_HEADER = re.compile(r"#\s*include\s*<cuda")
"""Sources for both vendors include the headers of both; they count as CUDA."""

_PACKAGES = {"tilelang": Language.TILELANG, "cutlass": Language.CUTE_DSL}
"""Package that a candidate imports → language of the candidate."""


@dataclass(frozen=True, slots=True)
class ModuleConstant:
    """A name that is assigned at the top of a module."""

    value: Value | None
    """``None`` if it is neither a literal nor arithmetic over other constants."""
    uses: frozenset[str]
    """Constants in its expression."""
    line: int


@dataclass(frozen=True, slots=True)
class ReferenceModule:
    """A module in KernelBench's form."""

    path: Path
    source: bytes
    constants: Mapping[str, ModuleConstant]

    def dependents(self, name: str) -> tuple[str, ...]:
        """Return the constants computed from ``name`` at import, which do not change if ``name`` is replaced later."""
        return tuple(other for other, constant in self.constants.items() if name in constant.uses)

    def numbers(self, replaced: Mapping[str, Value]) -> dict[str, int | float]:
        """Return the numeric constants, with the values of a workload in place of the module's."""
        values = {name: constant.value for name, constant in self.constants.items()} | dict(replaced)
        return {name: value for name, value in values.items() if isinstance(value, (int, float))}


def read_reference(path: Path) -> ReferenceModule:
    """Read a reference module.

    Raises:
        UnreadableFileError: it is not valid Python, or lacks ``Model`` or ``get_inputs``.
    """
    source = read_bytes(path)
    tree = parse_module(path, source)
    missing = find_missing_definition(tree)
    if missing:
        raise UnreadableFileError(path, missing, max((node.end_lineno or 1 for node in tree.body), default=1))
    return ReferenceModule(path, source, _constants(tree))


def find_missing_definition(tree: ast.Module) -> str:
    """Return a message if a module lacks a definition of KernelBench's form, or an empty text."""
    defined = {name for node in tree.body for name in _bound_names(node)}
    missing = next((name for name in _REQUIRED if name not in defined), None)
    return f"defines no {missing}; KernelBench's form asks for `{_REQUIRED[missing]}`" if missing else ""


def detect_language(source: bytes) -> Language:
    """Detect the language of a candidate.

    The first that applies: TileLang or CuTe DSL if their package is imported; Triton if a kernel is jitted; HIP if a
    text names HIP's compiler, platform or header; CUDA if an extension is built; else PyTorch. In a source that does
    not parse, patterns in its text decide, because it still is a candidate and fails later.
    """
    try:
        nodes = list(ast.walk(parse(source)))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        packages = [found.decode() for found in _PACKAGE_TEXT.findall(source)]
        is_triton, is_cuda = _TRITON_TEXT.search(source) is not None, _CUDA_TEXT.search(source) is not None
        texts = source.decode(errors="replace")
    else:
        packages = [package for package in _PACKAGES if _names_imported(nodes, package)]
        jitted = _names_imported(nodes, "triton")
        functions = (node for node in nodes if isinstance(node, ast.FunctionDef))
        is_triton = any(root_name(decorator) in jitted for node in functions for decorator in node.decorator_list)
        is_cuda = any(name in ("load_inline", "cpp_extension") for name in _names_used(nodes))
        texts = "\n".join(_used_texts(nodes))
    if packages:
        return _PACKAGES[packages[0]]
    if is_triton:
        return Language.TRITON
    return detect_native_language(texts) or (Language.CUDA if is_cuda else Language.TORCH)


def detect_native_language(text: str) -> Language | None:
    """Return HIP if the text names HIP's compiler, platform or header and no CUDA header, else ``None``."""
    return Language.HIP if _HIP_TEXT.search(text) and not _CUDA_HEADER.search(text) else None


def packages_needed(source: bytes) -> frozenset[str]:
    """Return the packages that a module, its functions or its classes import unconditionally.

    Imports under a condition or in a ``try`` are optional and do not count. A source that does not parse needs none.
    """
    try:
        tree = parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    return frozenset(name.split(".")[0] for node in _unconditional_statements(tree) for name in _modules_imported(node))


def digest_of(source: bytes, facts: Mapping[str, Any]) -> str:
    """Return the SHA-256, as 64 hex digits, over a source and other facts that determine the answer."""
    document = {"source": hashlib.sha256(source).hexdigest(), **facts}
    canonical = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def parse_module(path: Path, source: bytes) -> ast.Module:
    """Parse the source in a file.

    Raises:
        UnreadableFileError: it is not valid Python.
    """
    try:
        return parse(source)
    except SyntaxError as error:
        raise UnreadableFileError(path, f"not valid Python: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFileError(path, f"not valid Python: {str(error) or 'nested too deeply'}") from None


def _bound_names(node: ast.stmt) -> list[str]:
    if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
        return [node.name]
    if isinstance(node, (ast.Import, ast.ImportFrom)):
        return [alias.asname or alias.name for alias in node.names]
    return [name for name, _ in _assignments(node)]


def _constants(tree: ast.Module) -> dict[str, ModuleConstant]:
    found: dict[str, ModuleConstant] = {}
    for node in tree.body:
        for name, value in _assignments(node):
            uses = frozenset(n.id for n in ast.walk(value) if isinstance(n, ast.Name))
            found[name] = ModuleConstant(_constant_value(value, found), uses & found.keys(), node.lineno)
    return found


def _assignments(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Yield each (name, value) that a statement assigns; two for ``M, N = 1, 2``."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        yield node.target.id, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpack(target, node.value)


def _unpack(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its_value in zip(target.elts, value.elts, strict=False):
            yield from _unpack(one, its_value)


def _constant_value(node: ast.expr, known: Mapping[str, ModuleConstant]) -> Value | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str)):
        return node.value
    numbers = {n: c.value for n, c in known.items() if isinstance(c.value, (int, float))}
    try:
        return evaluate_tree(node, numbers)
    except FormulaError:
        return None


def root_name(node: ast.expr) -> str:
    """Return the first name of an expression: ``triton`` of ``triton.autotune(…)``, ``x`` of ``x[0].add_(y)``."""
    while isinstance(node, (ast.Attribute, ast.Subscript, ast.Call)):
        node = node.func if isinstance(node, ast.Call) else node.value
    return node.id if isinstance(node, ast.Name) else ""


def _names_imported(nodes: Iterable[ast.AST], package: str) -> set[str]:
    """Return the names that a module gives to ``package`` and to imports from it."""
    names = set()
    for node in nodes:
        if isinstance(node, ast.Import):
            names |= {a.asname or a.name.split(".")[0] for a in node.names if a.name.split(".")[0] == package}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package:
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _unconditional_statements(tree: ast.Module) -> Iterator[ast.stmt]:
    """Yield the statements of a module, its functions and its classes that are not inside a compound statement."""
    blocks: list[list[ast.stmt]] = [tree.body]
    while blocks:
        for node in blocks.pop():
            yield node
            if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
                blocks.append(node.body)


def _modules_imported(node: ast.stmt) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    return [node.module or ""] if isinstance(node, ast.ImportFrom) and not node.level else []


def _used_texts(nodes: Sequence[ast.AST]) -> Iterator[str]:
    """Yield the string constants of a module except docstrings."""
    unused = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in unused:
            yield node.value


def _names_used(nodes: Iterable[ast.AST]) -> Iterator[str]:
    for node in nodes:
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
