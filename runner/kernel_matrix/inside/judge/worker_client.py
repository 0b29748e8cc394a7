"""The judge's client of one worker: buffers lent to it, calls, and the judge's own clock around them."""

from __future__ import annotations

import math
import re
import secrets
import socket
import time
from contextlib import ExitStack, closing, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from typing import (
    Any,
    Callable,
    ContextManager,
    Dict,
    Iterator,
    List,
    Mapping,
    NamedTuple,
    Optional,
    Sequence,
    Tuple,
    TypeVar,
)

import torch

from kernel_matrix.inside.arguments import NotTransferableError, encode_arguments
from kernel_matrix.inside.error_excerpt import first_error, useful_part
from kernel_matrix.inside.exception_kinds import missing_kernel_package
from kernel_matrix.inside.input_generation import tensors_in
from kernel_matrix.inside.judge.bits import Fingerprints, same_bits
from kernel_matrix.inside.judge.lent_buffers import CallArguments, LentBuffers
from kernel_matrix.inside.judge.reference import DrawnInputs, ReferenceModel
from kernel_matrix.inside.judge.session_ended import MAX_LOG, SessionEnded, finding
from kernel_matrix.inside.memory import lay_out
from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.rank_parts import parts_of_ranks
from kernel_matrix.inside.wire import (
    CallFailure,
    Channel,
    FrameKind,
    OutputsClaim,
    PeerGoneError,
    Places,
    WireError,
    pack_calls,
    pack_replay,
    unpack_begun,
    unpack_done,
    unpack_failed,
    unpack_lent,
    unpack_outputs,
    unpack_peak,
    unpack_traced,
)
from kernel_matrix.model.enums import Role, Stage, Status
from kernel_matrix.model.messages import ContestantSpec, JudgeTimeouts

T = TypeVar("T")

MOST_CLAIMED = 2  # no honest worker claims a device time of more than this multiple of the judge's wall time

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Iteration)\b")

_STATUS = {
    CallFailure.COMPILE: Status.COMPILE_ERROR,
    CallFailure.LOAD: Status.LOAD_ERROR,
    CallFailure.RUNTIME: Status.RUNTIME_ERROR,
    CallFailure.MEMORY: Status.OUT_OF_MEMORY,
}

_IMPORT_FAILURES = frozenset({CallFailure.LOAD, CallFailure.RUNTIME})  # a failed import, while loading or in a call

FIRST_CALL_S = 4.0  # a first call loads libraries, so it gets at least this long
TRACER_S = 10.0  # more time for a traced call: starting a tracer from a cold disk takes half of it

_GOODBYE_S = 0.1  # wait to send the goodbye; a worker that no longer reads may block it

# Answers that carry a call's number.
_CALL_ANSWERS = frozenset({FrameKind.BEGUN, FrameKind.DONE, FrameKind.OUTPUTS, FrameKind.PLACES, FrameKind.TRACED})


@dataclass(frozen=True)
class CallTimes:
    """Times of one call, or of several replayed in a row, in nanoseconds."""

    device_ns: int
    """Claimed device time of all calls together; 0 for a batch."""
    wall_ns: int
    """Time by the judge's clock from the request, or a batch's ``BEGUN``, to ``DONE``."""
    handover_ns: int
    """Time by the judge's clock from ``DONE`` until it has taken the outputs: copying, and late work."""
    delivered_ns: int = 0
    """Time by the judge's clock from the first byte of the inputs until they are there, in a batch to ``BEGUN``."""
    least_ns: int = 0
    """The part of it in which no call can run: the judge writes inputs, and the device switches to the worker (which
    says how long that took)."""


@dataclass(frozen=True)
class CallResult:
    """Result of one call, or of several replayed in a row.

    All tensors are in memory that the worker never had, so that nothing changes while they are checked.
    """

    claim: OutputsClaim
    times: CallTimes
    outputs: Tuple[torch.Tensor, ...]
    """Contents of the output buffer."""
    sent: Tuple[torch.Tensor, ...]
    """The inputs as they were delivered."""
    inputs: Tuple[torch.Tensor, ...]
    """The inputs after the call: each is the tensor in :attr:`sent` if its bits are the same, else a copy, or, where
    memory is short, an empty tensor.

    After timed calls of the baseline nothing is compared, and these are the tensors that were sent.
    """
    damage: str
    """Description of memory around the lent tensors that the call changed; empty if none was."""


