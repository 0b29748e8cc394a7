"""The useful part of what a compiler or an interpreter says when it fails.

A build that fails prints command lines, warnings and tracebacks of the machinery around it; its author wants the first
error, the line of source it points at, and little more. Known here: nvcc's front end and g++ (``file(3): error: …``,
``file:3:5: error: …``), ptxas (``ptxas … error   : …``), linkers, Triton (``at 8:11: … NameError(…)``) and Python.
"""

from __future__ import annotations

import re
from typing import List, Optional

MAX_MESSAGE = 500
"""Longest message, characters."""

_ERROR = re.compile(
    r"\b(catastrophic |fatal )?error\s*:|\bptxas\s+fatal\s*:|\bundefined (reference|symbol)|\bUndefined reference",
)
_FAILED_COMMAND = re.compile(r"^(FAILED:|ninja: |collect2: |\[\d+/\d+\] |\S*(nvcc|c\+\+|g\+\+|python\S*) -)")
"""Lines of the machinery: what it ran, and that it gave up."""
_SITE = re.compile(r'^\s*File "(?P<file>[^"]+)", line (?P<line>\d+)')
_NOISE = re.compile(r"^\d+ errors? detected in the compilation|^The above exception was|^During handling of")


def first_error(log: str) -> str:
    """The line that says what is wrong, at most :data:`MAX_MESSAGE` characters."""
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    at = _first_error_line(lines)
    words = lines[at] if at is not None else lines[-1] if lines else "failed without a word"
    return words[:MAX_MESSAGE]


def useful_part(log: str, limit: int) -> str:
    """From the first error on without the machinery's own lines; the end of the log where nothing says ``error:``.

    :param limit: characters at most.
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
    """The lines from the first error on, and before them the place in the candidate's source that asked for it."""
    sites = [index for index, line in enumerate(lines) if (found := _SITE.match(line)) and "candidate" in found["file"]]
    asked_at = lines[sites[-1] : sites[-1] + 2] if sites else []
    before = [line for line in lines[max(0, error - 2) : error] if _is_context(line)]
    return [*asked_at, *before, *lines[error:]]


def _is_context(line: str) -> bool:
    """Whether a line before an error tells where it is: g++ names the function and the chain of includes first."""
    return line.rstrip().endswith(":") and (" In " in line or "included from" in line)
