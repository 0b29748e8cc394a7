"""The words of the system: every enum, one docstring per member.

``class X(str, Enum)`` and always ``.value`` in text, since images carry Pythons from 3.9 to 3.13 and formatting of
mixed-in enums changed between them.
"""

from __future__ import annotations

from enum import Enum


class Fault(str, Enum):
    """Whose fault a failure is. Only ``infra`` is retried; only ``candidate`` counts against a kernel."""

    NONE = "none"
    """Nothing failed."""
    CANDIDATE = "candidate"
    """The candidate is wrong, slow to death, or hostile."""
    PROBLEM = "problem"
    """The problem fails its own controls or cannot be loaded."""
    INFRA = "infra"
    """The machine, the daemon, the image or the runner failed."""
    UNSUPPORTED = "unsupported"
    """This cell cannot run here, for a reason known beforehand."""


class Stage(str, Enum):
    """Where in a cell's life something happened, in order."""

    IMAGE = "image"
    """Finding the pinned image."""
    BUILD = "build"
    """Compiling the candidate, off the lease."""
    LEASE = "lease"
    """Getting the device for ourselves."""
    START = "start"
    """Starting judge and candidate."""
    LOAD = "load"
    """Importing the sources and constructing the models."""
    VERIFY = "verify"
    """Comparing outputs with the reference."""
    TIME = "time"
    """Timed calls."""
    DONE = "done"
    """Everything ran to its end."""


class Status(str, Enum):
    """How an attempt at a cell ended. Each status belongs to exactly one fault, see :func:`fault_of`."""

    PASSED = "passed"
    """Verified before and after, and timed."""
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
    """The candidate ran into its memory limit, on the host or on the device."""
    INCORRECT_STRUCTURE = "incorrect_structure"
    """The candidate returned another kind or number of outputs than the reference."""
    INCORRECT_SHAPE = "incorrect_shape"
    """An output has another shape than the reference's."""
    INCORRECT_DTYPE = "incorrect_dtype"
    """An output has another dtype than the reference's."""
    INCORRECT_DEVICE = "incorrect_device"
    """An output lives on another device than the inputs."""
    NONFINITE = "nonfinite"
    """An output holds NaN or infinity where the reference is finite."""
    INCORRECT_VALUES = "incorrect_values"
    """An output is further from the reference than its tolerance."""
    INPUT_MODIFIED = "input_modified"
    """The candidate wrote into its inputs and the problem does not."""
    OUT_OF_BOUNDS = "out_of_bounds"
    """Memory around a lent buffer was written to, or the sanitizer found an access outside of an allocation."""
    OUTPUT_ALIASED = "output_aliased"
    """An output shares memory with an input, with another output, or with one of an earlier call."""
    NONDETERMINISTIC = "nondeterministic"
    """Two calls on equal inputs differ by more than the tolerance allows."""
    CONTRACT_BROKEN = "contract_broken"
    """The quantised problem's contract is not kept: too far from the reference, or nothing was quantised."""
    NO_OWN_KERNEL = "no_own_kernel"
    """The policy requires that a kernel of the candidate's own runs, and none was seen to."""
    POLICY_VIOLATION = "policy_violation"
    """A finding about the candidate's source that the policy does not allow."""
    PROTOCOL_VIOLATION = "protocol_violation"
    """The candidate's process sent something that no honest runner sends."""
    TIMING_MISMATCH = "timing_mismatch"
    """The device time the candidate's side claims contradicts the judge's own clock, or what the device can do."""
    INVALID_PROBLEM = "invalid_problem"
    """The problem fails its own controls: the reference fails against itself, or zeros or a constant pass."""
    PROBLEM_ERROR = "problem_error"
    """The problem's source cannot be loaded or run here."""
    UNSUPPORTED = "unsupported"
    """The cell cannot run here, for a reason known beforehand."""
    IMAGE_ERROR = "image_error"
    """The pinned image is missing or is not what the lock says."""
    GPU_BUSY = "gpu_busy"
    """Somebody else held the GPU past the wait limit."""
    CONTENDED = "contended"
    """Somebody else came onto the GPU while this cell ran."""
    CONTAINER_LOST = "container_lost"
    """The judge, or a container, vanished without a report (daemon killed, judge killed)."""
    THROTTLED = "throttled"
    """The GPU slowed itself down (heat, power supply) for too much of the measurement."""
    CLOCKS_NOT_HELD = "clocks_not_held"
    """The policy requires locked clocks, and under load they were not what was asked for."""
    GPU_LOST = "gpu_lost"
    """The GPU stopped answering: fallen off the bus, or in need of a reset."""
    INFRA_ERROR = "infra_error"
    """Anything else that is this machine's fault."""


