"""Excerpts of a compiler's or an interpreter's error output.

A failed build prints command lines, warnings and tracebacks of the build tools. Its author needs the first error and
the line of source it points at. Known formats: nvcc's front end and g++ (``file(3): error: …``, ``file:3:5: error:
…``), ptxas (``ptxas … error   : …``), linkers, Triton (``at 8:11: … NameError(…)``) and Python.
"""

from __future__ import annotations

import re
from typing import List, Optional

MAX_MESSAGE = 500  # characters

_ERROR = re.compile(
    r"\b(catastrophic |fatal )?error\s*:|\bptxas\s+fatal\s*:|\bundefined (reference|symbol)|\bUndefined reference",
)
# Lines of the build tools: the commands they run, and that they give up.
_FAILED_COMMAND = re.compile(r"^(FAILED:|ninja: |collect2: |\[\d+/\d+\] |\S*(nvcc|c\+\+|g\+\+|python\S*) -)")
_SITE = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_NOISE = re.compile(r"^\d+ errors? detected in the compilation|^The above exception was|^During handling of")


def first_error(log: str) -> str:
    """Return the line with the error, at most :data:`MAX_MESSAGE` characters."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    at = _first_error_line(lines)
    words = lines[at] if at is not None else lines[-1] if lines else "failed without a message"
    return words[:MAX_MESSAGE]


def useful_part(log: str, limit: int) -> str:
    """Return the log from the first error on, without the build tools' lines; its end if no line has an error.

    The result has at most ``limit`` characters.
    """
    lines = log.splitlines()
    at = _first_error_line(lines)
    if at is None:
        return log[-limit:]
    kept = [line for line in _from_origin(lines, at) if not _FAILED_COMMAND.match(line) and not _NOISE.match(line)]
    return "\n".join(kept).rstrip()[:limit]


def _first_error_line(lines: List[str]) -> Optional[int]:
    errors = (index for index, line in enumerate(lines) if _ERROR.search(line) and not _FAILED_COMMAND.match(line))
    return next(errors, None)


def _from_origin(lines: List[str], error: int) -> List[str]:
    """Return the lines from the first error on, after the line of the candidate's source that led to it."""
    sites = [index for index, line in enumerate(lines) if (found := _SITE.match(line)) and "candidate" in found["file"]]
    asked_at = lines[sites[-1] : sites[-1] + 2] if sites else []
    before = [line for line in lines[max(0, error - 2) : error] if _is_context(line)]
    return [*asked_at, *before, *lines[error:]]


def _is_context(line: str) -> bool:
    """Return True if a line before an error locates it: g++ names the function and the include chain first."""
    return line.rstrip().endswith(":") and (" In " in line or "included from" in line)
