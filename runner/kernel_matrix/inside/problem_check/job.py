"""Job and results of a check of problems, and texts about faults. It does not import torch.

:mod:`kernel_matrix.inside.problem_check.pool` is the parent process;
:mod:`kernel_matrix.inside.problem_check.one_problem` runs in a process of its own for each problem.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, NamedTuple, Optional, Tuple

from kernel_matrix.inside.exception_kinds import tells_of_host_memory
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import JudgeJob

MAX_REASON = 500  # characters of a reason

_GIB = 1 << 30
_ASKED_FOR = re.compile(r"allocate (?P<bytes>\d+) bytes")


@dataclass(frozen=True)
class ProblemCheckLimits:
    """Limits of a check."""

    jobs: int
    """Problems checked at the same time."""
    limit_s: float
    """Seconds until a problem is given up."""
    memory_bytes: int
    """Address space that each process of a problem may take beyond torch's."""


@dataclass(frozen=True)
class ProblemCheckJob:
    """The problems to check, in this order."""

    problems: Tuple[JudgeJob, ...]
    """A job per problem, as for a cell, with one workload; the folder named by its ``cell_id`` holds its files."""
    limits: ProblemCheckLimits


@dataclass(frozen=True)
class ProblemCheckResult:
    """Result of the check of one problem."""

    cell_id: str
    status: Status
    """``passed``, or the status that every cell of this problem would end with."""
    reason: str = ""
    """Reason if it did not pass; for one that passed, anything unusual about it."""
    file: str = ""
    """File that contains ``line``; empty if no line is known."""
    line: Optional[int] = None
    labels: Tuple[str, ...] = ()
    seconds: float = 0.0


class SourceLine(NamedTuple):
    """A line in one of a problem's own files."""

    file: str
    line: int
    function: str = ""


def find_source_lines(text: str, folder: Path) -> List[SourceLine]:
    """Return the lines in files of ``folder`` that a traceback names, in its order."""
    frames = re.compile(
        rf'File "{re.escape(str(folder))}/(?P<file>[^"/]+)", line (?P<line>\d+)(?:,? in (?P<function>\S+))?'
    )
    return [SourceLine(f["file"], int(f["line"]), f["function"] or "") for f in frames.finditer(text)]


def describe_refused_memory(text: str, memory_bytes: int) -> str:
    """Describe that memory was refused, if ``text`` says so; else empty."""
    if not tells_of_host_memory(text):
        return ""
    asked = _ASKED_FOR.search(text)
    wanted = f", and asks for {int(asked['bytes']) / _GIB:.4g} GiB at once" if asked else ""
    return f"wants more memory than its limit of {memory_bytes / _GIB:.4g} GiB{wanted}"


def one_line(text: str) -> str:
    """Return ``text`` without line breaks, at most :data:`MAX_REASON` characters."""
    return " ".join(text.split())[:MAX_REASON]
