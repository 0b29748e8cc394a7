"""Who takes calls from the judge in the sessions of a cell: the candidate, the baseline, and the rivals asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

from kernel_matrix.inside.exception_kinds import KERNEL_PACKAGES
from kernel_matrix.model.enums import Implementation, Language, Role
from kernel_matrix.model.messages import ContestantSpec
from kernel_matrix.plan import Cell
from kernel_matrix.sources import ModuleCode, Problem
from kernel_matrix.sources.reference_module import packages_needed

CANDIDATE = "candidate"
"""Name of the candidate among the contestants; all others are called by their implementation."""

CANDIDATE_UID, BASELINE_UID, RIVAL_UID = 65534, 65532, 65531
"""Users inside, where an engine can set them: none is the judge's, or another role's."""

NEEDS_BUILD = frozenset({Language.CUDA})
"""Languages that nothing can be run of before they are compiled."""

PROBLEM_FILE = "problem.py"
CANDIDATE_FILE = "candidate.py"
_LIBRARY_FILE = "library.py"

NO_LIBRARY = "no_library"
"""Label of a session that was to time a library's call and whose problem names none."""

_COMPILE_MODES: Mapping[Implementation, str] = {
    Implementation.COMPILE: "default",
    Implementation.COMPILE_MAX_AUTOTUNE: "max-autotune-no-cudagraphs",
}

_PRELOADS: Mapping[Language, tuple[str, ...]] = {
    Language.TRITON: ("triton",),
    Language.CUDA: ("torch.utils.cpp_extension",),
    Language.CUTE_DSL: ("cutlass.cute",),
    Language.TILELANG: ("tilelang",),
}
_AT_FIRST_CALL = frozenset({Language.TRITON, Language.CUTE_DSL, Language.TILELANG})
"""Languages that compile when they are called first."""
_COMPILER = ("torch._dynamo", "torch._inductor.compile_fx")
"""What ``torch.compile`` imports when it is first used."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One of them, and where its source is on this host."""

    name: str
    role: Role
    code: ModuleCode
    file: str
    """What its module is called in the contestant's own folder."""
    entry: str
    """Class to construct."""
    uid: int
    compile_mode: str = ""
    """Mode for ``torch.compile``; empty: the model is called as it is."""
    may_compile: bool = False
    """Loading it or its first call may have to compile something."""
    preloads: tuple[str, ...] = ()
    """Modules beside torch that its source needs in any case, and that take their time to import."""
    imports: tuple[str, ...] = ()
    """Packages that kernels are written in and its source must have."""

    def told(self, *, own_user: bool) -> ContestantSpec:
        """What the judge is told of it.

        :param own_user: its process runs under :attr:`uid`, so that nobody else's connection need be taken.
        """
        return ContestantSpec(
            name=self.name,
            role=self.role,
            file=self.file,
            entry=self.entry,
            uid=self.uid if own_user else None,
            compile_mode=self.compile_mode,
            may_compile=self.may_compile,
            imports=self.imports,
        )


def contestants_of(cell: Cell, *, built: bool = False) -> tuple[Contestant, ...]:
    """The contestants of each session of ``cell``: candidate, baseline, then rivals in the protocol's order.

    :param built: the candidate was compiled ahead, and gets what came of it.
    """
    return (_candidate(cell, built=built), *_implementations(cell))


def labels_of(cell: Cell) -> tuple[str, ...]:
    """What readers must know of contestants that were asked for and cannot be had."""
    wanted = Implementation.LIBRARY in cell.protocol.spec.baselines
    return (NO_LIBRARY,) if wanted and cell.problem.library is None else ()


def _candidate(cell: Cell, *, built: bool) -> Contestant:
    files = cell.candidate.code.written().values()
    source = b"".join(files)
    # What Triton and torch.compile generate depends on the call: however much was built ahead, more may be due.
    late = cell.candidate.language in _AT_FIRST_CALL or b"torch.compile" in source
    return Contestant(
        name=CANDIDATE,
        role=Role.CANDIDATE,
        code=cell.candidate.code,
        file=CANDIDATE_FILE,
        entry=cell.candidate.entry,
        uid=CANDIDATE_UID,
        may_compile=late or (not built and (cell.candidate.language in NEEDS_BUILD or b"cpp_extension" in source)),
        preloads=_PRELOADS.get(cell.candidate.language, ()),
        imports=tuple(sorted(KERNEL_PACKAGES & set(chain.from_iterable(map(packages_needed, files))))),
    )


def _implementations(cell: Cell) -> Iterator[Contestant]:
    """The baseline first, whatever the order in which the protocol names them; each once."""
    yield _of_problem(cell.problem, Implementation.EAGER)
    for implementation in dict.fromkeys(cell.protocol.spec.baselines):
        if implementation in _COMPILE_MODES:
            yield _of_problem(cell.problem, implementation)
        elif implementation is Implementation.LIBRARY and cell.problem.library is not None:
            yield _of_library(cell.problem.library)


def _of_problem(problem: Problem, implementation: Implementation) -> Contestant:
    baseline = implementation is Implementation.EAGER
    return Contestant(
        name=implementation.value,
        role=Role.BASELINE if baseline else Role.RIVAL,
        code=problem.code,
        file=PROBLEM_FILE,
        entry="Model",
        uid=BASELINE_UID if baseline else RIVAL_UID,
        compile_mode=_COMPILE_MODES.get(implementation, ""),
        may_compile=implementation in _COMPILE_MODES,
        preloads=_COMPILER if implementation in _COMPILE_MODES else (),
    )


def _of_library(path: Path) -> Contestant:
    return Contestant(
        name=Implementation.LIBRARY.value,
        role=Role.RIVAL,
        code=ModuleCode(path=path),
        file=_LIBRARY_FILE,
        entry="ModelNew",
        uid=RIVAL_UID,
    )
