"""What can be known of a Python source without running it.

The host never imports a reference or a candidate: both may be hostile, and torch is not there.
"""

from __future__ import annotations

import ast
import hashlib
import json
import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_matrix.model.enums import Language
from kernel_matrix.sources.document import UnreadableFileError, read_bytes
from kernel_matrix.sources.formula import FormulaError, evaluate_tree

Value = int | float | bool | str

_REQUIRED = (("Model", "class Model(nn.Module)"), ("get_inputs", "def get_inputs()"))
_TRITON_TEXT = re.compile(rb"^\s*@triton\.(jit|autotune|heuristics)\b", re.MULTILINE)
_CUDA_TEXT = re.compile(rb"\b(load_inline|cpp_extension)\b")
_PACKAGE_TEXT = re.compile(rb"^\s*(?:import|from)\s+(tilelang|cutlass)\b", re.MULTILINE)
_HIP_TEXT = re.compile(r"\bhipcc\b|__HIP_PLATFORM|\bhip/hip_runtime\.h\b")
_CUDA_HEADER = re.compile(r"#\s*include\s*<cuda")
"""Sources for both vendors include either's headers; here they are CUDA."""

_PACKAGES = {"tilelang": Language.TILELANG, "cutlass": Language.CUTE_DSL}
"""Packages without which a candidate cannot even be imported, and what candidates that import them are written in."""


@dataclass(frozen=True, slots=True)
class ModuleConstant:
    """One module-level name that is assigned once or more at the top of a module."""

    value: Value | None
    """Null where it is not plain text or arithmetic over other constants."""
    uses: frozenset[str]
    """Names its value is made from."""
    line: int


@dataclass(frozen=True, slots=True)
class ReferenceModule:
    """A module in KernelBench's form."""

    path: Path
    source: bytes
    constants: Mapping[str, ModuleConstant]
    docstring: str

    def dependents(self, name: str) -> tuple[str, ...]:
        """Constants that are computed from ``name`` when the module is imported, so they do not follow it later."""
        return tuple(other for other, constant in self.constants.items() if name in constant.uses)

    def numbers(self, replaced: Mapping[str, Value]) -> dict[str, int | float]:
        """The numeric constants, with the values of a workload in place of the module's."""
        values = {name: constant.value for name, constant in self.constants.items()} | dict(replaced)
        return {name: value for name, value in values.items() if isinstance(value, (int, float))}


def read_reference(path: Path) -> ReferenceModule:
    """Read a reference module.

    :raises UnreadableError: when it is no Python, or lacks ``Model`` or ``get_inputs``.
    """
    source = read_bytes(path)
    tree = _parse_reference(path, source)
    defined = {name: node for node in tree.body for name in _names_bound(node)}
    for name, form in _REQUIRED:
        if name not in defined:
            raise UnreadableFileError(
                path, f"defines no {name}; KernelBench's form asks for `{form}`", _last_line(tree)
            )
    model = defined["Model"]
    docstring = ast.get_docstring(model) if isinstance(model, ast.ClassDef) else None
    return ReferenceModule(path, source, _constants(tree), docstring or "")


def detect_language(source: bytes) -> Language:
    """What a candidate is written in.

    TileLang or CuTe DSL where their package is imported; else Triton where a kernel is jitted; else HIP where its texts
    name HIP's compiler, platform or header; else CUDA where an extension is built; else PyTorch. A source that does not
    parse is a candidate too, and fails later under its own name; its text decides.
    """
    try:
        tree = _parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        packages = [found.decode() for found in _PACKAGE_TEXT.findall(source)]
        is_triton, is_cuda = _TRITON_TEXT.search(source) is not None, _CUDA_TEXT.search(source) is not None
        texts = source.decode(errors="replace")
    else:
        packages = [package for package in _PACKAGES if _names_imported(tree, package)]
        jitted = _names_imported(tree, "triton")
        is_triton = any(_root(d) in jitted for d in _decorators(tree))
        is_cuda = any(name in ("load_inline", "cpp_extension") for name in _names_used(tree))
        texts = "\n".join(_texts(tree))
    if packages:
        return _PACKAGES[packages[0]]
    if is_triton:
        return Language.TRITON
    return detect_native_language(texts) or (Language.CUDA if is_cuda else Language.TORCH)


