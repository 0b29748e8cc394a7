"""The judge's view of one worker: buffers it lent, calls it asked for, and its own clock around them."""

from __future__ import annotations

import math
import re
import secrets
import socket
import time
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Callable, Dict, Iterator, List, Optional, Sequence, Tuple, TypeVar

import torch

from kernel_matrix.inside.arguments import NotTransferableError, encode_arguments
from kernel_matrix.inside.error_excerpt import first_error, useful_part
from kernel_matrix.inside.exception_kinds import missing_kernel_package
from kernel_matrix.inside.judge.red_zones import RedZones
from kernel_matrix.inside.judge.reference import ReferenceModel
from kernel_matrix.inside.judge.session_ended import MAX_LOG, SessionEnded, finding
from kernel_matrix.inside.memory import Arena, TensorSpec, create_arena, lay_out
from kernel_matrix.inside.wire import (
    CallFailure,
    Channel,
    FrameKind,
    OutputsClaim,
    PeerGoneError,
    WireError,
    pack_replay,
    unpack_done,
    unpack_failed,
    unpack_outputs,
    unpack_traced,
)
from kernel_matrix.model.enums import Role, Stage, Status
from kernel_matrix.model.messages import ContestantSpec, JudgeTimeouts

T = TypeVar("T")

POISON = 0xFF
"""Every byte of an output buffer before a call: NaN in every floating dtype."""

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Iteration)\b")

_STATUS = {
    CallFailure.COMPILE: Status.COMPILE_ERROR,
    CallFailure.LOAD: Status.LOAD_ERROR,
    CallFailure.RUNTIME: Status.RUNTIME_ERROR,
    CallFailure.MEMORY: Status.OUT_OF_MEMORY,
}

_OF_AN_IMPORT = frozenset({CallFailure.LOAD, CallFailure.RUNTIME})
"""What an import in vain is told as: of a source, or of a function that a constructor or a call has come to."""

FIRST_CALL_S = 4.0
"""A first call loads libraries; it is given so many seconds even where later ones get less."""
TRACER_S = 10.0
"""A traced call is given so many seconds more: a tracer that starts from a cold disk takes half of them."""

_GOODBYE_S = 0.1
"""Longest wait for room to say goodbye: there is none where a worker reads nothing any more."""

_TO_A_CALL = frozenset({FrameKind.DONE, FrameKind.OUTPUTS, FrameKind.TRACED})
"""Answers that must carry the number of the call they are to."""


@dataclass(frozen=True)
class CallResult:
    """One call's result, or that of several replayed in a row. Times in nanoseconds."""

    claim: OutputsClaim
    device_ns: int
    """What the worker claims, of all calls together."""
    wall_ns: int
    """The judge's own clock from the request to ``DONE``."""
    handover_ns: int
    """The judge's own clock from ``DONE`` until it has read something of the outputs: copying them, and late work."""


@dataclass
class LentBuffers:
    """Buffers lent to a worker, and the layout they were lent for."""

    layout: Any
    inputs: Arena
    outputs: Arena
    input_specs: List[TensorSpec]
    output_specs: List[TensorSpec]
    zones: Tuple[RedZones, RedZones]

    def take_back(self) -> None:
        """Close both arenas."""
        self.inputs.close()
        self.outputs.close()


