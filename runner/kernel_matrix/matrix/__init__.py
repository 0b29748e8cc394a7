"""``matrix.toml`` as frozen objects; nothing downstream sees raw TOML.

:func:`kernel_matrix.matrix.load.load_matrix` makes these.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from kernel_matrix.model.enums import ClockPolicy, Dtype, Language, Tier
from kernel_matrix.model.messages import ProtocolSpec

DECLARED_LANGUAGES = frozenset({Language.CUTE_DSL, Language.TILELANG})
"""Languages whose compiler no image of ours has: a toolchain whose image does says so in ``languages``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAxis:
    """One value of the ``gpus`` axis: a name of ours and what a device must match. All given conditions must hold."""

    name: str
    """How cells, records and tables call it: ``h200``, ``cpu``."""
    vendor: str = "nvidia"
    """``nvidia`` or ``cpu``."""
    model: str | None = None
    """Glob on the product name, case-insensitive: ``NVIDIA H200*``."""
    uuid: str | None = None
    compute_capability: str | None = None
    """``9.0``; also what is planned against on hosts that lack the GPU."""
    min_memory_gib: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """One CUDA + PyTorch + Triton set: one pinned image, ``images/<name>/``. ``cuda`` null means a CPU toolchain."""

    name: str
    torch: str
    triton: str
    cuda: str | None = None
    """CUDA toolkit version, ``12.8``."""
    languages: tuple[Language, ...] = ()
    """Of :data:`DECLARED_LANGUAGES`, those that its image can compile."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSet:
    """A selection of problems from one source."""

    source: str
    """Registry key of the source: ``folder``, ``kernelbench``, …"""
    path: Path | None = None
    """Absolute; written relative to the matrix file. Null: the problems that come with the source."""
    select: tuple[str, ...] = ("*",)
    """Globs on the problem id."""
    levels: tuple[int, ...] = ()
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    """Names to run; empty means all that each problem has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSet:
    """A selection of candidates, with what is known of their origin."""

    select: tuple[str, ...] = ("*",)
    """Globs on the candidate id ``<problem id>/<name>``; ``*/@reference`` is the reference itself."""
    path: Path | None = None
    """Where candidates are kept apart from the problems; null: the candidates beside the problems."""
    source: str = "folder"
    """Registry key of what reads ``path``."""
    method: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Which cells a rule speaks of: globs per axis, all given ones must match; empty matches everything."""

    gpu: tuple[str, ...] = ()
    toolchain: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    problem: tuple[str, ...] = ()
    candidate: tuple[str, ...] = ()
    language: tuple[str, ...] = ()
    category: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclude:
    """Cells that are planned but not run, and why."""

    match: Match
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """Cells outside the product of the axes, e.g. a dtype for one problem; never touched by ``exclude``."""

    match: Match
    dtypes: tuple[Dtype, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """How cells are measured: one tier's numbers, as the judge gets them, and the number of sessions."""

    tier: Tier = Tier.SCREEN
    sessions: int = 1
    """Fresh sessions at least."""
    max_sessions: int = 1
    """At most so many where the interval between sessions is still wider than ``session_half_width``."""
    session_half_width: float = 0.005
    """Wanted relative half-width of the 95 % interval of the speed-up between sessions."""
    spec: ProtocolSpec = field(default_factory=ProtocolSpec)
    seed: int | None = None
    """Null: secrets are drawn anew for each attempt. A number repeats a run, for debugging: it can be known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """What the host does around a cell. Times in seconds, sizes in MiB."""

    clocks: ClockPolicy = ClockPolicy.OBSERVE
    clock_target: str | int | Mapping[str, str | int] = "base"
    """SM clock to lock to: ``base`` (the driver's TDP clock), ``max``, MHz, or one of these per glob on the product
    name, the first that matches; ``base`` where none does."""
    memory_clock: str | int | Mapping[str, str | int] = "auto"
    """Memory clock to lock to: ``auto`` (``max``, but ``off`` on consumer cards), ``off``, ``max``, MHz, or one of
    these per glob on the product name; ``auto`` where none matches."""
    exclusive: bool = True
    """Refuse a GPU on which somebody else has a process."""
    hard_exclusive: bool = False
    """Also have the driver refuse further processes while a session is timed (EXCLUSIVE_PROCESS, given back after)."""
    allow_mig: bool = False
    """Take a GPU in MIG mode; nobody can be proven alone on it."""
    allow_mps: bool = False
    """Take a GPU that an MPS server shares out; nobody can be proven alone on it."""
    health_probe: bool = True
    """After each cell, have the GPU compute something whose answer is known."""
    gpu_wait_s: float = 300.0
    memory_mib: int = 16384
    pids: int = 512
    tmpfs_mib: int = 2048
    file_mib: int = 1024
    build_timeout_s: float = 600.0
    load_timeout_s: float = 120.0
    first_call_timeout_s: float = 120.0
    call_timeout_s: float = 30.0
    session_timeout_s: float = 900.0
    infra_retries: int = 1
    build_workers: int = 0
    """Builds at once; 0 means one per core that the measuring of the run's GPUs leaves free."""
    require_own_kernel: bool = True
    """A Triton or CUDA candidate none of whose own kernels was seen to run is ``no_own_kernel``."""
    reject_findings: tuple[str, ...] = ()
    """Rules of :mod:`.scan` whose findings make a candidate ``policy_violation``; all others are labels."""
    sanitize: tuple[str, ...] = ()
    """Tools of compute-sanitizer that each candidate is also run under once, untimed: ``memcheck``, ``racecheck``, …"""
    compile_absent: bool = False
    """Build candidates for GPUs that this host does not have, and record what came of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Other protocol or policy values for the cells it matches; later overrides win."""

    match: Match
    protocol: Mapping[str, object] = field(default_factory=dict)
    policy: Mapping[str, object] = field(default_factory=dict)
    workloads: tuple[str, ...] = ()
    """Replaces the workloads of matching cells when not empty."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """What ``matrix.toml`` says, checked and complete."""

    name: str
    path: Path
    """The file it came from, absolute."""
    gpus: tuple[GpuAxis, ...]
    toolchains: tuple[Toolchain, ...]
    dtypes: tuple[Dtype, ...]
    problems: tuple[ProblemSet, ...]
    candidates: tuple[CandidateSet, ...]
    protocol: Protocol = Protocol()
    policy: Policy = Policy()
    include: tuple[Include, ...] = ()
    exclude: tuple[Exclude, ...] = ()
    overrides: tuple[Override, ...] = ()

    @property
    def root(self) -> Path:
        """The folder that relative paths in the file start from."""
        return self.path.parent

    @property
    def lock_path(self) -> Path:
        """The images lock, unless another is named."""
        return self.root / "images" / "images.lock"
