"""All enums of the program, with one docstring per member.

Enums are ``class X(str, Enum)``, and text always uses ``.value``: images carry Pythons from 3.9 to 3.13, and the
formatting of mixed-in enums changed between them.
"""

from __future__ import annotations

from enum import Enum


class Fault(str, Enum):
    """Party at fault for a failure. Only ``infra`` is retried; only ``candidate`` counts against a kernel."""

    NONE = "none"
    """Nothing failed."""
    CANDIDATE = "candidate"
    """The candidate is wrong, too slow to finish, or hostile."""
    PROBLEM = "problem"
    """The problem fails its own controls or cannot be loaded."""
    INFRA = "infra"
    """The machine, the daemon, the image or the runner failed."""
    UNSUPPORTED = "unsupported"
    """This cell cannot run here, because of what this host or its device lacks."""


class CollectiveKind(str, Enum):
    """Kind of a collective between ranks; its size is defined as in nccl-tests."""

    ALL_REDUCE = "all_reduce"
    """Every rank gets the sum, or another reduction, of all buffers. Size: the buffer of a rank."""
    ALL_GATHER = "all_gather"
    """Every rank gets the parts of all. Size: all parts together."""
    REDUCE_SCATTER = "reduce_scatter"
    """Every rank gets its part of the sum. Size: all parts together."""
    ALL_TO_ALL = "all_to_all"
    """Every rank sends a part to each one. Size: all that a rank sends, to itself too."""
    BROADCAST = "broadcast"
    """Every rank gets the buffer of one. Size: that buffer."""
    SEND = "send"
    """Every rank sends to one other. Size: what a rank sends."""


class Stage(str, Enum):
    """Stage of a cell's life, in order."""

    IMAGE = "image"
    """Search for the pinned image."""
    BUILD = "build"
    """Compilation of the candidate, before the lease."""
    LEASE = "lease"
    """Wait for exclusive use of the device."""
    START = "start"
    """Start of judge and contestants."""
    LOAD = "load"
    """Import of the sources and construction of the models."""
    VERIFY = "verify"
    """Comparison of outputs with the reference."""
    TIME = "time"
    """Timed calls."""
    DONE = "done"
    """Everything ran to its end."""


class Status(str, Enum):
    """Result of an attempt at a cell. Each status belongs to exactly one fault; see :func:`fault_of`."""

    PASSED = "passed"
    """Verified before and after, and timed."""
    VERIFIED = "verified"
    """Verified, and not timed, since the protocol's tier is ``values``."""
    COMPILED = "compiled"
    """Built for an architecture that this host does not have; nothing was run."""
    COMPILE_ERROR = "compile_error"
    """The candidate's source does not compile (Python syntax, nvcc, Triton)."""
    LOAD_ERROR = "load_error"
    """Importing the candidate or constructing its model raised."""
    RUNTIME_ERROR = "runtime_error"
    """A call of the candidate raised."""
    CRASHED = "crashed"
    """The candidate's process ended without answering (signal, ``os._exit``)."""
    TIMEOUT = "timeout"
    """The candidate did not answer within its limit."""
    OUT_OF_MEMORY = "out_of_memory"
    """The candidate exceeded its memory limit on the host, or took more of the device than its share."""
    INCORRECT_STRUCTURE = "incorrect_structure"
    """The candidate returned outputs of another structure or number than the reference."""
    INCORRECT_SHAPE = "incorrect_shape"
    """An output has another shape than the reference's."""
    INCORRECT_DTYPE = "incorrect_dtype"
    """An output has another dtype than the reference's."""
    INCORRECT_DEVICE = "incorrect_device"
    """An output is on another device than the inputs."""
    NONFINITE = "nonfinite"
    """An output holds NaN or infinity where the reference is finite."""
    INCORRECT_VALUES = "incorrect_values"
    """An output is further from the reference than its tolerance."""
    INPUT_MODIFIED = "input_modified"
    """The candidate wrote into its inputs although the problem does not."""
    OUT_OF_BOUNDS = "out_of_bounds"
    """Memory around a lent buffer was written to, or the sanitizer found an access outside of an allocation."""
    OUTPUT_ALIASED = "output_aliased"
    """An output shares memory with an input, with another output, or with one of an earlier call."""
    NONDETERMINISTIC = "nondeterministic"
    """Two calls on equal inputs differ by more than the tolerance allows."""
    CONTRACT_BROKEN = "contract_broken"
    """The outputs break the quantised problem's contract: too far from the reference, or nothing was quantised."""
    NO_OWN_KERNEL = "no_own_kernel"
    """The policy requires that a kernel of the candidate's own runs, and none was traced."""
    POLICY_VIOLATION = "policy_violation"
    """The candidate's source has a finding that the policy does not allow."""
    PROTOCOL_VIOLATION = "protocol_violation"
    """The candidate's process sent something that an honest worker never sends."""
    TIMING_MISMATCH = "timing_mismatch"
    """The device time claimed by the candidate's worker contradicts the judge's own clock, or the device's limits."""
    INVALID_PROBLEM = "invalid_problem"
    """The problem fails its own controls: the reference fails against itself, or zeros or a constant pass."""
    PROBLEM_ERROR = "problem_error"
    """The problem's source cannot be loaded or run here."""
    UNSUPPORTED = "unsupported"
    """The cell cannot run here, for a reason known beforehand."""
    DOES_NOT_FIT = "does_not_fit"
    """The device has too little memory for the cell, and the candidate is not the reason."""
    IMAGE_ERROR = "image_error"
    """The pinned image is missing or is not what the lock says."""
    GPU_BUSY = "gpu_busy"
    """Another process held the GPU past the wait limit."""
    CONTENDED = "contended"
    """Another process used the GPU while this cell ran."""
    CONTAINER_LOST = "container_lost"
    """The judge or a container vanished without a report, for example because the daemon was killed."""
    THROTTLED = "throttled"
    """The GPU slowed itself down (heat, power supply) for too much of the measurement."""
    CLOCKS_NOT_HELD = "clocks_not_held"
    """The policy requires locked clocks, and under load they differed from the request."""
    GPU_LOST = "gpu_lost"
    """The GPU stopped answering: fallen off the bus, or in need of a reset."""
    INFRA_ERROR = "infra_error"
    """Any other failure of this machine."""


