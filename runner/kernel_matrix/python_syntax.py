"""Parsing Python sources that this program did not write."""

from __future__ import annotations

import ast
import threading
import warnings

_PARSING = threading.Lock()


def parse(source: str | bytes) -> ast.Module:
    """Parse a source without Python's warnings about it, such as those about invalid escapes.

    One thread at a time: the filter of warnings is the process's own, and Python 3.11 may raise ``SystemError`` if
    several threads call :func:`ast.parse` at once (CPython issue 106905).

    Raises:
        SyntaxError: It is not valid Python.
        ValueError: It has null bytes.
        RecursionError: It is nested too deeply.
        MemoryError: As before, for other kinds of nesting.
    """
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)
