"""C++ and CUDA in the strings of a Python file, with comments and string literals blanked."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_CPP_MARKERS = ("__global__", "#include", "torch::Tensor", "at::Tensor", "PYBIND11_MODULE", 'extern "C"', "#define")
"""Texts that occur in C++ but not in other strings of a candidate."""

_NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)"  # comments
    r'|R"(?P<delimiter>[^()\s\\]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)'  # raw string literals
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',  # string and character literals
    re.DOTALL,
)

_KERNEL_PREFIX = r"(?:\s|\bvoid\b|\bstatic\b|\binline\b|\b__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
_KERNEL = re.compile(
    rf"__global__{_KERNEL_PREFIX}|\b__cluster_dims__\s*\([^()]*\)|\b__maxnreg__\s*\([^()]*\)|\b__block_size__\s*\([^()]*\)"
    r"|\b__attribute__\s*\(\([^()]*(?:\([^()]*\)[^()]*)*\)\)|\bconst\b)*\b(?P<name>[A-Za-z_]\w*)\s*(?:<[^<>;{]*>\s*)?\("
)
"""Definition or declaration of a kernel, with the attributes allowed between ``__global__`` and its name."""

_FUNCTION = re.compile(
    r"^[ \t]*[\w:<>,*&][\w:<>,*& \t\n]{0,300}?[ \t\n*&](?P<name>[A-Za-z_]\w{0,127})[ \t]*\([^;{}()]*\)\s*[;{]",
    re.MULTILINE,
)
"""Definition or declaration of a function, in the simple forms of functions that Python calls.

The repetitions are bounded: sources are hostile, and unbounded ones could backtrack for hours.
"""

_EXPORT = re.compile(r'\.def\s*\(\s*"(?P<name>\w+)"')
"""A function that pybind11 exports to Python."""


@dataclass(frozen=True)
class CppText:
    """One C++ text of a candidate."""

    code: str
    """The text with comments and string literals blanked and line numbers kept."""
    line: int
    """Line of the Python file where it begins."""
    exported: frozenset[str]
    """Python names of the functions that it exports."""

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """Names of its ``__global__`` functions in order of appearance."""
        return tuple(dict.fromkeys(found["name"] for found in _KERNEL.finditer(self.code)))

    @cached_property
    def callable_names(self) -> frozenset[str]:
        """Names by which Python may call its functions."""
        return self.exported | {found["name"] for found in _FUNCTION.finditer(self.code)}

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """Every identifier and keyword in it."""
        return frozenset(re.findall(r"[A-Za-z_]\w*", self.code))

    def find(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
        """Yield (line in the Python file, matched text) for every match."""
        for found in pattern.finditer(self.code):
            yield self.line + self.code.count("\n", 0, found.start()), found.group()


def find_cpp_texts(tree: ast.Module) -> Iterator[CppText]:
    """Yield the strings of a file that look like C++."""
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = None if id(node) in parts else _string_value(node)
        if text is not None and any(sign in text for sign in _CPP_MARKERS):
            yield parse_cpp(text, line=getattr(node, "lineno", 1))


def parse_cpp(text: str, *, line: int = 1) -> CppText:
    """Make a :class:`CppText` of a text that begins on ``line``."""
    exported = frozenset(found["name"] for found in _EXPORT.finditer(text))
    return CppText(_NOT_CODE.sub(_blank, text), line, exported)


def _string_value(node: ast.AST) -> str | None:
    """Return the string that ``node`` is, with ``0`` for each value inserted into an f-string."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join((_string_value(part) if isinstance(part, ast.Constant) else None) or "0" for part in node.values)
    return None


def _blank(found: re.Match[str]) -> str:
    """Return a replacement with the same number of lines: quotes for a string literal, blanks for a comment."""
    quotes = "" if found.group().startswith("/") else '""'
    return quotes + "\n" * found.group().count("\n") + " " * (not quotes)