def detect_native_language(text: str) -> Language | None:
    """HIP where C++, or what builds it, names HIP's compiler, platform or header and no header of CUDA's; else null."""
    return Language.HIP if _HIP_TEXT.search(text) and not _CUDA_HEADER.search(text) else None


def packages_needed(source: bytes) -> frozenset[str]:
    """Packages that a module must have: it, or a function or class of it, imports them and has no other way.

    What is imported under a condition or in a ``try`` is not among them: a source that asks first can do without, or
    choose to fail there. One that does not parse needs nothing.
    """
    try:
        tree = _parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return frozenset()
    return frozenset(name.split(".")[0] for node in _unconditional(tree) for name in _modules_imported(node))


def digest_of(source: bytes, facts: Mapping[str, Any]) -> str:
    """SHA-256 over a source and what else determines the answer, as 64 hex digits."""
    document = {"source": hashlib.sha256(source).hexdigest(), **facts}
    canonical = json.dumps(document, allow_nan=False, ensure_ascii=True, separators=(",", ":"), sort_keys=True)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _parse(source: bytes) -> ast.Module:
    with warnings.catch_warnings():
        # Sources of others may hold "\d" and the like, which is theirs to mend and not worth a line here.
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _parse_reference(path: Path, source: bytes) -> ast.Module:
    try:
        return _parse(source)
    except SyntaxError as error:
        raise UnreadableFileError(path, f"not valid Python: {error.msg}", error.lineno) from None
    except (ValueError, RecursionError, MemoryError) as error:
        raise UnreadableFileError(path, f"not valid Python: {str(error) or 'nested too deeply'}") from None


def _last_line(tree: ast.Module) -> int:
    return max((node.end_lineno or 1 for node in tree.body), default=1)


def _names_bound(node: ast.stmt) -> list[str]:
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
            found[name] = ModuleConstant(_value_of(value, found), uses & found.keys(), node.lineno)
    return found


def _assignments(node: ast.stmt) -> Iterator[tuple[str, ast.expr]]:
    """Each (name, value) that a statement assigns; ``M, N = 1, 2`` assigns two."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        yield node.target.id, node.value
    elif isinstance(node, ast.Assign):
        for target in node.targets:
            yield from _unpacked(target, node.value)


def _unpacked(target: ast.expr, value: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    if isinstance(target, ast.Name):
        yield target.id, value
    elif isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
        for one, its_value in zip(target.elts, value.elts, strict=False):
            yield from _unpacked(one, its_value)


def _value_of(node: ast.expr, known: Mapping[str, ModuleConstant]) -> Value | None:
    if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str)):
        return node.value
    numbers = {n: c.value for n, c in known.items() if isinstance(c.value, (int, float))}
    try:
        return evaluate_tree(node, numbers)
    except FormulaError:
        return None


def _decorators(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef):
            yield from node.decorator_list


def _root(node: ast.expr) -> str:
    """``triton`` of ``@triton.autotune(...)``."""
    while isinstance(node, (ast.Attribute, ast.Call)):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def _names_imported(tree: ast.Module, package: str) -> set[str]:
    """What a module calls the things it imports from ``package``."""
    names = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {a.asname or a.name.split(".")[0] for a in node.names if a.name.split(".")[0] == package}
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == package:
            names |= {alias.asname or alias.name for alias in node.names}
    return names


def _unconditional(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements of a module, its functions and its classes that nothing stands before."""
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


def _texts(tree: ast.Module) -> Iterator[str]:
    """Every text in a module that something is done with: C++, what is said to compilers, but no docstring."""
    idle = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in idle:
            yield node.value


def _names_used(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module or "").split(".")
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (part for alias in node.names for part in alias.name.split("."))
