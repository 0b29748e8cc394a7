"""Frozen classes for the content of ``matrix.toml``.

:func:`kernel_matrix.matrix.load.load_matrix` makes them; no other package reads the TOML itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_matrix.model.enums import ClockPolicy, Dtype, Language, Tier
from kernel_matrix.model.messages import ProtocolSpec
from kernel_matrix.platforms.registry import DEFAULT

DECLARED_LANGUAGES = frozenset({Language.CUTE_DSL, Language.TILELANG})
"""Languages that no bundled image can compile; a toolchain whose own image can lists them in ``languages``."""


TOOLKITS = ("cuda", "rocm")
"""Keys of a toolchain that are the version of a platform's toolkit, each named like its platform."""
VERSION_KEYS = ("torch", "triton", *TOOLKITS)
"""Keys of a toolchain that are versions: given for an image, and read from an environment."""

REQUIRE = "require"
"""Value of :attr:`Policy.exclusive`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuAxis:
    """One value of the ``gpus`` axis: a name, and conditions that a device must all meet."""

    name: str
    """Name in cells, records and tables: ``h200``, ``cpu``."""
    platform: str = DEFAULT
    """Registry key of a platform."""
    model: str | None = None
    """Glob on the product name, case-insensitive: ``NVIDIA H200*``."""
    uuid: str | None = None
    compute_capability: str | None = None
    """``9.0``; planning uses it on hosts that lack the GPU."""
    min_memory_gib: float | None = None
    link: str | None = None
    """Kind of link that the devices of several ranks need at least, such as ``pcie``."""
    units: int = 1
    """How many boards measure each cell, one after the other or at once."""
    without: tuple[str, ...] = ()
    """UUIDs of boards that are not used, such as one that the audit found slow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Toolchain:
    """PyTorch, Triton and the compilers for one platform: one pinned image, ``images/<name>/``, or an environment."""

    name: str
    torch: str | None = None
    """Version; ``None`` for an environment that was not looked at."""
    triton: str | None = None
    """Version; ``None`` for an environment that was not looked at, or has none."""
    cuda: str | None = None
    """CUDA toolkit version, ``12.8``; ``None`` where the image has none."""
    rocm: str | None = None
    """ROCm release, ``7.2``; ``None`` where the image has none."""
    platform: str = ""
    """Registry key of a platform. Left out: ``cuda`` or ``rocm`` where that version is given, else ``cpu``; that of an
    environment is empty until it was looked at."""
    languages: tuple[Language, ...] = ()
    """Members of :data:`DECLARED_LANGUAGES` that its image can compile."""
    environment: str = ""
    """The Python environment of this host that takes the place of an image: ``auto`` or its absolute path."""

    def __post_init__(self) -> None:
        """Fill in the platform."""
        if not self.platform and not self.environment:
            object.__setattr__(self, "platform", next((name for name in TOOLKITS if name in self.versions), "cpu"))

    def with_versions(self, versions: Mapping[str, str | None]) -> Toolchain:
        """Return this toolchain with the versions of an environment by package, a toolkit's cut to two parts."""
        cuda, rocm = (_first_two_parts(versions.get(name)) for name in TOOLKITS)
        return replace(self, torch=versions.get("torch"), triton=versions.get("triton"), cuda=cuda, rocm=rocm)

    @property
    def versions(self) -> Mapping[str, str]:
        """Version by package; without those that are not in the image."""
        named = {"torch": self.torch, "triton": self.triton, "cuda": self.cuda, "rocm": self.rocm}
        return {name: version for name, version in named.items() if version is not None}


def _first_two_parts(version: str | None) -> str | None:
    return None if version is None else ".".join(version.split(".")[:2])