_FAULTS = {
    Status.PASSED: Fault.NONE,
    Status.VERIFIED: Fault.NONE,
    Status.COMPILED: Fault.NONE,
    Status.INVALID_PROBLEM: Fault.PROBLEM,
    Status.PROBLEM_ERROR: Fault.PROBLEM,
    Status.UNSUPPORTED: Fault.UNSUPPORTED,
    Status.DOES_NOT_FIT: Fault.UNSUPPORTED,
    Status.IMAGE_ERROR: Fault.INFRA,
    Status.GPU_BUSY: Fault.INFRA,
    Status.CONTENDED: Fault.INFRA,
    Status.CONTAINER_LOST: Fault.INFRA,
    Status.THROTTLED: Fault.INFRA,
    Status.CLOCKS_NOT_HELD: Fault.INFRA,
    Status.GPU_LOST: Fault.INFRA,
    Status.INFRA_ERROR: Fault.INFRA,
}


def fault_of(status: Status) -> Fault:
    """Return the party at fault for ``status``; for a status not named above, the candidate."""
    return _FAULTS.get(status, Fault.CANDIDATE)


class Dtype(str, Enum):
    """Element type of a cell; floating inputs and parameters are cast to it."""

    FP32 = "fp32"
    """IEEE single precision."""
    FP16 = "fp16"
    """IEEE half precision."""
    BF16 = "bf16"
    """bfloat16: 8 exponent bits, 7 mantissa bits."""
    FP64 = "fp64"
    """IEEE double precision."""
    TF32 = "tf32"
    """IEEE single precision in memory; matrix products and convolutions may round their factors to 10 mantissa bits."""
    FP8_E4M3 = "fp8_e4m3"
    """8-bit inputs, 4 exponent bits; parameters, arithmetic and outputs of the reference are bfloat16."""
    FP8_E5M2 = "fp8_e5m2"
    """8-bit inputs, 5 exponent bits; parameters, arithmetic and outputs of the reference are bfloat16."""
    INT8 = "int8"
    """8-bit integers, exact."""
    INT32 = "int32"
    """32-bit integers, exact."""
    BOOL = "bool"
    """Truth values, exact."""


class Language(str, Enum):
    """Language of a candidate."""

    TRITON = "triton"
    """Triton kernels, compiled at the first call."""
    CUDA = "cuda"
    """CUDA C++ through ``torch.utils.cpp_extension.load_inline``, compiled off the lease."""
    TORCH = "torch"
    """Plain PyTorch."""
    CUTE_DSL = "cute_dsl"
    """CUTLASS's Python (package ``nvidia-cutlass-dsl``, module ``cutlass``), compiled at the first call."""
    TILELANG = "tilelang"
    """TileLang (package and module ``tilelang``), compiled at the first call."""
    HIP = "hip"
    """HIP C++ through ``torch.utils.cpp_extension``, compiled by ``hipcc`` off the lease."""


class Role(str, Enum):
    """Purpose of a process of a cell."""

    JUDGE = "judge"
    """Trusted: has references, seeds and tolerances, and decides."""
    CANDIDATE = "candidate"
    """Hostile: the candidate's source and a thin worker."""
    BASELINE = "baseline"
    """The reference in its own worker, confined like a candidate and timed by the same protocol."""
    RIVAL = "rival"
    """A further baseline, which is only timed: the reference through ``torch.compile``, or a library call."""
    BUILDER = "builder"
    """Hostile, without a GPU: compiles the candidate."""
    PROBE = "probe"
    """Trusted, without candidate code: checks a GPU's health, or measures its speed."""


class InputMode(str, Enum):
    """Distribution of a verification's inputs."""

    STANDARD = "standard"
    """Drawn by the problem's own code."""
    OUTLIER = "outlier"
    """Each floating element is scaled by 50 with probability 0.001 (KernelBench-X), where that keeps its range."""

    EXACT = "exact"
    """Zeros, ones and a few larger whole numbers with the elements' signs, so few that every sum is exact in the dtype.

    Where the result is whole, it must be equal.
    """


