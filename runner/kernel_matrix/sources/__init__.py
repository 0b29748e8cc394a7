"""Where problems and candidates come from: the nouns, the ``Source`` protocol and the registry.

A source is a module with the function of :class:`Source`, or that of :class:`CandidateSource`, or both. To add one: one
file here and one line in the registry at the end.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from kernel_matrix.bundled import BUNDLED_PROBLEMS
from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import Dtype, Language, Status
from kernel_matrix.model.messages import ContractSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCode:
    """A module in KernelBench's form, and the files it reads in its own folder, as a process gets them."""

    path: Path
    """The file it comes from, for people to look at; the module itself where there is no ``adapter``."""
    adapter: str = ""
    """Source of the module where ``path`` is none in that form; it finds ``beside`` through ``__file__``."""
    beside: Mapping[str, Path | bytes] = field(default_factory=dict)
    """Further files by their names beside the module: where they are, or what is in them."""

    def module(self) -> bytes:
        """The module's source.

        :raises OSError: when it cannot be read.
        """
        return self.adapter.encode() if self.adapter else self.path.read_bytes()

    def contents(self) -> dict[str, bytes]:
        """What is in the files beside the module.

        :raises OSError: when one cannot be read.
        """
        return {name: it if isinstance(it, bytes) else it.read_bytes() for name, it in self.beside.items()}

    def written(self) -> dict[str, bytes]:
        """What its author wrote, by file name: no adapter, which is ours.

        :raises OSError: when a file cannot be read.
        """
        return self.contents() if self.adapter else {self.path.name: self.module(), **self.contents()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One shape set of a problem: values for the module constants of its reference."""

    name: str
    values: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    flops: float | None = None
    """Floating point operations of one call, already evaluated; null where the problem does not say."""
    bytes: Mapping[Dtype, float] = field(default_factory=dict)
    """Least bytes one call must move, by dtype; empty where the problem does not say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reference ``Model`` with ``get_inputs`` / ``get_init_inputs`` and what is known about it."""

    id: str
    """Unique over all sources of a matrix, e.g. ``softmax`` or ``level1/1_Square_matrix_multiplication_``."""
    source: str
    """Registry key of the source it came from."""
    path: Path
    """The module that defines the reference, or the file that ``adapter`` makes one of."""
    adapter: str = ""
    """See :class:`ModuleCode`."""
    beside: Mapping[str, Path | bytes] = field(default_factory=dict)
    """See :class:`ModuleCode`."""
    category: str
    level: int | None = None
    tags: tuple[str, ...] = ()
    dtypes: tuple[Dtype, ...] = (Dtype.FP32, Dtype.FP16, Dtype.BF16)
    workloads: tuple[Workload, ...] = (Workload(name="default"),)
    tolerance: Mapping[str, float] = field(default_factory=dict)
    outliers: bool = True
    mutates_inputs: bool = False
    random: bool = False
    """Outputs are random numbers, judged by their distribution."""
    contract: ContractSpec | None = None
    """What a quantised problem's outputs are held to; null: a tolerance per element."""
    library: Path | None = None
    """A module whose ``ModelNew`` is the call of a vendor's library; null: there is none."""
    digest: str = ""
    """SHA-256 over everything that determines the answer: source, workloads, tolerances, flags."""
    description: str = ""

    @property
    def code(self) -> ModuleCode:
        """The reference, as judge and baseline get it."""
        return ModuleCode(path=self.path, adapter=self.adapter, beside=self.beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Where a candidate came from, as far as its side file says. Null where unknown."""

    method: str | None = None
    model: str | None = None
    sample: int | None = None
    round: int | None = None
    parent: str | None = None
    """The candidate it was made from, by the name its maker gave it."""
    prompt_sha256: str | None = None
    tokens_in: int | None = None
    """Read by the model, those from its cache included."""
    tokens_cached: int | None = None
    """Of them, read from its cache."""
    tokens_out: int | None = None
    cost_usd: float | None = None
    wall_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """Source that defines ``ModelNew`` for one problem."""

    id: str
    """``<problem id>/<name>``, unique over the matrix."""
    problem_id: str
    path: Path
    language: Language
    adapter: str = ""
    """See :class:`ModuleCode`."""
    beside: Mapping[str, Path | bytes] = field(default_factory=dict)
    """See :class:`ModuleCode`."""
    entry: str = "ModelNew"
    """Name of the class; ``Model`` when the reference is its own candidate."""
    defines: str = ""
    """The class or function that its author had to define, where an adapter makes the class of it; else empty."""
    dtypes: tuple[Dtype, ...] = ()
    """Dtypes it claims; empty means all the problem offers."""
    origin: Origin = Origin()
    expect: Status | None = None
    """What an example is meant to end as; null for real candidates."""
    digest: str = ""
    """SHA-256 over source, language and entry."""
    description: str = ""

    @property
    def code(self) -> ModuleCode:
        """Its source, as its process gets it."""
        return ModuleCode(path=self.path, adapter=self.adapter, beside=self.beside)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableItem:
    """Something a source could not read; the rest goes on."""

    path: Path
    reason: str
    line: int | None = None
    """Where in the file, from 1; null where the file as a whole is meant."""

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else f"{self.path}"
        return f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSource:
    """What a source found."""

    problems: tuple[Problem, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    unreadable: tuple[UnreadableItem, ...] = ()


class Source(Protocol):
    """Reads problems, and candidates where the source keeps them beside the problems."""

    def load(self, root: Path, *, name: str) -> LoadedSource:
        """Read everything under ``root``.

        :param name: the source's registry key, to be put into each problem.
        :raises kernel_matrix.errors.UsageError: when ``root`` is not what this source reads at all.
        """
        ...


class CandidateSource(Protocol):
    """Reads candidates that are kept apart from their problems."""

    def load_candidates(
        self, path: Path, problems: Mapping[str, Problem]
    ) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
        """Read everything in ``path``; see :func:`load_candidates`."""
        ...


def reference_candidate(problem: Problem) -> Candidate:
    """The problem's own reference as a candidate, ``<problem id>/@reference``: the free A/A control."""
    return Candidate(
        id=f"{problem.id}/@reference",
        problem_id=problem.id,
        path=problem.path,
        adapter=problem.adapter,
        beside=problem.beside,
        language=Language.TORCH,
        entry="Model",
        dtypes=problem.dtypes,
        origin=Origin(method="reference"),
        digest=problem.digest,
    )


def source_names() -> Sequence[str]:
    """Names that ``problems.source`` may take."""
    return tuple(_PROBLEMS)


def candidate_source_names() -> Sequence[str]:
    """Names that ``candidates.source`` may take."""
    return tuple(_CANDIDATES)


def load_source(name: str, root: Path | None) -> LoadedSource:
    """Read the source registered as ``name``; its module is imported only now.

    :param root: where its problems are; null: those that come with it.
    :raises kernel_matrix.errors.UsageError: when ``root`` is not what it reads, or null where nothing comes with it.
    """
    place = root if root is not None else BUNDLED_PROBLEMS.get(name)
    if place is None:
        raise UsageError(f"source {name} brings no problems of its own", next_step="name a path to read")
    source: Source = _module(_PROBLEMS[name])
    return source.load(place, name=name)


def load_candidates(
    name: str, path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read candidates kept apart from their problems.

    :param name: of the source that reads ``path``; see :func:`candidate_source_names`.
    :param problems: all problems that are known, by id; what is for any other is unreadable.
    :raises kernel_matrix.errors.UsageError: when ``path`` is not what it reads at all.
    """
    source: CandidateSource = _module(_CANDIDATES[name])
    return source.load_candidates(path, problems)


def _module(name: str) -> Any:
    import importlib  # noqa: PLC0415  # sources are imported when asked for: the command line must start fast

    return importlib.import_module(f"kernel_matrix.sources.{name}")


_PROBLEMS = {
    "folder": "folder",
    "kernelbench": "kernelbench.reader",
    "kernelbenchx": "kernelbenchx.reader",
    "flashinfer": "flashinfer.reader",
    "table": "table",
    "aten": "aten.reader",
    "vllm": "bundled_suites",
    "cublas": "bundled_suites",
}
"""Name of a source → module with :class:`Source`'s function."""

_CANDIDATES = {
    "folder": "folder",
    "kernelbench": "kernelbench.generated",
    "kernelbenchx": "kernelbenchx.samples",
    "flashinfer": "flashinfer.solutions",
    "table": "table",
}
"""Name of a source → module with :class:`CandidateSource`'s function."""