@dataclass(frozen=True, slots=True, kw_only=True)
class ProblemSet:
    """A selection of problems from one source."""

    source: str
    """Registry key of the source: ``folder``, ``kernelbench``, …"""
    path: Path | None = None
    """Absolute path; in the file it is relative to the matrix file. ``None``: the problems bundled with the source."""
    select: tuple[str, ...] = ("*",)
    """Globs on the problem id."""
    levels: tuple[int, ...] = ()
    categories: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    workloads: tuple[str, ...] = ()
    """Names to run; empty means all of each problem."""
    ranks: tuple[int, ...] = ()
    """Numbers of ranks of problems of several ranks; empty means the one that each problem names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateSet:
    """A selection of candidates and their origin."""

    select: tuple[str, ...] = ("*",)
    """Globs on the candidate id ``<problem id>/<name>``; ``*/@reference`` is the reference itself."""
    path: Path | None = None
    """Folder or file of candidates kept apart from the problems; ``None``: the candidates beside the problems."""
    source: str = "folder"
    """Registry key of the source that reads ``path``."""
    method: str | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """Globs per axis that select the cells of a rule; all must match, an empty tuple matches everything."""

    gpu: tuple[str, ...] = ()
    toolchain: tuple[str, ...] = ()
    dtype: tuple[str, ...] = ()
    problem: tuple[str, ...] = ()
    candidate: tuple[str, ...] = ()
    language: tuple[str, ...] = ()
    category: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Exclude:
    """Cells that are planned but not run, with the reason."""

    match: Match
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Include:
    """Cells outside the product of the axes, e.g. a dtype for one problem; ``exclude`` does not apply to them."""

    match: Match
    dtypes: tuple[Dtype, ...]
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Protocol:
    """Settings of the measurement: the judge's protocol and the number of sessions."""

    tier: Tier = Tier.SCREEN
    sessions: int = 1
    """Minimum number of fresh sessions."""
    max_sessions: int = 1
    """Maximum number of sessions while the interval between sessions is wider than ``session_half_width``."""
    session_half_width: float = 0.005
    """Target relative half-width of the 95 % interval of the speed-up between sessions."""
    spec: ProtocolSpec = field(default_factory=ProtocolSpec)
    seed: int | None = None
    """``None``: a new secret seed per attempt. A fixed seed repeats a run for debugging, but candidates can know it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Settings of the host around a cell. Times in seconds, sizes in MiB."""

    clocks: ClockPolicy = ClockPolicy.OBSERVE
    clock_target: str | int | Mapping[str, str | int] = "base"
    """SM clock to lock to: ``base`` (the driver's TDP clock), ``max``, MHz, or one of these per glob on the product
    name (the first match counts; ``base`` without a match)."""
    memory_clock: str | int | Mapping[str, str | int] = "auto"
    """Memory clock to lock to: ``auto`` (``max``, but ``off`` on consumer cards), ``off``, ``max``, MHz, or one of
    these per glob on the product name; ``auto`` without a match."""
    exclusive: bool | str = True
    """Wait for a GPU that runs processes of others; :data:`REQUIRE` also refuses one whose processes are not seen."""
    hard_exclusive: bool = False
    """Have the driver refuse further processes while a session is timed (EXCLUSIVE_PROCESS, reset afterwards)."""
    allow_mig: bool = False
    """Accept a GPU that is divided into parts (MIG, compute partitions), where exclusive use cannot be proven."""
    allow_mps: bool = False
    """Accept a GPU behind an MPS server, where exclusive use cannot be proven."""
    health_probe: bool = True
    """Check the GPU with a computation of known result after each cell."""
    gpu_wait_s: float = 300.0
    memory_mib: int = 16384
    device_memory_gib: float = 0.0
    """Device memory that a cell may use, GiB, as if the card had no more; 0 means all of it."""
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
    """Parallel builds; 0 means one per core that measuring the run's GPUs leaves free."""
    require_own_kernel: bool = True
    """Fail a Triton or CUDA candidate as ``no_own_kernel`` if none of its own kernels was seen to run."""
    reject_findings: tuple[str, ...] = ()
    """Rules of :mod:`.scan` whose findings make a candidate ``policy_violation``; others are labels."""
    sanitize: tuple[str, ...] = ()
    """Tools of compute-sanitizer to run each candidate under once, untimed: ``memcheck``, ``racecheck``, …"""
    compile_absent: bool = False
    """Build candidates for GPUs that this host lacks, and record the result of the build."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Override:
    """Other protocol or policy values for the cells it matches; later overrides win."""

    match: Match
    protocol: Mapping[str, object] = field(default_factory=dict)
    policy: Mapping[str, object] = field(default_factory=dict)
    workloads: tuple[str, ...] = ()
    """Workloads of matching cells in place of the selected ones; empty changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Matrix:
    """The content of ``matrix.toml``, checked and complete."""

    name: str
    path: Path
    """Absolute path of the file."""
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
        """Folder that relative paths in the file start from."""
        return self.path.parent

    @property
    def lock_path(self) -> Path:
        """Default path of the images lock."""
        return self.root / "images" / "images.lock"