_FAULTS = {
    Status.PASSED: Fault.NONE,
    Status.COMPILED: Fault.NONE,
    Status.INVALID_PROBLEM: Fault.PROBLEM,
    Status.PROBLEM_ERROR: Fault.PROBLEM,
    Status.UNSUPPORTED: Fault.UNSUPPORTED,
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
    """Whose fault ``status`` is; every status not named above is the candidate's."""
    return _FAULTS.get(status, Fault.CANDIDATE)


class Dtype(str, Enum):
    """Element types a cell can be run in: what floating inputs and parameters are cast to."""

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
    """What a candidate is written in."""

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
    """HIP C++, compiled by ``hipcc``."""


class Role(str, Enum):
    """What a process of a cell is for."""

    JUDGE = "judge"
    """Trusted: references, seeds, tolerances, verdict, report."""
    CANDIDATE = "candidate"
    """Hostile: the candidate's source and a thin worker."""
    BASELINE = "baseline"
    """The reference in a worker of its own, as confined as a candidate, timed by the same protocol."""
    RIVAL = "rival"
    """A further baseline: the reference through ``torch.compile``, or a library's call; timed, and no more."""
    BUILDER = "builder"
    """Hostile, without a GPU: compiles the candidate."""
    PROBE = "probe"
    """Trusted, without candidate code: asks a GPU whether it is well, or how fast it is."""


class InputMode(str, Enum):
    """How a verification's inputs are drawn."""

    STANDARD = "standard"
    """As the problem draws them."""
    OUTLIER = "outlier"
    """Each floating element is scaled by 50 with probability 0.001 (KernelBench-X)."""

    EXACT = "exact"
    """Zeros, ones and a few larger whole numbers, so few that every sum is exact in the dtype: where the answer is
    whole, it must be equal."""


class Implementation(str, Enum):
    """What a baseline runs."""

    EAGER = "eager"
    """The reference as it stands."""
    COMPILE = "compile"
    """The reference through ``torch.compile``, default mode."""
    COMPILE_MAX_AUTOTUNE = "compile-max-autotune"
    """The reference through ``torch.compile``, mode ``max-autotune-no-cudagraphs``."""
    LIBRARY = "library"
    """The call of a vendor's library that the problem names."""


class Regime(str, Enum):
    """In what state of the device a call is timed; times of different regimes are never mixed."""

    COLD = "cold"
    """The L2 cache is written over before each call."""
    WARM = "warm"
    """Calls replayed back to back from a CUDA graph on the same inputs."""
    BURST = "burst"
    """At most 5 ms of work, then at least 20 ms of rest: clocks and power are those of a rested device."""
    SUSTAINED = "sustained"
    """After a second of nothing but this work: clocks and power are those of a busy device."""


class Verdict(str, Enum):
    """What a comparison of two implementations comes to."""

    FASTER = "faster"
    """The candidate takes less time, by more than the margin and more than chance."""
    SLOWER = "slower"
    """It takes more."""
    EQUIVALENT = "equivalent"
    """Whatever the difference, it is smaller than the margin."""
    INCONCLUSIVE = "inconclusive"
    """The sessions say neither."""


class Grade(str, Enum):
    """How far a time can be trusted."""

    A = "A"
    """Spread within and between sessions at most 1 %, machine drift at most 1 %, clocks locked and verified."""
    B = "B"
    """Spreads and drift at most 2 %."""
    C = "C"
    """Anything else, one session only included; not for rankings."""


class Tier(str, Enum):
    """How much measuring a cell gets."""

    SCREEN = "screen"
    """One session."""
    PUBLISH = "publish"
    """At least five fresh sessions."""


class ClockPolicy(str, Enum):
    """What is done about a GPU's clocks."""

    OBSERVE = "observe"
    """Nothing is changed; what they are is recorded."""
    LOCK = "lock"
    """Locked where this host allows it; where it does not, the record and every table say so."""
    REQUIRE = "require"
    """Locked, verified under load, or the cell does not count."""


class ClockState(str, Enum):
    """What a record says of the clocks during its measurement."""

    LOCKED = "locked"
    """Locked, and verified under load by the driver and from inside a kernel."""
    UNLOCKED = "unlocked"
    """The driver chose them."""
    THROTTLED = "throttled"
    """The GPU slowed itself down for too much of the measurement."""
    NOT_APPLICABLE = "not_applicable"
    """No GPU, or it was never held."""
