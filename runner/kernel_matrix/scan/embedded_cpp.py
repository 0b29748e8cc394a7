"""C++ and CUDA inside a Python file's strings, with comments and texts blanked so that only code is looked at."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

_SIGNS = ("__global__", "#include", "torch::Tensor", "at::Tensor", "PYBIND11_MODULE", 'extern "C"', "#define")
"""What only C++ has."""

_NOT_CODE = re.compile(
    r"//[^\n]*|/\*.*?(?:\*/|\Z)"  # comments
    r'|R"(?P<delimiter>[^()\s\\]{0,16})\(.*?(?:\)(?P=delimiter)"|\Z)'  # raw texts
    r'|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'',  # texts and characters
    re.DOTALL,
)

_BETWEEN = r"(?:\s|\bvoid\b|\bstatic\b|\binline\b|\b__launch_bounds__\s*\([^()]*(?:\([^()]*\)[^()]*)*\)"
_KERNEL = re.compile(
    rf"__global__{_BETWEEN}|\b__cluster_dims__\s*\([^()]*\)|\b__maxnreg__\s*\([^()]*\)|\b__block_size__\s*\([^()]*\)"
    r"|\b__attribute__\s*\(\([^()]*\)\)|\bconst\b)*\b(?P<name>[A-Za-z_]\w*)\s*(?:<[^<>;{]*>\s*)?\("
)
"""A kernel's definition or declaration: whatever may stand between ``__global__`` and its name."""

_FUNCTION = re.compile(
    r"^[ \t]*[\w:<>,*&][\w:<>,*& \t\n]{0,300}?[ \t\n*&](?P<name>[A-Za-z_]\w{0,127})[ \t]*\([^;{}()]*\)\s*[;{]",
    re.MULTILINE,
)
"""A function's definition or declaration, as plain as those that Python calls are.

Bounded, as every pattern here: sources are hostile, and a pattern that tries all ways to split a text never ends.
"""

_EXPORT = re.compile(r'\.def\s*\(\s*"(?P<name>\w+)"')
"""pybind11's way of giving a function to Python."""


@dataclass(frozen=True)
class CppText:
    """One text of C++."""

    code: str
    """Comments and the insides of texts are blanks; lines are where they were."""
    line: int
    """Line of the Python file that it begins on."""
    exported: frozenset[str]
    """Names under which Python is given its functions."""

    @cached_property
    def kernels(self) -> tuple[str, ...]:
        """Names of its ``__global__`` functions, in order."""
        return tuple(dict.fromkeys(found["name"] for found in _KERNEL.finditer(self.code)))

    @cached_property
    def callable_names(self) -> frozenset[str]:
        """Names that Python may call something of it by: those that are exported, and those of its functions."""
        return self.exported | {found["name"] for found in _FUNCTION.finditer(self.code)}

    @cached_property
    def identifiers(self) -> frozenset[str]:
        """Every word in it."""
        return frozenset(re.findall(r"[A-Za-z_]\w*", self.code))

    def find(self, pattern: re.Pattern[str]) -> Iterator[tuple[int, str]]:
        """(line in the Python file, text) of every match."""
        for found in pattern.finditer(self.code):
            yield self.line + self.code.count("\n", 0, found.start()), found.group()


def native_texts(tree: ast.Module) -> Iterator[CppText]:
    """The strings of a file that are C++."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        text = None if id(node) in inside else _text_of(node)
        if text is not None and any(sign in text for sign in _SIGNS):
            yield native(text, line=getattr(node, "lineno", 1))


def native(text: str, *, line: int = 1) -> CppText:
    """A text of C++ that begins on ``line``."""
    exported = frozenset(found["name"] for found in _EXPORT.finditer(text))
    return CppText(_NOT_CODE.sub(_blanked, text), line, exported)


def _text_of(node: ast.AST) -> str | None:
    """The string that ``node`` is; a value put into an f-string is a word of its own."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        return "".join((_text_of(part) if isinstance(part, ast.Constant) else None) or "0" for part in node.values)
    return None


def _blanked(found: re.Match[str]) -> str:
    """As many lines as before, and quotes where there was a text."""
    quotes = "" if found.group().startswith("/") else '""'
    return quotes + "\n" * found.group().count("\n") + " " * (not quotes)