class FrugalCall(NamedTuple):
    """A delivered call for which memory is short."""

    inputs: DrawnInputs
    like: Sequence[torch.Tensor]
    """As in :meth:`WorkerClient.deliver`."""
    fingerprints: Fingerprints
    """Of the inputs, as delivered."""


class EndedCall(NamedTuple):
    """A call that has ended, or several replayed in a row, before its outputs are taken. Times are the judge's."""

    device_ns: int
    """Claimed device time."""
    started_ns: int
    done_ns: int
    outputs: bytes
    """Claims about outputs; empty if they are handed over later."""
    traced: bytes
    """Claims about kernels that ran; empty unless the call was traced."""


class WorkerClient:
    """One contestant's worker and the memory lent to it.

    Faults are raised as :class:`~kernel_matrix.inside.judge.session_ended.SessionEnded`: as the candidate's own, or as
    the problem's for the baseline. The caller turns those of a rival into a label. Faults before the source is imported
    are this machine's. A failed import of a package that is not installed here is ``unsupported`` if the contestant's
    source imports that package, according to the host.
    """

    def __init__(
        self,
        contestant: ContestantSpec,
        channel: Channel,
        device: str,
        timeouts: JudgeTimeouts,
        device_memory_bytes: Optional[int] = None,
        *,
        ranks: int = 1,
    ) -> None:
        """Create the client.

        Args:
            contestant: The contestant.
            channel: Connection to its worker, or to the process that leads the workers of all ranks.
            device: Name of the platform.
            timeouts: Limits of waiting.
            device_memory_bytes: Limit of the worker's own allocator, as a convenience.
            ranks: Number of processes that make a call together; arguments and outputs are those of all.
        """
        self.contestant = contestant
        self.awaited = False
        """True while the judge waits for an answer."""
        self.fastest_s: Optional[float] = None
        """Shortest call since the model was constructed, by the judge's clock."""
        self._channel = channel
        self._ranks = ranks
        self._platform = load_platform(device)
        self._timeouts = timeouts
        self._device_memory_bytes = device_memory_bytes
        self._has_answered = False  # True once a call of any model has ended
        self._load_limit_s = math.inf
        self._call_limit_s = timeouts.call_s
        self._sequence = 0
        self._flush = torch.empty(0)
        self._compiles = contestant.may_compile
        self._waits_s = 0.0
        self._orders_open = 0
        self._lent: Optional[LentBuffers] = None
        self._sent: Tuple[torch.Tensor, ...] = ()
        self._frugal: Optional[FrugalCall] = None
        self._delivered_ns = 0
        self._moves = False
        self._parameters = ExitStack()
        self.given_bytes = 0
        """Memory that the present model's parameters and the buffer that flushes the cache take."""
        self.lent_bytes = (0, 0)
        """Sizes of the buffers for inputs and outputs that were lent last."""
        self.claimed_peak: Optional[int] = None
        """Peak of the worker's allocator with the present model: a claim. None if it has said nothing yet."""
        self.watching: Callable[[], ContextManager[None]] = nullcontext
        """Makes a context for each call, in which memory is watched."""

    @property
    def name(self) -> str:
        """Name of the contestant, as in blocks and labels."""
        return self.contestant.name

    @property
    def role(self) -> Role:
        """Role of the contestant: candidate, baseline or rival."""
        return self.contestant.role

    # ---- getting ready; methods named ``start_`` return at once, so that all contestants work at the same time

    def open(self) -> None:
        """Let the worker open the device."""
        self.start_open()
        self.finish_open()

    def start_open(self) -> None:
        """Tell the worker to open the device."""
        self._order(FrameKind.OPEN, {"device_memory_bytes": self._device_memory_bytes}, (), Stage.START)

    def finish_open(self) -> None:
        """Wait until the device is open."""
        self._ready(Stage.START)

    def load(self, values: Dict[str, Any]) -> None:
        """Let the worker import its source, with these values for a reference's constants."""
        self.start_load(values)
        self.finish_load()

    def start_load(self, values: Dict[str, Any]) -> None:
        """Tell the worker to import its source."""
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
        """Let the worker construct its model, with the reference's parameters where names and shapes match."""
        self.start_construct(reference, flush_bytes)
        self.finish_construct()

    def start_construct(self, reference: ReferenceModel, flush_bytes: int) -> None:
        """Lend the parameters and tell the worker to construct its model."""
        self.take_back()
        self._flush = torch.empty(flush_bytes, dtype=torch.uint8, device=self._platform.TORCH_DEVICE)
        tensors: List[torch.Tensor] = []
        init = encoded("get_init_inputs()", reference.init_arguments, tensors)
        state = {}
        for name, value in reference.state.items():
            state[name] = len(tensors)
            tensors.append(value)
        specs, nbytes = lay_out(tensors)
        self.given_bytes = nbytes + flush_bytes
        self.claimed_peak = None
        message = {
            "init": init,
            "state": state,
            "tensors": [s.to_json() for s in specs],
            "nbytes": nbytes,
            "dtype": reference.dtype.value,
            "flush_bytes": flush_bytes,
        }
        with ExitStack() as undo:
            arena = undo.enter_context(closing(self._platform.create_arena(nbytes)))
            for spec, tensor in zip(specs, tensors):
                spec.view(arena.tensor).copy_(tensor)
            self._platform.synchronize()
            arena.publish()
            self._order(FrameKind.MODEL, message, (arena.descriptor,), Stage.LOAD)
            self._parameters = undo.pop_all()

    def finish_construct(self) -> None:
        """Wait until the model is constructed, and release the parameters' memory."""
        with self._parameters:
            self._ready(Stage.LOAD)
        self._compiles = self.contestant.may_compile
        self.fastest_s = None
        self._call_limit_s = self._timeouts.call_s

    def give_back_memory(self) -> None:
        """Let the worker give back memory that it keeps without use."""
        self._release(buffers=False)

    def park(self) -> None:
        """Let the worker give back all but the model, and take back the buffers; the next delivery lends new ones."""
        self._release(buffers=True)
        self.take_back()

    def rest(self) -> None:
        """Let the worker give back the model too, until it constructs one for another cell."""
        self._release(buffers=True, model=True)
        self.take_back()
        self._flush, self._sent = torch.empty(0), ()

    def _release(self, *, buffers: bool, model: bool = False, remember: bool = False) -> None:
        with self.watching():
            what = {"buffers": buffers, "model": model, "remember": remember}
            self._order(FrameKind.RELEASE, what, (), Stage.VERIFY)
            claimed = self._parsed(Stage.VERIFY, unpack_peak, self._ready(Stage.VERIFY))
        if claimed is not None:
            self.claimed_peak = max(claimed, self.claimed_peak or 0)

    @property
    def is_idle(self) -> bool:
        """True if the worker owes no answer to an order."""
        return self._orders_open == 0

    @property
    def is_lent(self) -> bool:
        """True if the worker has buffers."""
        return self._lent is not None

    def limit_loading(self, seconds: float) -> None:
        """Limit each step of getting ready to ``seconds``, in addition to the job's limit, unless it may compile."""
        if not self.contestant.may_compile:
            self._load_limit_s = seconds

    def limit_calls(self, seconds: float) -> None:
        """Limit calls of the present model to ``seconds``, in addition to the job's limit."""
        self._call_limit_s = min(self._timeouts.call_s, seconds)

    # ---- calls

    def lend_elsewhere(self) -> None:
        """Lend other memory from the next delivery on."""
        self._moves = True

    def deliver(self, inputs: List[Any], like: Sequence[torch.Tensor]) -> None:
        """Put ``inputs`` into the lent buffer, poison the outputs, and write new red zones around both.

        Args:
            inputs: The arguments of the call.
            like: Tensors with the shape, dtype and strides of the expected outputs; ``meta`` tensors suffice. If there
                are none, the worker keeps the outputs of a call until it gets a buffer for them.
        """
        calls = calls_of_ranks(inputs, self._ranks)
        tensors = tuple(tensor for call in calls for tensor in call.tensors)
        lent = self._lend(calls, like)
        began = time.perf_counter_ns()
        lent.fill(tensors)
        lent.arenas.poison()
        lent.mark()
        self._flush.zero_()  # flushes the cache here too, since a worker's flush is only a claim
        self._platform.synchronize()
        lent.arenas.publish_inputs()
        lent.arenas.publish_outputs()
        self._delivered_ns = time.perf_counter_ns() - began
        self._sent, self._frugal = tensors, None

    def deliver_drawn(self, inputs: DrawnInputs, like: Sequence[torch.Tensor], *, frugal: bool) -> None:
        """Deliver ``inputs``; where memory is short, use as little of it as possible in the next call.

        If ``frugal``, the judge has only fingerprints of the inputs during the call, and there is no buffer for the
        outputs (:meth:`_taken_frugally`).
        """
        if not frugal:
            self.deliver(inputs.values, like)
            return
        fingerprints = Fingerprints(tensors_in(inputs.values))  # before the worker could begin with these inputs
        self.deliver(inputs.values, ())
        self._sent, self._frugal = (), FrugalCall(inputs, like, fingerprints)
        inputs.forget()

    def call(self, *, stage: Stage) -> CallResult:
        """Make one call on the delivered inputs."""
        result = self._run(FrameKind.CALL, stage, self._call_patience())
        self._compiles = False
        wall_s = result.times.wall_ns / 1e9
        self.fastest_s = wall_s if self.fastest_s is None else min(wall_s, self.fastest_s)
        return result

    def repeat(self, patience_s: float) -> None:
        """Make one more call on the buffers as they are, within ``patience_s`` seconds, and take nothing of it."""
        self._asked(FrameKind.CALL, Stage.VERIFY, patience_s)

    def replay(self, count: int, stage: Stage) -> CallResult:
        """Make ``count`` calls back to back on the delivered inputs; the outputs are those of the last one.

        The first replay on new buffers also captures the call, outside of the worker's time but within the judge's
        clock. The claim says whether that succeeded; if not, the calls were made one by one.
        """
        # Three calls precede a capture, which is one more call.
        patience_s = self._call_patience() + (count + 4) * 2 * (self.fastest_s or 0.0)
        return self._run(FrameKind.REPLAY, stage, patience_s, pack_replay(count))

    def lend_batches(self, message: Mapping[str, Any], descriptors: Sequence[int], most_bytes: int) -> Tuple[bool, int]:
        """Lend memory for batches, with the layout of their sets; outputs in place take ``most_bytes`` at most.

        Returns:
            Whether the worker has captured its calls; and how many bytes of the memory for outputs it uses if it
            computes them in place, else 0.
        """
        self.take_back()
        self._order(FrameKind.BATCH_BUFFERS, message, descriptors, Stage.TIME)
        return self._parsed(Stage.TIME, lambda payload: unpack_lent(payload, most_bytes), self._ready(Stage.TIME))

    def call_batch(
        self,
        deliver: Callable[[], None],
        chunks: Sequence[int],
        calls: int,
        take: Callable[[], None],
        read_places: Optional[Callable[[bytes], Places]] = None,
    ) -> Tuple[OutputsClaim, Places, CallTimes]:
        """Deliver a batch's inputs, and make ``calls`` calls on the sets of ``chunks``.

        Args:
            deliver: Function that writes the inputs into the worker's memory.
            chunks: Numbers of chunks of sets.
            calls: Number of sets in them.
            take: Function that takes the outputs, before the clock of the hand-over stops.
            read_places: Function that reads where outputs lie, of a worker that computes them in place. They are then
                in the judge's memory when the calls end, and are taken at once.
        """
        stage = Stage.TIME
        places: Places = ()

        def take_until() -> int:
            take()
            return time.perf_counter_ns()

        with self.watching():
            patience_s = self._call_patience() + 2 * calls * (self.fastest_s or 0.0)
            self._prepare_request(patience_s)
            began = time.perf_counter_ns()
            deliver()
            copied = time.perf_counter_ns()
            self._request(FrameKind.CALLS, stage, pack_calls(chunks))
            begun = self._receive(FrameKind.BEGUN, stage)
            started = time.perf_counter_ns()
            self._receive(FrameKind.DONE, stage)
            done = time.perf_counter_ns()
            if read_places is None:
                outputs = self._receive(FrameKind.OUTPUTS, stage)
                taken = take_until()
            else:
                taken = take_until()
                outputs = self._receive(FrameKind.OUTPUTS, stage)
                places = self._parsed(stage, read_places, self._receive(FrameKind.PLACES, stage))
        least_ns = copied - began + self._parsed(stage, unpack_begun, begun)
        times = CallTimes(0, done - started, taken - done, started - began, least_ns)
        return self._parsed(stage, unpack_outputs, outputs), places, times

    def trace(self, stage: Stage) -> Tuple[CallResult, List[Tuple[str, int, int]]]:
        """Make one call with a tracer; also return (name, launches, device ns) of each kernel, which are claims."""
        memory = self._room_for_outputs()
        call = self._asked(FrameKind.TRACE, stage, self._call_patience() + TRACER_S)
        kernels = self._parsed(stage, unpack_traced, call.traced)
        result = self._finished(stage, call, memory)
        most_ns = MOST_CLAIMED * result.times.wall_ns
        return result, [(name, launches, min(device_ns, most_ns)) for name, launches, device_ns in kernels]

    def close(self) -> None:
        """Send the goodbye and take back the lent memory."""
        with suppress(PeerGoneError, OSError):  # the worker may have ended first; the host examines its exit
            self._channel.settimeout(_GOODBYE_S)
            self._channel.send(FrameKind.BYE)
        self._parameters.close()
        self.take_back()

    def gone(self, patience_s: float) -> bool:
        """Return True if the process, after the goodbye, ends within ``patience_s``; its frames are ignored."""
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
        """Request calls, and take outputs and inputs."""
        memory = self._room_for_outputs()
        return self._finished(stage, self._asked(kind, stage, patience_s, order), memory)

    def _room_for_outputs(self) -> List[torch.Tensor]:
        """Allocate memory for the outputs before a call, so that taking them takes no longer; none if it is short."""
        return [] if self._lent is None or self._frugal else self._lent.room_for_outputs()

    def _finished(self, stage: Stage, call: EndedCall, memory: Sequence[torch.Tensor]) -> CallResult:
        """Take what a call that has ended has left."""
        if self._frugal is not None and self._lent is not None:
            result = self._taken_frugally(stage, call, self._frugal, self._lent)
        else:
            result = self._taken(stage, call, memory)
        self._has_answered = True
        return result

    def _asked(self, kind: FrameKind, stage: Stage, patience_s: float, order: bytes = b"") -> EndedCall:
        """Request calls, and wait until they have ended and, if there is a buffer, outputs are handed over."""
        with self.watching():
            self._prepare_request(patience_s)
            started = time.perf_counter_ns()
            self._request(kind, stage, order)
            claimed = self._receive(FrameKind.DONE, stage)
            done = time.perf_counter_ns()
            traced = self._receive(FrameKind.TRACED, stage) if kind is FrameKind.TRACE else b""
            outputs = b"" if self._frugal else self._receive(FrameKind.OUTPUTS, stage)
        device_ns = self._parsed(stage, unpack_done, claimed)
        if device_ns > MOST_CLAIMED * (done - started):
            message = f"claims {device_ns} ns for a call that took {done - started} ns"
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, message)
        return EndedCall(device_ns, started, done, outputs, traced)

    def _prepare_request(self, patience_s: float) -> None:
        """Draw the number of the next calls, whose answers may take ``patience_s`` seconds."""
        # Random, not a count: an answer written before the question must not match it.
        self._sequence = secrets.randbits(64)
        self._wait_at_most(patience_s)

    def _request(self, kind: FrameKind, stage: Stage, order: bytes) -> None:
        """Request calls."""
        with self._sending(stage):
            self._channel.send(kind, self._sequence, order)

    def _compares_inputs(self, stage: Stage) -> bool:
        """Return False for timed calls of the baseline, which is not hostile.

        Comparing large inputs takes longer than most calls on them.
        """
        return not (self.role is Role.BASELINE and stage is Stage.TIME)

    def _taken(self, stage: Stage, call: EndedCall, memory: Sequence[torch.Tensor]) -> CallResult:
        """Take outputs, into ``memory``, and inputs, if they are compared, out of the worker's reach."""
        claim = self._parsed(stage, unpack_outputs, call.outputs)
        lent, sent = self._lent, self._sent
        self._sent = ()
        if lent is None or not memory:
            return CallResult(claim, self._times(call), outputs=(), sent=(), inputs=(), damage="")
        outputs = self._copied(lent, memory)
        times = self._times(call)
        now, damage = sent, ""
        if self._compares_inputs(stage):
            lent.arenas.fetch_inputs()
            damage = lent.damage()
            now = tuple(map(_unchanged_or_copy, sent, lent.inputs_now))
        return CallResult(claim, times, outputs, sent, now, damage)

    def _taken_frugally(self, stage: Stage, call: EndedCall, frugal: FrugalCall, lent: LentBuffers) -> CallResult:
        """Take outputs, for which a buffer is lent now, so that it need not fit into memory beside the call's.

        Before that the worker gives back the inputs and all memory of its own but the model and the outputs. It
        remembers how much that was, to take it again before the next call's time begins. Inputs are drawn again.
        """
        self._frugal = None
        lent.arenas.fetch_inputs()
        damage, unchanged = lent.damage(), frugal.fingerprints.unchanged(lent.inputs_now)
        lent_bytes = self.lent_bytes
        self._release(buffers=True, remember=True)
        lent = self._lend([CallArguments([], []) for _ in range(self._ranks)], frugal.like)
        self.lent_bytes = lent_bytes  # those of the call
        lent.arenas.poison()
        self._platform.synchronize()
        lent.arenas.publish_outputs()
        with self.watching():
            self._request(FrameKind.HAND_OVER, stage, b"")
            claim = self._parsed(stage, unpack_outputs, self._receive(FrameKind.OUTPUTS, stage))
        self._release(buffers=True)
        outputs = self._copied(lent, lent.room_for_outputs())
        times = self._times(call)
        self.take_back()
        sent = tuple(tensors_in(frugal.inputs.values))
        now = tuple(tensor if same else torch.empty(0) for tensor, same in zip(sent, unchanged))
        return CallResult(claim, times, outputs, sent, now, damage)

    def _copied(self, lent: LentBuffers, memory: Sequence[torch.Tensor]) -> Tuple[torch.Tensor, ...]:
        """Copy the outputs into ``memory``, and wait for all work on the device."""
        outputs = lent.take_outputs(memory)
        self._platform.synchronize()
        return outputs

    def _times(self, call: EndedCall) -> CallTimes:
        """Return the times of a call whose outputs are taken now."""
        handover_ns = time.perf_counter_ns() - call.done_ns
        return CallTimes(call.device_ns, call.done_ns - call.started_ns, handover_ns, self._delivered_ns)

    def _call_patience(self) -> float:
        """Return the limit of a call in seconds; a call that compiles first has its own."""
        if self._compiles:
            return self._timeouts.first_call_s
        least_s = FIRST_CALL_S if self.fastest_s is None else 0.0
        return min(self._timeouts.call_s, max(self._call_limit_s, least_s))

    def _lend(self, calls: Sequence[CallArguments], like: Sequence[torch.Tensor]) -> LentBuffers:
        """Return buffers for this layout; lend new ones if it differs from the one already lent."""
        layout = ([call.document for call in calls], [_forms(call.tensors) for call in calls], _forms(like))
        if self._lent is not None and self._lent.layout == layout and not self._moves:
            return self._lent
        if not self._moves:
            self.take_back()
        left, self._moves = self._lent, False
        lent = self._lent = LentBuffers(self._platform, layout, calls, like)
        self.lent_bytes = lent.sizes
        try:
            self._order(FrameKind.BUFFERS, lent.message, lent.arenas.descriptors, Stage.LOAD)
            self._ready(Stage.LOAD)
        finally:
            if left is not None:
                left.take_back()  # not earlier, or the new buffers would get the same memory
        return self._lent

    def take_back(self) -> None:
        """Take back the lent buffers; the worker releases them at its next order for buffers."""
        if self._lent is not None:
            self._lent.take_back()
            self._lent = None

    # ---- frames

    def _order(self, kind: FrameKind, message: Any, descriptors: Sequence[int], stage: Stage) -> None:
        self._wait_at_most(self._ready_patience(stage))
        self._orders_open += 1
        with self._sending(stage):
            self._channel.send_json(kind, message, descriptors)

    def _ready(self, stage: Stage) -> bytes:
        self._wait_at_most(self._ready_patience(stage))
        answer = self._receive(FrameKind.READY, stage)
        self._orders_open -= 1
        return answer

    def _ready_patience(self, stage: Stage) -> float:
        """Return the limit of a step of getting ready, in seconds."""
        if stage is Stage.START:
            return self._timeouts.connect_s
        return min(self._timeouts.load_s, self._load_limit_s)

    def _wait_at_most(self, seconds: float) -> None:
        self._waits_s = seconds
        self._channel.settimeout(seconds)

    @contextmanager
    def _sending(self, stage: Stage) -> Iterator[None]:
        """Turn a peer that is gone, or no longer reads, into a SessionEnded."""
        try:
            yield
        except PeerGoneError:
            raise self._gone(stage) from None
        except socket.timeout:
            raise self._blame(Status.TIMEOUT, stage, "takes no more orders: its side does not read them") from None

    def _receive(self, wanted: FrameKind, stage: Stage) -> bytes:
        """Return the payload of the next frame, which must be ``wanted``; raise a SessionEnded for any other."""
        kind, sequence, payload = self._next(stage)
        if kind is FrameKind.FAILED:
            raise self._failed(stage, *self._parsed(stage, unpack_failed, payload))
        if kind is not wanted:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, f"sent {kind.name} where {wanted.name} was due")
        if wanted in _CALL_ANSWERS and sequence != self._sequence:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, f"sent {kind.name} for a call that was not asked for")
        return payload

    def _failed(self, stage: Stage, failure: CallFailure, text: str) -> SessionEnded:
        """Decide the status of a failure that the worker reported."""
        if failure is CallFailure.COMPILE:
            return self._blame(_STATUS[failure], stage, first_error(text), useful_part(text, MAX_LOG))
        # After its first answer it has all packages, and it knows the work; it must not escape as ``unsupported``.
        may_lack = failure in _IMPORT_FAILURES and not self._has_answered
        package = missing_kernel_package(text, self.contestant.imports) if may_lack else ""
        if package:
            message = f"the {self.name} needs the package {package!r}, which is not installed here"
            message += "; run it with a toolchain that has it"
            return self._blame(Status.UNSUPPORTED, stage, message, text)
        return self._blame(_STATUS[failure], stage, _last_line(text), text)

    def _next(self, stage: Stage) -> Tuple[FrameKind, int, bytes]:
        # Stays set if the wait is interrupted from outside, where the handler asks who was awaited.
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

    def _parsed(self, stage: Stage, read: Callable[[bytes], T], payload: bytes) -> T:
        try:
            return read(payload)
        except WireError as error:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, str(error)) from None

    def _gone(self, stage: Stage) -> SessionEnded:
        return self._blame(Status.CRASHED, stage, "the process ended without answering")

    def _blame(self, status: Status, stage: Stage, message: str, log: str = "") -> SessionEnded:
        # Until it is told to load, the process runs only trusted code, on data that is not the contestant's.
        if stage is Stage.START:
            return finding(Status.INFRA_ERROR, stage, f"the worker of {self.name}: {status.value}: {message}", log)
        if self.role is Role.BASELINE:
            message = f"the reference as baseline: {status.value}: {message}"
            lacks_memory = status is Status.OUT_OF_MEMORY
            return finding(Status.DOES_NOT_FIT if lacks_memory else Status.PROBLEM_ERROR, stage, message, log)
        return finding(status, stage, message, log)


