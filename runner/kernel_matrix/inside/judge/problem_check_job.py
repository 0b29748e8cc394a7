"""Tasks and results of problem checks, and the texts that parent and child processes share. It does not import torch.

:mod:`kernel_matrix.inside.judge.problem_check_pool` is the parent process;
:mod:`kernel_matrix.inside.judge.problem_check` runs in a process of its own for each problem.
"""

from __future__ import annotations

import faulthandler
import re
from dataclasses import dataclass
from pathlib import Path
from typing import List, Optional, Tuple

from kernel_matrix.inside.exception_kinds import tells_of_host_memory
from kernel_matrix.model.enums import Status
from kernel_matrix.model.messages import JudgeJob

MAX_REASON = 500  # characters of a reason

# Packages whose modules are imported for all problems once several need them: they are slow to import, start no
# threads, and change no setting of torch (``torch.testing`` does).
LARGE = ("numpy", "scipy", "sympy", "einops", "torch.fx")
MOST_IMPORTED = 40  # modules that a problem's process reports; the first ones import the rest

_GIB = 1 << 30
_ASKED_FOR = re.compile(r"allocate (?P<bytes>\d+) bytes")


@dataclass(frozen=True)
class ProblemCheckTask:
    """One problem to check, on the first workload of its job."""

    index: int
    """Name of its folder, and of its answer."""
    job: JudgeJob
    """The job, as for a cell; its contestants' files are in the task's folder."""


@dataclass(frozen=True)
class ProblemCheckJob:
    """The tasks, and the limits of each."""

    tasks: Tuple[ProblemCheckTask, ...]
    jobs: int
    """Number of problems checked at the same time; they begin in the order of ``tasks``."""
    limit_s: float
    """Seconds until a problem is given up."""
    memory_bytes: int
    """Address space that each process may take beyond torch's."""


@dataclass(frozen=True)
class ProblemCheckResult:
    """Result of one check."""

    index: int
    status: Status
    """``passed``, or the status that every cell of this problem would end with."""
    reason: str = ""
    """Reason if it did not pass; for one that passed, anything unusual about it."""
    file: str = ""
    """File that contains ``line``; empty if no line is known."""
    line: Optional[int] = None
    labels: Tuple[str, ...] = ()
    seconds: float = 0.0


@dataclass(frozen=True)
class ProblemCheckReport:
    """Final message of a problem's process."""

    tried: ProblemCheckResult
    imported: Tuple[str, ...] = ()
    """Modules of :data:`LARGE` that it imported, in the order in which the imports began."""


@dataclass(frozen=True)
class SourceLine:
    """A line in one of a problem's own files."""

    file: str
    line: int
    function: str = ""


def places(text: str, folder: Path) -> List[SourceLine]:
    """Return the lines in files of ``folder`` that a traceback names, in its order."""
    frames = re.compile(
        rf'File "{re.escape(str(folder))}/(?P<file>[^"/]+)", line (?P<line>\d+)(?:,? in (?P<function>\S+))?'
    )
    return [SourceLine(f["file"], int(f["line"]), f["function"] or "") for f in frames.finditer(text)]


def out_of_memory(text: str, memory_bytes: int) -> str:
    """Describe that memory was refused, if ``text`` says so; else empty."""
    if not tells_of_host_memory(text):
        return ""
    asked = _ASKED_FOR.search(text)
    wanted = f", and asks for {_gib(int(asked['bytes']))} at once" if asked else ""
    return f"wants more memory than its limit of {_gib(memory_bytes)}{wanted}"


def one_line(text: str) -> str:
    """Return ``text`` without line breaks, at most :data:`MAX_REASON` characters."""
    return " ".join(text.split())[:MAX_REASON]


def _gib(count: int) -> str:
    return f"{count / _GIB:.4g} GiB"


def is_large(module: str) -> bool:
    """Return True if it is one of :data:`LARGE`, or a part of it."""
    return any(module == name or module.startswith(f"{name}.") for name in LARGE)


def dump_stacks_after(seconds: float) -> None:
    """Print the stack of every thread of this process after ``seconds``; its parent then ends it.

    Do not call this before a fork: the new process would wait forever for a thread that it does not have.
    """
    faulthandler.enable(2)
    faulthandler.dump_traceback_later(seconds, file=2)
