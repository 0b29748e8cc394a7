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
    PROTOCOL_VIOLATION = "protocol_violation"
    """The candidate's process sent something that no honest runner sends."""
    TIMING_MISMATCH = "timing_mismatch"
    """The device time the candidate's side claims contradicts the judge's own clock."""
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


class Language(str, Enum):
    """What a candidate is written in."""

    TRITON = "triton"
    """Triton kernels, compiled at the first call."""
    CUDA = "cuda"
    """CUDA C++ through ``torch.utils.cpp_extension.load_inline``, compiled off the lease."""
    TORCH = "torch"
    """Plain PyTorch."""


class Role(str, Enum):
    """What a process of a cell is for."""

    JUDGE = "judge"
    """Trusted: references, seeds, tolerances, verdict, report."""
    CANDIDATE = "candidate"
    """Hostile: the candidate's source and a thin worker."""
    BASELINE = "baseline"
    """The reference in a worker of its own, timed by the same protocol."""
    BUILDER = "builder"
    """Hostile, without a GPU: compiles the candidate."""
    PROBE = "probe"
    """Trusted, without candidate code: asks a GPU whether it is well, or how fast it is."""


class Mode(str, Enum):
    """How a verification's inputs are drawn."""

    STANDARD = "standard"
    """As the problem draws them."""
    OUTLIER = "outlier"
    """Each floating element is scaled by 50 with probability 0.001 (KernelBench-X)."""


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
