"""Parsing Python sources that this program did not write."""

from __future__ import annotations

import ast
import io
import sys
import threading
import tokenize
import warnings
from typing import Final

_PARSING = threading.Lock()
_MOST_TOKENS: Final = 100_000
"""Tokens that Python 3.10 parses whatever they are: it crashes on an expression of some 130,000 chained operators."""
_SHORTEST_LINK: Final = 2
"""Characters of the shortest link of such a chain."""


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
    if sys.version_info < (3, 11) and len(source) > _SHORTEST_LINK * _MOST_TOKENS:
        _refuse_many_tokens(source)
    with _PARSING, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ast.parse(source)


def _refuse_many_tokens(source: str | bytes) -> None:
    text = source if isinstance(source, str) else source.decode(errors="replace")
    try:
        for number, _token in enumerate(tokenize.generate_tokens(io.StringIO(text).readline)):
            if number > _MOST_TOKENS:
                raise MemoryError(f"more than {_MOST_TOKENS:,} tokens")
    except (tokenize.TokenError, SyntaxError):
        return  # the parser says what is wrong
