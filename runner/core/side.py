"""The judge's view of one worker: buffers it lent, calls it asked for, and its own clock around them."""

from __future__ import annotations

import re
import secrets
import socket
import time
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Optional, Sequence, Tuple

import torch

from runner.core.arguments import NotTransferable, encode_arguments
from runner.core.finding import finding
from runner.core.inputs import TORCH_DTYPES
from runner.core.memory import Arena, TensorSpec, create_arena, dtype_name, lay_out
from runner.core.messages import JudgeTimeouts
from runner.core.reference import Expected, Reference
from runner.core.vocab import Role, Stage, Status
from runner.core.wire import (
    Channel,
    Failure,
    Gone,
    Kind,
    OutputsClaim,
    WireError,
    unpack_done,
    unpack_failed,
    unpack_outputs,
)

POISON = 0xFF
"""Every byte of an output buffer before a call: NaN in every floating dtype."""

_EXCEPTION = re.compile(r"[A-Za-z_][\w.]*(Error|Exception|Interrupt|Exit|Iteration)\b")

_CANDIDATE_STATUS = {
    Failure.COMPILE: Status.COMPILE_ERROR,
    Failure.LOAD: Status.LOAD_ERROR,
    Failure.RUNTIME: Status.RUNTIME_ERROR,
    Failure.MEMORY: Status.OUT_OF_MEMORY,
}


@dataclass(frozen=True)
class Result:
    """One call's result. Times in nanoseconds."""

    claim: OutputsClaim
    device_ns: int
    wall_ns: int


@dataclass
class Lent:
    """Buffers lent to a worker, and the layout they were lent for."""

    layout: Any
    inputs: Arena
    outputs: Arena
    input_specs: List[TensorSpec]
    output_specs: List[TensorSpec]

    def take_back(self) -> None:
        """Close both arenas."""
        self.inputs.close()
        self.outputs.close()