class WorkerClient:
    """One contestant's worker and the memory lent to it.

    What it does wrong is raised as a :class:`~kernel_matrix.inside.judge.session_ended.SessionEnded`: as the
    candidate's own fault, as the
    problem's where it is the baseline, and for the caller to make a label of where it is a rival. What goes wrong
    before its source is imported is this machine's fault. A failure for lack of a package that is not installed here is
    ``unsupported`` where its source imports that package, as the host has read it.
    """

    def __init__(self, contestant: ContestantSpec, channel: Channel, device: str, timeouts: JudgeTimeouts) -> None:
        self.contestant = contestant
        self.awaited = False
        """Whether an answer is being waited for."""
        self.fastest_s: Optional[float] = None
        """The least time that a call took since the model was constructed, by the judge's clock."""
        self._channel = channel
        self._device = device
        self._timeouts = timeouts
        self._has_answered = False
        """Whether it has come to the end of a call, of whichever model."""
        self._load_limit_s = math.inf
        self._call_limit_s = timeouts.call_s
        self._sequence = 0
        self._flush = torch.empty(0)
        self._compiles = contestant.may_compile
        self._waits_s = 0.0
        self._lent: Optional[LentBuffers] = None
        self._moves = False
        self._parameters = ExitStack()

    @property
    def name(self) -> str:
        """Name of the contestant, as blocks and labels have it."""
        return self.contestant.name

    @property
    def role(self) -> Role:
        """Whether it is the candidate, the baseline or a rival."""
        return self.contestant.role

    # ---- getting ready; what begins with ``start_`` returns at once, so that all contestants work at the same time

    def open(self) -> None:
        """Have the worker open the device."""
        self.start_open()
        self.finish_open()

    def start_open(self) -> None:
        """Tell the worker that the device is ours."""
        self._order(FrameKind.OPEN, {}, (), Stage.START)

    def finish_open(self) -> None:
        """Wait until it has opened it."""
        self._ready(Stage.START)

    def load(self, values: Dict[str, Any]) -> None:
        """Have the worker import its source, with these values for the module constants of a reference."""
        self.start_load(values)
        self.finish_load()

    def start_load(self, values: Dict[str, Any]) -> None:
        """Tell the worker what to import."""
        settings = {
            "file": self.contestant.file,
            "entry": self.contestant.entry,
            "values": values,
            "module": self.name.replace("-", "_"),
            "compile_mode": self.contestant.compile_mode,
        }
        self._order(FrameKind.LOAD, settings, (), Stage.LOAD)

    def finish_load(self) -> None:
        """Wait until it is imported."""
        self._ready(Stage.LOAD)

    def construct(self, reference: ReferenceModel, flush_bytes: int) -> None:
        """Have the worker construct its model, with the reference's parameters where names and shapes match."""
        self.start_construct(reference, flush_bytes)
        self.finish_construct()

    def start_construct(self, reference: ReferenceModel, flush_bytes: int) -> None:
        """Lend the parameters and tell the worker to construct its model."""
        self._take_back()
        self._flush = torch.empty(flush_bytes, dtype=torch.uint8, device=self._device)
        tensors: List[torch.Tensor] = []
        init = _encoded("get_init_inputs()", reference.init_arguments, tensors)
        state = {}
        for name, value in reference.state.items():
            state[name] = len(tensors)
            tensors.append(value)
        specs, nbytes = lay_out(tensors)
        message = {
            "init": init,
            "state": state,
            "tensors": [s.to_json() for s in specs],
            "nbytes": nbytes,
            "dtype": reference.dtype.value,
            "flush_bytes": flush_bytes,
        }
        with ExitStack() as undo:
            arena = undo.enter_context(closing(create_arena(self._device, nbytes)))
            _fill(arena, specs, tensors)
            self._synchronize()
            self._order(FrameKind.MODEL, message, (arena.descriptor,), Stage.LOAD)
            self._parameters = undo.pop_all()

    def finish_construct(self) -> None:
        """Wait until the model is there; the memory of the parameters goes back."""
        with self._parameters:
            self._ready(Stage.LOAD)
        self._compiles = self.contestant.may_compile
        self.fastest_s = None
        self._call_limit_s = self._timeouts.call_s

    def limit_loading(self, seconds: float) -> None:
        """Wait no longer than this for each step of getting ready, nor than the job allows, unless it may compile."""
        if not self.contestant.may_compile:
            self._load_limit_s = seconds

    def limit_calls(self, seconds: float) -> None:
        """Wait no longer than this for a call of the model there is now, nor than the job allows."""
        self._call_limit_s = min(self._timeouts.call_s, seconds)

    # ---- calls

    def lend_elsewhere(self) -> None:
        """From the next delivery on, lend other memory than now."""
        self._moves = True

    def deliver(self, inputs: List[Any], like: Sequence[torch.Tensor]) -> Tuple[torch.Tensor, ...]:
        """Put ``inputs`` into the lent buffer, poison the outputs, and write new red zones around both.

        :param like: tensors, ``meta`` ones will do, that have shape, dtype and strides of the outputs due.
        :return: the tensors as sent, which are the judge's own.
        """
        tensors: List[torch.Tensor] = []
        arguments = _encoded("get_inputs()", inputs, tensors)
        lent = self._lend(arguments, tensors, like)
        _fill(lent.inputs, lent.input_specs, tensors)
        lent.outputs.tensor.fill_(POISON)
        for zone in lent.zones:
            zone.fill()
        self._flush.zero_()  # what a worker does about the cache is its own claim
        self._synchronize()
        return tuple(tensors)

    def call(self, *, stage: Stage, probe: bool = False) -> CallResult:
        """One call on what was delivered; as a probe it does all but the model's part."""
        result = self._run(FrameKind.PROBE if probe else FrameKind.CALL, stage, self._call_patience())
        if not probe:
            self._compiles = False
            wall_s = result.wall_ns / 1e9
            self.fastest_s = wall_s if self.fastest_s is None else min(wall_s, self.fastest_s)
        return result

    def replay(self, count: int, stage: Stage) -> CallResult:
        """``count`` calls back to back on what was delivered; outputs are those of the last.

        The first replay on new buffers also captures a CUDA graph, outside of what the worker times but not of what
        the judge's clock sees. The claim says whether it could: where it could not, the calls were made one by one.
        """
        # Three calls come before a capture, which is one more.
        patience_s = self._call_patience() + (count + 4) * 2 * (self.fastest_s or 0.0)
        return self._run(FrameKind.REPLAY, stage, patience_s, pack_replay(count))

    def trace(self, stage: Stage) -> Tuple[CallResult, List[Tuple[str, int, int]]]:
        """One call with a tracer attached: (name, launches, device nanoseconds) of each kernel. A claim, like times."""
        result = self._run(FrameKind.TRACE, stage, self._call_patience() + TRACER_S)
        return result, self._understood(stage, unpack_traced, self._receive(FrameKind.TRACED, stage))

    def outputs(self) -> Tuple[torch.Tensor, ...]:
        """The output buffer's tensors, copied to where no worker reaches."""
        return tuple(output.clone() for output in self.outputs_now())

    def outputs_now(self) -> Tuple[torch.Tensor, ...]:
        """What the output buffer holds now: where the worker reaches, to be glanced at only."""
        lent = self._lent
        return () if lent is None else tuple(s.view(lent.outputs.tensor) for s in lent.output_specs)

    def inputs_now(self) -> Tuple[torch.Tensor, ...]:
        """What the input buffer holds now."""
        lent = self._lent
        return () if lent is None else tuple(s.view(lent.inputs.tensor) for s in lent.input_specs)

    def guards_intact(self) -> str:
        """Which memory around the lent tensors was written to since the delivery, in words; empty: none."""
        lent = self._lent
        found = () if lent is None else (zone.damage() for zone in lent.zones)
        return next((damage for damage in found if damage), "")

    def close(self) -> None:
        """Say goodbye; the memory lent goes back."""
        with suppress(PeerGoneError, OSError):  # it may have gone first; the host looks at how it ended
            self._channel.settimeout(_GOODBYE_S)
            self._channel.send(FrameKind.BYE)
        self._parameters.close()
        self._take_back()

    def gone(self, patience_s: float) -> bool:
        """Whether its process, once told goodbye, has ended within ``patience_s``, whatever it sends meanwhile."""
        deadline = time.monotonic() + patience_s
        try:
            while time.monotonic() < deadline:
                self._channel.settimeout(max(0.001, deadline - time.monotonic()))
                self._channel.receive()
        except PeerGoneError:
            return True
        except (OSError, WireError):
            pass
        return False

    def _run(self, kind: FrameKind, stage: Stage, patience_s: float, order: bytes = b"") -> CallResult:
        # Not a count: an answer that was written before the question was asked must not fit it.
        self._sequence = secrets.randbits(64)
        self._wait_at_most(patience_s)
        started = time.perf_counter_ns()
        with self._sending(stage):
            self._channel.send(kind, self._sequence, order)
        claimed = self._receive(FrameKind.DONE, stage)
        done = time.perf_counter_ns()
        outputs = self._receive(FrameKind.OUTPUTS, stage)
        self._touch_outputs()
        handed_over = time.perf_counter_ns()
        self._has_answered |= kind is not FrameKind.PROBE
        return CallResult(
            claim=self._understood(stage, unpack_outputs, outputs),
            device_ns=self._understood(stage, unpack_done, claimed),
            wall_ns=done - started,
            handover_ns=handed_over - done,
        )

    def _touch_outputs(self) -> None:
        """Read a number of the outputs: on a GPU that has to wait for whatever still runs there."""
        if self._device == "cuda" and self._lent is not None:
            self._lent.outputs.tensor[:1].clone()
            self._synchronize()

    def _call_patience(self) -> float:
        """How long a call may take, in seconds: one that compiles first has a limit of its own."""
        if self._compiles:
            return self._timeouts.first_call_s
        least_s = FIRST_CALL_S if self.fastest_s is None else 0.0
        return min(self._timeouts.call_s, max(self._call_limit_s, least_s))

    def _lend(self, arguments: List[Any], tensors: Sequence[torch.Tensor], like: Sequence[torch.Tensor]) -> LentBuffers:
        """The buffers for this layout; lends new ones when it is not the one already lent."""
        layout = (arguments, _forms(tensors), _forms(like))
        if self._lent is not None and self._lent.layout == layout and not self._moves:
            return self._lent
        if not self._moves:
            self._take_back()
        left, self._moves = self._lent, False
        input_specs, input_bytes = lay_out(tensors)
        output_specs, output_bytes = lay_out([_as_empty(tensor) for tensor in like])
        inputs, outputs = create_arena(self._device, input_bytes), create_arena(self._device, output_bytes)
        zones = RedZones(inputs.tensor, input_specs, "input"), RedZones(outputs.tensor, output_specs, "output")
        self._lent = LentBuffers(layout, inputs, outputs, input_specs, output_specs, zones)
        message = {
            "arguments": arguments,
            "inputs": [s.to_json() for s in input_specs],
            "outputs": [s.to_json() for s in output_specs],
            "input_bytes": input_bytes,
            "output_bytes": output_bytes,
        }
        try:
            self._order(FrameKind.BUFFERS, message, (inputs.descriptor, outputs.descriptor), Stage.LOAD)
            self._ready(Stage.LOAD)
        finally:
            if left is not None:
                left.take_back()  # not earlier: the same memory would be had again
        return self._lent

    def _take_back(self) -> None:
        if self._lent is not None:
            self._lent.take_back()
            self._lent = None

    # ---- frames

    def _order(self, kind: FrameKind, message: Any, descriptors: Sequence[int], stage: Stage) -> None:
        self._wait_at_most(self._ready_patience(stage))
        with self._sending(stage):
            self._channel.send_json(kind, message, descriptors)

    def _ready(self, stage: Stage) -> bytes:
        self._wait_at_most(self._ready_patience(stage))
        return self._receive(FrameKind.READY, stage)

    def _ready_patience(self, stage: Stage) -> float:
        """How long a step of getting ready may take, in seconds."""
        if stage is Stage.START:
            return self._timeouts.connect_s
        return min(self._timeouts.load_s, self._load_limit_s)

    def _wait_at_most(self, seconds: float) -> None:
        self._waits_s = seconds
        self._channel.settimeout(seconds)

    @contextmanager
    def _sending(self, stage: Stage) -> Iterator[None]:
        """A peer that has gone, or reads nothing any more, is a finding."""
        try:
            yield
        except PeerGoneError:
            raise self._gone(stage) from None
        except socket.timeout:
            raise self._blame(Status.TIMEOUT, stage, "takes no more orders: its side does not read them") from None

    def _receive(self, wanted: FrameKind, stage: Stage) -> bytes:
        """Payload of the next frame, which must be ``wanted``; everything else is a finding."""
        kind, sequence, payload = self._next(stage)
        if kind is FrameKind.FAILED:
            raise self._failed(stage, *self._understood(stage, unpack_failed, payload))
        if kind is not wanted:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, f"sent {kind.name} where {wanted.name} was due")
        if wanted in _TO_A_CALL and sequence != self._sequence:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, f"sent {kind.name} for a call that was not asked for")
        return payload

    def _failed(self, stage: Stage, failure: CallFailure, text: str) -> SessionEnded:
        """What a failure comes to that its worker tells of."""
        if failure is CallFailure.COMPILE:
            return self._blame(_STATUS[failure], stage, first_error(text), useful_part(text, MAX_LOG))
        # Once it has answered it has what it needs, and has seen what it is asked: it is not to get out of that.
        may_lack = failure in _OF_AN_IMPORT and not self._has_answered
        package = missing_kernel_package(text, self.contestant.imports) if may_lack else ""
        if package:
            message = f"the {self.name} needs the package {package!r}, which is not installed here"
            message += "; run it with a toolchain that has it"
            return self._blame(Status.UNSUPPORTED, stage, message, text)
        return self._blame(_STATUS[failure], stage, _last_line(text), text)

    def _next(self, stage: Stage) -> Tuple[FrameKind, int, bytes]:
        # Stays set where the wait is broken off from outside: whoever does that asks whom it was for.
        self.awaited = True
        try:
            frame = self._channel.receive()
        except PeerGoneError:
            raise self._gone(stage) from None
        except socket.timeout:
            raise self._blame(Status.TIMEOUT, stage, f"no answer within {self._waits_s:g} s") from None
        except WireError as error:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, str(error)) from None
        self.awaited = False
        return frame

    def _understood(self, stage: Stage, read: Callable[[bytes], T], payload: bytes) -> T:
        try:
            return read(payload)
        except WireError as error:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, str(error)) from None

    def _gone(self, stage: Stage) -> SessionEnded:
        return self._blame(Status.CRASHED, stage, "the process ended without answering")

    def _blame(self, status: Status, stage: Stage, message: str, log: str = "") -> SessionEnded:
        # Before a source is imported all of a process is ours, but for what a builder left for the candidate's: that
        # can break it, and do no more.
        if stage is Stage.START and (self.role, status) != (Role.CANDIDATE, Status.CRASHED):
            return finding(Status.INFRA_ERROR, stage, f"the worker of {self.name}: {status.value}: {message}", log)
        if self.role is Role.BASELINE:
            message = f"the reference as baseline: {status.value}: {message}"
            return finding(Status.PROBLEM_ERROR, stage, message, log)
        return finding(status, stage, message, log)

    def _synchronize(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


def _as_empty(like: torch.Tensor) -> torch.Tensor:
    """What ``torch.empty_like`` gives, without its memory."""
    # A meta tensor like another one takes torch two seconds, the first time: it imports its decompositions.
    return like if like.device.type == "meta" else torch.empty_like(like, device="meta")


def _forms(tensors: Sequence[torch.Tensor]) -> List[Any]:
    """What buffers depend on."""
    return [(t.dtype, tuple(t.shape), t.stride()) for t in tensors]


def _fill(arena: Arena, specs: Sequence[TensorSpec], tensors: Sequence[torch.Tensor]) -> None:
    for spec, tensor in zip(specs, tensors):
        spec.view(arena.tensor).copy_(tensor)


def _encoded(source: str, arguments: Sequence[Any], tensors: List[torch.Tensor]) -> List[Any]:
    """The arguments as JSON; one that cannot cross is the problem's fault."""
    try:
        return encode_arguments(arguments, tensors)
    except NotTransferableError as error:
        raise finding(Status.PROBLEM_ERROR, Stage.LOAD, f"{source}: {error}") from None


def _last_line(text: str) -> str:
    """The line that names the exception; some libraries add advice behind it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _EXCEPTION.match(line)]
    return (named or lines or ["failed without a word"])[-1][:500]