def _forms(tensors: Sequence[torch.Tensor]) -> List[Any]:
    """Return the properties of tensors that a buffer's layout depends on."""
    return [(t.dtype, tuple(t.shape), t.stride()) for t in tensors]


def _unchanged_or_copy(sent: torch.Tensor, now: torch.Tensor) -> torch.Tensor:
    return sent if same_bits(sent, now) else now.clone()


def calls_of_ranks(inputs: List[Any], ranks: int) -> List[CallArguments]:
    """Encode the arguments of each rank, which follow one another in ``inputs``."""
    calls = []
    for arguments in parts_of_ranks(inputs, ranks):
        tensors: List[torch.Tensor] = []
        calls.append(CallArguments(encoded("get_inputs()", arguments, tensors), tensors))
    return calls


def encoded(source: str, arguments: Sequence[Any], tensors: List[torch.Tensor]) -> List[Any]:
    """Encode arguments as JSON; an argument that cannot be sent is the problem's fault."""
    try:
        return encode_arguments(arguments, tensors)
    except NotTransferableError as error:
        raise finding(Status.PROBLEM_ERROR, Stage.LOAD, f"{source}: {error}") from None


def _last_line(text: str) -> str:
    """Return the line that names the exception; some libraries print advice after it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _EXCEPTION.match(line)]
    return (named or lines or ["failed without a message"])[-1][:500]