class Side:
    """One worker, candidate or baseline, and the memory lent to it."""

    def __init__(self, role: Role, channel: Channel, device: str, timeouts: JudgeTimeouts) -> None:
        self.role = role
        self._channel = channel
        self._device = device
        self._timeouts = timeouts
        self._sequence = 0
        self._called = False
        self._lent: Optional[Lent] = None

    def load(self, *, file: str, entry: str, values: Dict[str, Any]) -> None:
        """Have the worker import its source."""
        settings = {"file": file, "entry": entry, "values": values, "module": self.role.value, "device": self._device}
        self._command(Kind.LOAD, settings, (), Stage.LOAD)

    def construct(self, reference: Reference, flush_bytes: int) -> None:
        """Have the worker construct its model, with the reference's parameters where names and shapes match."""
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
            "dtype": dtype_name(TORCH_DTYPES[reference.dtype]),
            "flush_bytes": flush_bytes,
        }
        with closing(create_arena(self._device, nbytes)) as arena:
            _fill(arena, specs, tensors)
            self._synchronize()
            self._command(Kind.MODEL, message, (arena.descriptor,), Stage.LOAD)
        self._take_back()

    def deliver(self, inputs: List[Any], expected: Expected) -> Tuple[torch.Tensor, ...]:
        """Put ``inputs`` into the lent buffer and poison the outputs; returns the tensors as sent (the judge's own)."""
        tensors: List[torch.Tensor] = []
        arguments = _encoded("get_inputs()", inputs, tensors)
        lent = self._lend(arguments, tensors, expected)
        _fill(lent.inputs, lent.input_specs, tensors)
        lent.outputs.tensor.fill_(POISON)
        self._synchronize()
        return tuple(tensors)

    def call(self, *, probe: bool = False, stage: Stage) -> Result:
        """One call on what was delivered; the judge's clock runs from the request to the answer."""
        # Not a count: an answer that was written before the question was asked must not fit it.
        self._sequence = secrets.randbits(64)
        kind = Kind.PROBE if probe else Kind.CALL
        self._channel.settimeout(self._timeouts.call_s if self._called else self._timeouts.first_call_s)
        started = time.perf_counter_ns()
        self._send(kind, stage)
        payload = self._receive(Kind.DONE, stage)
        wall_ns = time.perf_counter_ns() - started
        claim = _trusting_nothing(self.role, stage, lambda: unpack_outputs(self._receive(Kind.OUTPUTS, stage)))
        self._called = True
        device_ns = _trusting_nothing(self.role, stage, lambda: unpack_done(payload))
        return Result(claim, device_ns, wall_ns)

    def outputs(self) -> Tuple[torch.Tensor, ...]:
        """The output buffer's tensors, copied to where no worker reaches."""
        lent = self._lent
        return () if lent is None else tuple(s.view(lent.outputs.tensor).clone() for s in lent.output_specs)

    def inputs_now(self) -> Tuple[torch.Tensor, ...]:
        """What the input buffer holds now."""
        lent = self._lent
        return () if lent is None else tuple(s.view(lent.inputs.tensor) for s in lent.input_specs)

    def close(self) -> None:
        """Say goodbye; the memory lent goes back."""
        with suppress(Gone, OSError):  # it may have gone first; the host looks at how it ended
            self._channel.send(Kind.BYE)
        self._channel.close()
        self._take_back()

    def _lend(self, arguments: List[Any], tensors: Sequence[torch.Tensor], expected: Expected) -> Lent:
        """The buffers for this layout; lends new ones when it is not the one already lent."""
        input_specs, input_bytes = lay_out(tensors)
        output_specs, output_bytes = lay_out([torch.empty_like(t, device="meta") for t in expected.trusted])
        layout = (arguments, input_specs, output_specs)
        if self._lent is not None and self._lent.layout == layout:
            return self._lent
        self._take_back()
        inputs, outputs = create_arena(self._device, input_bytes), create_arena(self._device, output_bytes)
        self._lent = Lent(layout, inputs, outputs, input_specs, output_specs)
        message = {
            "arguments": arguments,
            "inputs": [s.to_json() for s in input_specs],
            "outputs": [s.to_json() for s in output_specs],
            "input_bytes": input_bytes,
            "output_bytes": output_bytes,
        }
        self._command(Kind.BUFFERS, message, (inputs.descriptor, outputs.descriptor), Stage.LOAD)
        return self._lent

    def _take_back(self) -> None:
        if self._lent is not None:
            self._lent.take_back()
            self._lent = None

    def _command(self, kind: Kind, message: Any, descriptors: Sequence[int], stage: Stage) -> None:
        self._channel.settimeout(self._timeouts.load_s)
        with self._sending(stage):
            self._channel.send_json(kind, message, descriptors)
        self._receive(Kind.READY, stage)

    def _send(self, kind: Kind, stage: Stage) -> None:
        with self._sending(stage):
            self._channel.send(kind, self._sequence)

    @contextmanager
    def _sending(self, stage: Stage) -> Iterator[None]:
        """A peer that has gone, or reads nothing any more, is a finding."""
        try:
            yield
        except Gone:
            raise self._gone(stage) from None
        except socket.timeout:
            raise self._blame(Status.TIMEOUT, stage, "takes no more orders: its side does not read them") from None

    def _receive(self, wanted: Kind, stage: Stage) -> bytes:
        """Payload of the next frame, which must be ``wanted``; everything else is a finding."""
        try:
            kind, sequence, payload = self._channel.receive()
        except Gone:
            raise self._gone(stage) from None
        except socket.timeout:
            seconds = self._channel_timeout(stage)
            raise self._blame(Status.TIMEOUT, stage, f"no answer within {seconds:g} s") from None
        except WireError as error:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, str(error)) from None
        if kind is Kind.FAILED:
            failure, text = _trusting_nothing(self.role, stage, lambda: unpack_failed(payload))
            raise self._blame(_CANDIDATE_STATUS[failure], stage, _last_line(text), text)
        if kind is not wanted:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, f"sent {kind.name} where {wanted.name} was due")
        if wanted in (Kind.DONE, Kind.OUTPUTS) and sequence != self._sequence:
            raise self._blame(Status.PROTOCOL_VIOLATION, stage, f"sent {kind.name} for a call that was not asked for")
        return payload

    def _channel_timeout(self, stage: Stage) -> float:
        if stage is Stage.LOAD:
            return self._timeouts.load_s
        return self._timeouts.call_s if self._called else self._timeouts.first_call_s

    def _gone(self, stage: Stage) -> Exception:
        return self._blame(Status.CRASHED, stage, "the process ended without answering")

    def _blame(self, status: Status, stage: Stage, message: str, log: str = "") -> Exception:
        if self.role is Role.BASELINE:
            message = f"the reference as baseline: {status.value}: {message}"
            return finding(Status.PROBLEM_ERROR, stage, message, log)
        return finding(status, stage, message, log)

    def _synchronize(self) -> None:
        if self._device == "cuda":
            torch.cuda.synchronize()


def _fill(arena: Arena, specs: Sequence[TensorSpec], tensors: Sequence[torch.Tensor]) -> None:
    for spec, tensor in zip(specs, tensors):
        spec.view(arena.tensor).copy_(tensor)


def _encoded(source: str, arguments: Sequence[Any], tensors: List[torch.Tensor]) -> List[Any]:
    """The arguments as JSON; one that cannot cross is the problem's fault."""
    try:
        return encode_arguments(arguments, tensors)
    except NotTransferable as error:
        raise finding(Status.PROBLEM_ERROR, Stage.LOAD, f"{source}: {error}") from None


def _trusting_nothing(role: Role, stage: Stage, read: Any) -> Any:
    try:
        return read()
    except WireError as error:
        status = Status.PROBLEM_ERROR if role is Role.BASELINE else Status.PROTOCOL_VIOLATION
        raise finding(status, stage, str(error)) from None


def _last_line(text: str) -> str:
    """The line that names the exception; some libraries add advice behind it."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    named = [line for line in lines if _EXCEPTION.match(line)]
    return (named or lines or ["failed without a word"])[-1][:500]