class Implementation(str, Enum):
    """Implementation that a baseline runs."""

    EAGER = "eager"
    """The reference as written."""
    COMPILE = "compile"
    """The reference through ``torch.compile``, default mode."""
    COMPILE_MAX_AUTOTUNE = "compile-max-autotune"
    """The reference through ``torch.compile``, mode ``max-autotune-no-cudagraphs``."""
    LIBRARY = "library"
    """The library call that the problem names."""


class Regime(str, Enum):
    """Device state in which a call is timed; times of different regimes are never mixed."""

    COLD = "cold"
    """The L2 cache is written over before each call."""
    WARM = "warm"
    """Calls replayed back to back from a CUDA graph on the same inputs."""
    BURST = "burst"
    """At most 5 ms of work, then at least 20 ms of rest: clocks and power of a rested device."""
    SUSTAINED = "sustained"
    """Timed after a second of this work alone: clocks and power of a busy device."""


class Verdict(str, Enum):
    """Result of a comparison of two implementations."""

    FASTER = "faster"
    """The candidate takes less time, by more than the margin and more than chance."""
    SLOWER = "slower"
    """The candidate takes more time, likewise."""
    EQUIVALENT = "equivalent"
    """Any difference is smaller than the margin."""
    INCONCLUSIVE = "inconclusive"
    """The sessions do not decide between the others."""


class VerdictReason(str, Enum):
    """Reason of a verdict. Each comes with the figure that decided."""

    BEYOND_MARGIN = "beyond_margin"
    """The sessions show a difference of more than the margin: at least the figure, a ratio."""
    BEYOND_FLOOR = "beyond_floor"
    """One session shows a difference of more than the figure, which sessions of equal code do not reach."""
    WITHIN_MARGIN = "within_margin"
    """The sessions show a difference of less than the margin: at most the figure, a ratio."""
    ONE_SESSION = "one_session"
    """The difference is at most the figure, and one session shows only larger ones."""
    ONE_BLOCK = "one_block"
    """The figure is the number of blocks that were timed of each; their noise is not known."""
    BLOCKS_DISAGREE = "blocks_disagree"
    """The blocks of one session differ: from the figure on, a difference could be shown."""
    SESSIONS_DISAGREE = "sessions_disagree"
    """Some sessions say faster and some slower; the figure is their largest speed-up ÷ their smallest."""
    FEW_SESSIONS = "few_sessions"
    """The sessions agree, but are too few for how much they differ: their 99 % interval reaches the figure."""
    SMALL_DIFFERENCE = "small_difference"
    """There is a difference, but perhaps not more than the margin: at least the figure, a ratio."""
    COARSE_CLOCK = "coarse_clock"
    """The device's clock does not resolve the difference; the figure is its tick as a share of the time."""
    BOUND_BELOW_1 = "bound_below_1"
    """It may not be faster: the figure is the speed-up if its calls took as long as the judge's clock allows."""
    FEW_CALLS = "few_calls"
    """The figure is the number of timed calls, too few for a median that one outlier cannot move."""
    SCATTERED = "scattered"
    """The figure is the share of calls that are 1.5× off their median, which thus does not describe them."""
    AUDIT_OBJECTS = "audit_objects"
    """The figure is the number of the audit's checks that leave no ground for a verdict, given all results merged."""
    ONE_OF_MANY = "one_of_many"
    """Of all verdicts of the table, too many like this one would be chance; the figure is the chance of this one."""


class Grade(str, Enum):
    """Trustworthiness of a time."""

    A = "A"
    """Spread within and between sessions at most 1 %, machine drift at most 1 %, clocks locked and verified."""
    B = "B"
    """Spreads and drift at most 2 %."""
    C = "C"
    """Anything else, including a single session; not for rankings."""


class Tier(str, Enum):
    """Measuring effort for a cell."""

    VALUES = "values"
    """Outputs are compared, and nothing is timed."""
    QUICK = "quick"
    """One session, few samples: for the many candidates of a search."""
    SCREEN = "screen"
    """One session."""
    PUBLISH = "publish"
    """At least five fresh sessions."""


class ClockPolicy(str, Enum):
    """Treatment of a GPU's clocks."""

    OBSERVE = "observe"
    """Clocks are only recorded."""
    LOCK = "lock"
    """Locked where this host allows it; elsewhere the record and every table say that they were not."""
    REQUIRE = "require"
    """Locked and verified under load, else the cell does not count."""


class ClockState(str, Enum):
    """State of the clocks during a measurement."""

    LOCKED = "locked"
    """Locked, and verified under load by the driver and from inside a kernel."""
    UNLOCKED = "unlocked"
    """Chosen by the driver."""
    THROTTLED = "throttled"
    """The GPU slowed itself down for too much of the measurement."""
    NOT_APPLICABLE = "not_applicable"
    """There is no GPU, or it was never held."""
