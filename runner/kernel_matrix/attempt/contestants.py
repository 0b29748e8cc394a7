"""The processes that take calls from the judge: the candidate, the baseline, and the rivals that were asked for."""

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

CANDIDATE = "candidate"  # contestant name of the candidate; the others are named after their implementation

# Users inside, if a sandbox can set them. None is the judge's, or that of another role.
CANDIDATE_UID, BASELINE_UID, RIVAL_UID = 65534, 65532, 65531

NEEDS_BUILD = frozenset({Language.CUDA, Language.HIP})  # languages that cannot run before they are compiled

PROBLEM_FILE = "problem.py"
CANDIDATE_FILE = "candidate.py"
_LIBRARY_FILE = "library.py"

NO_LIBRARY = "no_library"  # label: a library call was to be timed, and the problem has none

_COMPILE_MODES: Mapping[Implementation, str] = {
    Implementation.COMPILE: "default",
    Implementation.COMPILE_MAX_AUTOTUNE: "max-autotune-no-cudagraphs",
}

_PRELOADS: Mapping[Language, tuple[str, ...]] = {
    Language.TRITON: ("triton",),
    Language.CUDA: ("torch.utils.cpp_extension",),
    Language.HIP: ("torch.utils.cpp_extension",),
    Language.CUTE_DSL: ("cutlass.cute",),
    Language.TILELANG: ("tilelang",),
}
_AT_FIRST_CALL = frozenset({Language.TRITON, Language.CUTE_DSL, Language.TILELANG})  # compile at their first call
_COMPILER = ("torch._dynamo", "torch._inductor.compile_fx")  # imported by torch.compile at its first use


@dataclass(frozen=True, slots=True, kw_only=True)
class Contestant:
    """One contestant, and its source on this host."""

    name: str
    role: Role
    code: ModuleCode
    file: str
    """Name of its module in the contestant's own folder."""
    entry: str
    """Name of the class to construct."""
    uid: int
    compile_mode: str = ""
    """Mode for ``torch.compile``; empty to call the model as it is."""
    may_compile: bool = False
    """True if loading it or its first call may compile something."""
    preloads: tuple[str, ...] = ()
    """Modules beside torch that its source always needs and that are slow to import."""
    imports: tuple[str, ...] = ()
    """Kernel packages that its source imports."""

    def spec(self, *, own_user: bool) -> ContestantSpec:
        """Describe the contestant to the judge, which accepts only :attr:`uid` if the process has its ``own_user``."""
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
    """Return the contestants of each session of ``cell``: candidate, baseline, then rivals in the protocol's order.

    A candidate that was ``built`` ahead of time gets the artifact.
    """
    return (candidate_of(cell, built=built), *implementations_of(cell))


def labels_of(cell: Cell) -> tuple[str, ...]:
    """Return labels for rivals that were asked for and do not exist."""
    wanted = Implementation.LIBRARY in cell.protocol.spec.baselines
    return (NO_LIBRARY,) if wanted and cell.problem.library is None else ()


def candidate_of(cell: Cell, *, built: bool) -> Contestant:
    """Return the candidate; its files are read."""
    files = cell.candidate.code.written().values()
    source = b"".join(files)
    # The code that Triton and torch.compile generate depends on the call, so a build ahead of time may not cover it.
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


def implementations_of(cell: Cell) -> Iterator[Contestant]:
    """Yield the baseline first, then the protocol's rivals, each once."""
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
