"""Problems and candidates: their classes, the source protocols and the registry of sources.

A source is a module with the function of :class:`Source`, of :class:`CandidateSource`, or both. To add one, add a
module here and a line in the registries at the end of this file, or an entry point of another package in the groups
``kernel_matrix.sources`` and ``kernel_matrix.candidate_sources``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Protocol

from kernel_matrix.bundled import BUNDLED_PROBLEMS
from kernel_matrix.errors import UsageError
from kernel_matrix.model.enums import CollectiveKind, Dtype, Language, Status
from kernel_matrix.model.fields import Length
from kernel_matrix.model.messages import ContractSpec
from kernel_matrix.model.protocols import protocol_members
from kernel_matrix.plugins import Registry

RANKS = range(2, 9)
"""Numbers of ranks that a problem of several can have: as many as one message of the judge has memory for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleCode:
    """A module in KernelBench's form, and further files in its folder.

    The methods raise ``OSError`` if a file cannot be read.
    """

    path: Path
    """File of the author: the module itself, or the file that ``adapter`` makes a module of."""
    adapter: str = ""
    """Source of the module if ``path`` is not in that form; it finds ``extra_files`` through ``__file__``."""
    extra_files: Mapping[str, Path | bytes] = field(default_factory=dict)
    """Name of each further file beside the module → its path or its content."""

    def module(self) -> bytes:
        """Return the source of the module."""
        return self.adapter.encode() if self.adapter else self.path.read_bytes()

    def contents(self) -> dict[str, bytes]:
        """Return the content of the files beside the module."""
        return {name: it if isinstance(it, bytes) else it.read_bytes() for name, it in self.extra_files.items()}

    def written(self) -> dict[str, bytes]:
        """Return the content of the author's files, without the adapter."""
        return self.contents() if self.adapter else {self.path.name: self.module(), **self.contents()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """One shape set of a problem: values for the module constants of its reference."""

    name: str
    values: Mapping[str, int | float | bool | str] = field(default_factory=dict)
    flops: float | None = None
    """Floating point operations of one call; ``None`` if unknown."""
    bytes: Mapping[Dtype, float] = field(default_factory=dict)
    """Dtype → minimum of bytes that one call must move; empty if unknown."""
    collective_bytes: Mapping[Dtype, float] = field(default_factory=dict)
    """Dtype → size of :attr:`Problem.collective`, bytes; empty without one."""
    memory: Mapping[Dtype, float] = field(default_factory=dict)
    """Dtype → device memory, bytes, that a cell needs; empty if unknown. It does not change the answer, so it is not in
    the digest."""
    held_out: bool = False
    """``True``: every candidate is verified with it, and those who write candidates are told nothing of it."""

    @property
    def digest_facts(self) -> dict[str, Any]:
        """Values that count for the digest of its problem; a fact that is seldom true is there only if it is."""
        facts = {"name": self.name, "values": self.values, "flops": self.flops, "bytes": _by_name(self.bytes)}
        if self.collective_bytes:
            facts["collective_bytes"] = _by_name(self.collective_bytes)
        return {**facts, "held_out": True} if self.held_out else facts


def _by_name(counts: Mapping[Dtype, float]) -> dict[str, float]:
    return {dtype.value: count for dtype, count in counts.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """A reference ``Model`` with ``get_inputs`` and ``get_init_inputs``, and its metadata."""

    id: str
    """Unique over all sources of a matrix, e.g. ``softmax`` or ``level1/1_Square_matrix_multiplication_``."""
    source: str
    """Registry key of its source."""
    path: Path
    """Module that defines the reference, or the file that ``adapter`` makes a module of."""
    adapter: str = ""
    """See :class:`ModuleCode`."""
    extra_files: Mapping[str, Path | bytes] = field(default_factory=dict)
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
    ranks: int = 1
    """Number of processes that make a call together, each on a device of its own if there are devices; the reference
    is the code of one of them."""
    collective: CollectiveKind | None = None
    """Kind of the collective between the ranks; ``None``: there is one rank, or the problem does not say."""
    contract: ContractSpec | None = None
    """Accuracy limits for the outputs of a quantised problem; ``None``: a tolerance per element."""
    library: Path | None = None
    """Module whose ``ModelNew`` calls a vendor's library, if there is one."""
    digest: str = ""
    """SHA-256 over everything that determines the answer: source, workloads, tolerances, flags."""
    description: str = ""

    @property
    def code(self) -> ModuleCode:
        """Code of the reference for judge and baseline."""
        return ModuleCode(path=self.path, adapter=self.adapter, extra_files=self.extra_files)

    @property
    def shown_workloads(self) -> tuple[Workload, ...]:
        """Workloads to select from; at least one."""
        return tuple(workload for workload in self.workloads if not workload.held_out)

    @property
    def held_out_workloads(self) -> tuple[Workload, ...]:
        """Workloads that every cell is verified with too; only the judge and the problem's owner see them."""
        return tuple(workload for workload in self.workloads if workload.held_out)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Origin of a candidate according to its metadata; ``None`` where unknown."""

    method: str | None = None
    """Method that made it."""
    model: str | None = None
    """Model that wrote it."""
    sample: int | None = None
    """Number of the sample."""
    round: int | None = None
    """Number of the round."""
    parent: str | None = None
    """Author's name of the candidate it was made from."""
    prompt: str | None = None
    """Name of the prompt; the same for all problems and rounds."""
    prompt_sha256: Annotated[str, Length(64)] | None = None
    """Digest of the very text that was sent."""
    no_code: str | None = None
    """Why the model's answer holds no code; its file stands for the answer, and fails without being run."""
    tokens_in: int | None = None
    """Tokens that the model read, those from its cache included."""
    tokens_cached: int | None = None
    """Tokens that the model read from its cache."""
    tokens_out: int | None = None
    """Tokens that the model wrote."""
    cost_usd: float | None = None
    """Price of making it, US dollars."""
    wall_s: float | None = None
    """Time that making it took."""


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
    extra_files: Mapping[str, Path | bytes] = field(default_factory=dict)
    """See :class:`ModuleCode`."""
    entry: str = "ModelNew"
    """Name of the class; ``Model`` if the reference is its own candidate."""
    defines: str = ""
    """Class or function that the author had to define, if an adapter makes the class of it."""
    dtypes: tuple[Dtype, ...] = ()
    """Supported dtypes; empty means all of the problem."""
    origin: Origin = Origin()
    expect: Status | None = None
    """Expected status of an example; ``None`` for real candidates."""
    digest: str = ""
    """SHA-256 over source, language and entry."""
    description: str = ""

    @property
    def code(self) -> ModuleCode:
        """Code for the candidate's process."""
        return ModuleCode(path=self.path, adapter=self.adapter, extra_files=self.extra_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadableItem:
    """An item that a source could not read and left out."""

    path: Path
    reason: str
    line: int | None = None
    """Line in the file, from 1; ``None`` for the whole file."""

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line else f"{self.path}"
        return f"{place}: {self.reason}"


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedSource:
    """Items that a source read."""

    problems: tuple[Problem, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    unreadable: tuple[UnreadableItem, ...] = ()


class Source(Protocol):
    """Reader of problems, and of candidates beside them."""

    def load(self, root: Path, *, name: str) -> LoadedSource:
        """Read everything under ``root``.

        Args:
            root: folder or file to read.
            name: registry key of the source, for :attr:`Problem.source`.

        Raises:
            kernel_matrix.errors.UsageError: ``root`` is not in the form of this source.
        """
        ...


class CandidateSource(Protocol):
    """Reader of candidates in folders of their own."""

    def load_candidates(
        self, path: Path, problems: Mapping[str, Problem]
    ) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
        """Read everything in ``path``; see :func:`load_candidates`."""
        ...


def reference_candidate(problem: Problem) -> Candidate:
    """Return the reference of a problem as candidate ``<problem id>/@reference``, for an A/A comparison."""
    return Candidate(
        id=f"{problem.id}/@reference",
        problem_id=problem.id,
        path=problem.path,
        adapter=problem.adapter,
        extra_files=problem.extra_files,
        language=Language.TORCH,
        entry="Model",
        dtypes=problem.dtypes,
        origin=Origin(method="reference"),
        digest=problem.digest,
    )


def load_source(name: str, root: Path | None) -> LoadedSource:
    """Read the source registered as ``name``.

    Args:
        name: registry key of the source.
        root: folder or file to read; ``None`` for the problems bundled with the source.

    Raises:
        kernel_matrix.errors.UsageError: ``root`` is not in the form of the source, or the source has no bundled
            problems.
    """
    place = root if root is not None else BUNDLED_PROBLEMS.get(name)
    if place is None:
        raise UsageError(f"source {name} has no bundled problems", next_step="name a path to read")
    return SOURCES.load(name).load(place, name=name)


def load_candidates(
    name: str, path: Path, problems: Mapping[str, Problem]
) -> tuple[tuple[Candidate, ...], tuple[UnreadableItem, ...]]:
    """Read candidates that are kept apart from their problems.

    Args:
        name: registry key of the source that reads ``path``, of :data:`CANDIDATE_SOURCES`.
        path: folder or file to read.
        problems: all known problems by id; candidates for other problems are unreadable.

    Raises:
        kernel_matrix.errors.UsageError: ``path`` is not in the form of the source.
    """
    return CANDIDATE_SOURCES.load(name).load_candidates(path, problems)


SOURCES: Registry[Source] = Registry(
    "source",
    "kernel_matrix.sources",
    {
        "folder": "kernel_matrix.sources.folder",
        "kernelbench": "kernel_matrix.sources.kernelbench.reader",
        "kernelbenchx": "kernel_matrix.sources.kernelbenchx.reader",
        "parallelkernelbench": "kernel_matrix.sources.parallelkernelbench.reader",
        "flashinfer": "kernel_matrix.sources.flashinfer.reader",
        "table": "kernel_matrix.sources.table",
        "aten": "kernel_matrix.sources.aten.reader",
        "vllm": "kernel_matrix.sources.bundled_suites",
        "cublas": "kernel_matrix.sources.bundled_suites",
    },
    members=protocol_members(Source),
)
"""Allowed values of ``problems.source`` → module."""

CANDIDATE_SOURCES: Registry[CandidateSource] = Registry(
    "source of candidates",
    "kernel_matrix.candidate_sources",
    {
        "folder": "kernel_matrix.sources.folder",
        "kernelbench": "kernel_matrix.sources.kernelbench.generated",
        "kernelbenchx": "kernel_matrix.sources.kernelbenchx.samples",
        "parallelkernelbench": "kernel_matrix.sources.parallelkernelbench.solutions",
        "flashinfer": "kernel_matrix.sources.flashinfer.solutions",
        "table": "kernel_matrix.sources.table",
    },
    members=protocol_members(CandidateSource),
)
"""Allowed values of ``candidates.source`` → module."""
