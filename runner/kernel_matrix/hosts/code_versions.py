"""Hashes of the code that determines a measurement, and of the code that determines a build.

A hash is taken over syntax trees, so that comments, docstrings and formatting do not change it. It is the same for
every Python that runs this program, 3.10 to 3.14.
"""

from __future__ import annotations

import ast
import functools
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from kernel_matrix.judge_checks import added_checks
from kernel_matrix.platforms.registry import inside_folder
from kernel_matrix.python_syntax import parse

PACKAGE = Path(__file__).resolve().parents[1]

# Adapters of native candidates import this module at run time, so no import statement leads to it.
_BY_ADAPTERS = "inside/native_extension.py"

MEASURED_BY = ("inside/judge", "inside/worker", "model", _BY_ADAPTERS)
"""Folders and files that determine a measurement, beside the inside half of the platform."""

BUILT_BY = ("inside/build", _BY_ADAPTERS)
"""Folders and files that determine what a build makes of a candidate's source, beside the platform's inside half."""

# The context of a name follows from the rest of the tree, and the prefix u of a string has no effect.
_REDUNDANT = frozenset({"ctx", "kind"})


@functools.cache
def measurement_version(platform: str) -> str:
    """Return the SHA-256 of the code that determines a measurement on a platform.

    Records with another value are stale. The checks of other packages count, because they can fail a candidate.
    """
    return version_of(PACKAGE, MEASURED_BY, inside_folder(platform), added_checks())


@functools.cache
def build_version(platform: str) -> str:
    """Return the SHA-256 of the code that determines a build for a platform.

    Kept builds with another value are not used.
    """
    return version_of(PACKAGE, BUILT_BY, inside_folder(platform))


def version_of(
    package: Path, roots: Iterable[str], platform_half: Path | None = None, checks: Mapping[str, Path] | None = None
) -> str:
    """Return the SHA-256 of the modules below ``roots`` and of all modules of the package that they import.

    Args:
        package: Folder of the package.
        roots: Folders and files in it.
        platform_half: Folder of a platform's inside half, which may belong to another package.
        checks: Files of the checks that other packages add, by name.
    """
    waiting = {file for root in roots for file in _python_files(package / root)}
    modules: dict[str, str] = {}
    for name, file in (checks or {}).items():
        modules[f"plugin_checks/{name}"], imported = _parse(file, package)
        waiting |= imported
    if platform_half is not None:
        for file in _python_files(platform_half):
            text, imported = _parse(file, package)
            modules[f"platform/{file.relative_to(platform_half).as_posix()}"] = text
            waiting |= {found for found in imported if not found.is_relative_to(platform_half)}
    while waiting:
        file = waiting.pop()
        modules[file.relative_to(package).as_posix()], imported = _parse(file, package)
        waiting |= {found for found in imported if found.relative_to(package).as_posix() not in modules}
    digest = hashlib.sha256()
    for path, text in sorted(modules.items()):
        digest.update(f"{path}\n{text}\n".encode())
    return digest.hexdigest()


@functools.cache
def _parse(file: Path, package: Path) -> tuple[str, frozenset[Path]]:
    """Return the normal form of ``file`` and the files of ``package`` that it imports; cached for both versions."""
    tree = parse(file.read_bytes())
    return normal_form(tree), frozenset(_imported(tree, package))


def _python_files(root: Path) -> Iterable[Path]:
    return (root,) if root.is_file() else root.rglob("*.py")


def _imported(tree: ast.Module, package: Path) -> Iterator[Path]:
    """Yield the files of the package that ``tree`` imports anywhere, in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        for name in names:
            top, *inner = name.split(".")
            path = package.joinpath(*inner)
            if top == package.name and inner:
                yield from (file for file in (path.with_suffix(".py"), path / "__init__.py") if file.is_file())


def normal_form(tree: ast.Module) -> str:
    """Return a text that is the same for two modules that differ only in comments, docstrings and formatting.

    Unlike :func:`ast.dump`, it does not depend on the version of Python: empty fields are left out, since newer
    versions add fields, and adjacent texts of an f-string are joined. Of ``Annotated[int, …]`` only the type counts:
    the rest describes a field to schemas and tables, and no code inside reads it.
    """
    return _node(tree)


def _node(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return ascii(node.value)
    if isinstance(node, ast.Subscript) and _is_annotated(node.value) and isinstance(node.slice, ast.Tuple):
        return _node(node.slice.elts[0])
    fields = (f"{name}={text}" for name in sorted(node._fields) if (text := _field(node, name)))
    return f"{type(node).__name__}({','.join(fields)})"


def _is_annotated(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "Annotated"


def _field(node: ast.AST, name: str) -> str:
    """Return the text of one field of ``node``; empty if the field is."""
    value = getattr(node, name, None)
    if name in _REDUNDANT or value is None or value == []:
        return ""
    if isinstance(value, ast.AST):
        return _node(value)
    if not isinstance(value, list):
        return ascii(value)
    parts = _joined_texts(value) if isinstance(node, ast.JoinedStr) else value
    return f"[{','.join(_item(part) for part in parts if not _is_docstring(part))}]"


def _item(value: object) -> str:
    return _node(value) if isinstance(value, ast.AST) else ascii(value)


def _is_docstring(node: object) -> bool:
    """Return whether ``node`` is a statement that is only a text; below an assignment it documents an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def _joined_texts(parts: list[ast.expr]) -> list[ast.expr]:
    """Join adjacent texts of an f-string, which versions of Python split differently."""
    joined: list[ast.expr] = []
    for part in parts:
        last = joined[-1] if joined else None
        if isinstance(part, ast.Constant) and isinstance(last, ast.Constant):
            joined[-1] = ast.Constant(last.value + part.value)  # type: ignore[operator]  # both are texts
        elif not (isinstance(part, ast.Constant) and part.value == ""):
            joined.append(part)
    return joined
