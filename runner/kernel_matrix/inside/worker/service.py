"""The worker: runs the judge's calls without knowing which results are correct. All its answers are claims.

It is the same for the candidate, the baseline and rivals, and for all kinds of calls.
"""

from __future__ import annotations

import json
import os
import traceback
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from typing import Any, Callable, List, NamedTuple, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.arguments import decode_arguments
from kernel_matrix.inside.artifact import unpack
from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.input_generation import (
    nbytes_of,
    place_model,
    place_reference,
    seed_torch,
    set_float32_precision,
)
from kernel_matrix.inside.memory import LentArenas, TensorSpec
from kernel_matrix.inside.platform import InsidePlatform, load_platform
from kernel_matrix.inside.source_module import MODULE_SEED, import_file
from kernel_matrix.inside.wire import (
    AWAKE_S,
    MAX_OUTPUTS,
    CallFailure,
    Channel,
    FrameKind,
    OutputsClaim,
    PeerGoneError,
    pack_begun,
    pack_done,
    pack_failed,
    pack_lent,
    pack_outputs,
    pack_peak,
    pack_places,
    pack_traced,
    unpack_calls,
    unpack_replay,
)
from kernel_matrix.inside.worker.call_batches import CallBatches
from kernel_matrix.inside.worker.handing_over import copy_one, flatten
from kernel_matrix.inside.worker.meter import Meter, captured_or_called
from kernel_matrix.inside.worker.output_aliases import AliasMemory
from kernel_matrix.inside.worker.rank_group import RankPlace, join_group
from kernel_matrix.inside.worker.tracing import trace
from kernel_matrix.model.enums import Dtype

Kernels = List[Tuple[str, int, int]]


def serve(channel: Channel, code: Path, device: str, artifact: Optional[Path] = None) -> None:
    """Answer one judge until it says goodbye or is gone."""
    with suppress(PeerGoneError):
        Worker(channel, code, device, artifact).serve()


class FinishedCall(NamedTuple):
    """A call that has ended, before its outputs are handed over."""

    sequence: int
    returned: Any
    captured: bool
    input_range: Tuple[int, int]


class CallBuffers:
    """Memory that the judge lent for the following calls: arguments, and places for outputs."""

    def __init__(self, platform: InsidePlatform, message: Any, descriptors: Sequence[int]) -> None:
        self.arenas = LentArenas(platform.open_arena, (message["input_bytes"], message["output_bytes"]), descriptors)
        inputs, outputs = self.arenas.inputs.tensor, self.arenas.outputs.tensor
        tensors = [TensorSpec.from_json(spec).view(inputs) for spec in message["inputs"]]
        self.arguments: List[Any] = decode_arguments(message["arguments"], tensors)
        self.outputs = [TensorSpec.from_json(spec).view(outputs) for spec in message["outputs"]]
        self.input_range = (inputs.data_ptr(), inputs.data_ptr() + inputs.numel())

    def close(self) -> None:
        """Release the memory."""
        self.arguments, self.outputs = [], []
        self.arenas.close()


class Worker:
    """Answers one judge until it says goodbye."""

    def __init__(
        self,
        channel: Channel,
        code: Path,
        device: str,
        artifact: Optional[Path] = None,
        *,
        place: Optional[RankPlace] = None,
    ) -> None:
        """Create the worker; ``place`` is that of its process among several that make calls together."""
        self._channel = channel
        self._place = place
        self._own_device = ExitStack()  # entered until this process ends
        self._code = code
        self._artifact = artifact
        self._platform = load_platform(device)
        self._settings: Any = None
        self._entry: Any = None
        self._model: Any = None
        self._meter: Optional[Meter] = None
        self._aliases = AliasMemory()
        self._buffers: Optional[CallBuffers] = None
        self._arguments: List[Any] = []
        self._batches: Optional[CallBatches] = None
        self._replayed: Optional[Tuple[Callable[[], Any], bool]] = None
        self._finished: Optional[FinishedCall] = None  # whose outputs are not handed over yet
        self._needed_bytes = 0

    def serve(self) -> None:
        """Answer frames until the judge says goodbye."""
        steps = {
            FrameKind.OPEN: self._open,
            FrameKind.LOAD: self._load,
            FrameKind.MODEL: self._construct,
            FrameKind.BUFFERS: self._take_buffers,
            FrameKind.BATCH_BUFFERS: self._take_batches,
            FrameKind.RELEASE: self._release,
        }
        while True:
            kind, sequence, payload, descriptors = self._channel.receive_with_descriptors()
            if kind is FrameKind.BYE:
                return
            # Any exception of candidate code is reported as its own failure.
            try:
                if kind in steps:
                    self._channel.send(FrameKind.READY, 0, steps[kind](json.loads(payload or b"{}"), descriptors))
                elif kind is FrameKind.HAND_OVER:
                    self._hand_over_last()
                elif kind is FrameKind.CALLS:
                    self._call_batch(sequence, unpack_calls(payload))
                else:
                    self._call(kind, sequence, payload)
            except PeerGoneError:
                raise
            except Exception as error:  # noqa: BLE001  # see above
                failure = classify(error)
                at_load = kind in steps and failure is CallFailure.RUNTIME
                text = pack_failed(CallFailure.LOAD if at_load else failure, traceback.format_exc())
                self._channel.send(FrameKind.FAILED, 0, text)

    # ---- getting ready

    def _open(self, message: Any, _descriptors: Sequence[int]) -> bytes:
        if self._place is not None:
            self._own_device.enter_context(self._platform.on_device(self._place.rank))
        self._platform.open_device()
        if message.get("device_memory_bytes") is not None:
            # Candidate code can undo this; the judge measures what is in use.
            self._platform.limit_memory(message["device_memory_bytes"])
        if self._platform.IS_ACCELERATOR:
            self._channel.stay_awake(AWAKE_S)
        if self._place is not None:
            join_group(self._place, self._platform)
        return b""

    def _load(self, settings: Any, _descriptors: Sequence[int]) -> bytes:
        self._unpack_artifact()
        values = settings["values"] if settings["entry"] == "Model" else {}
        module = import_file(self._code / settings["file"], settings["module"], values)
        if not hasattr(module, settings["entry"]):
            raise AttributeError(f"{settings['file']} defines no class {settings['entry']}")
        self._settings = settings
        self._entry = getattr(module, settings["entry"])
        return b""

    def _unpack_artifact(self) -> None:
        """Unpack what was compiled ahead of time, at the first load.

        Not earlier, because a failure before the first load is this machine's, and this one is the candidate's.
        """
        artifact, self._artifact = self._artifact, None
        if artifact is not None:
            unpack(artifact)
        if artifact is not None or (self._place is not None and self._place.built):
            os.environ.update(self._platform.compiler_settings())

    def _construct(self, message: Any, descriptors: Sequence[int]) -> bytes:
        self._give_back()
        self._model = self._finished = None  # two of them need not fit into memory
        self._needed_bytes = 0
        with closing(self._platform.open_arena(descriptors[0], message["nbytes"])) as arena:
            tensors = [TensorSpec.from_json(spec).view(arena.tensor).clone() for spec in message["tensors"]]
            self._platform.synchronize()  # the memory may go only when it has been copied
        arguments = decode_arguments(message["init"], tensors)
        state = {name: tensors[index] for name, index in message["state"].items()}
        dtype = Dtype(message["dtype"])
        set_float32_precision(dtype)  # after the import of the source, which may have changed it
        seed_torch(MODULE_SEED)
        model = self._entry(*arguments)
        if isinstance(model, torch.nn.Module):
            place = place_reference if self._settings["entry"] == "Model" else place_model
            model = place(model, self._platform.TORCH_DEVICE, dtype)
            copy_state(model, state)
        mode = self._settings["compile_mode"]
        self._model = torch.compile(model, mode=mode) if mode else model
        self._meter = Meter(self._platform, message["flush_bytes"])
        self._platform.synchronize()
        del tensors, state, arguments  # copies that the model does not use
        # What constructing the model left behind is not part of the calls' peak.
        self._release({"buffers": False, "model": False, "remember": False}, ())
        return b""

    def _take_buffers(self, message: Any, descriptors: Sequence[int]) -> bytes:
        self._give_back()
        self._platform.release_memory()  # where outputs lie is to change with the buffers
        self._buffers = CallBuffers(self._platform, message, descriptors)
        self._arguments = self._buffers.arguments
        return b""

    def _take_batches(self, message: Any, descriptors: Sequence[int]) -> bytes:
        self._give_back()
        self._platform.release_memory()
        with torch.no_grad():
            self._batches = CallBatches(self._platform, self._model, message, descriptors)
        return pack_lent(captured=self._batches.captured, pool_bytes=self._batches.pool_bytes)

    def _release(self, message: Any, _descriptors: Sequence[int]) -> bytes:
        if message["buffers"]:
            self._give_back()
        if message["model"]:
            self._model = self._meter = self._finished = None
        peak = self._platform.take_peak()
        if peak is not None and self._finished is not None:  # the platform does not count what is still there
            peak += nbytes_of(flatten(self._finished.returned)[1])
        if message["remember"]:
            self._needed_bytes = peak or 0
        self._platform.release_memory()
        return pack_peak(peak)

    def _give_back(self) -> None:
        """Release everything that refers to lent memory."""
        self._replayed = None
        self._arguments = []
        self._aliases.forget()
        if self._buffers is not None:
            self._buffers.close()
            self._buffers = None
        if self._batches is not None:
            self._batches.close()
            self._batches = None

    # ---- calls

    def _call(self, kind: FrameKind, sequence: int, payload: bytes) -> None:
        if self._meter is None or self._buffers is None:
            raise ValueError(f"{kind.name} before there are a model and buffers")
        kernels: Kernels = []
        self._finished = None
        self._buffers.arenas.fetch()
        self._take_memory()
        with torch.no_grad():
            returned, device_ns, captured = self._measured(kind, payload, self._meter, kernels)
            self._channel.send(FrameKind.DONE, sequence, pack_done(device_ns))
            if kind is FrameKind.TRACE:
                self._channel.send(FrameKind.TRACED, sequence, pack_traced(kernels))
            finished = FinishedCall(sequence, returned, captured, self._buffers.input_range)
            if self._buffers.outputs:
                self._hand_over(finished, self._buffers)
            else:  # their places come in other buffers
                self._finished = finished

    def _hand_over_last(self) -> None:
        finished, self._finished = self._finished, None
        if finished is None or self._buffers is None:
            raise ValueError("HAND_OVER before there are a call and buffers")
        with torch.no_grad():
            self._hand_over(finished, self._buffers)

    def _hand_over(self, finished: FinishedCall, buffers: CallBuffers) -> None:
        claim = self._handed_over(finished, buffers)
        self._channel.send(FrameKind.OUTPUTS, finished.sequence, pack_outputs(claim))

    def _take_memory(self) -> None:
        """Take memory that was given back after the last call; within the call that would be part of its time."""
        needed, self._needed_bytes = self._needed_bytes, 0
        if needed:  # torch's allocator keeps it when it is freed here
            torch.empty(needed, dtype=torch.uint8, device=self._platform.TORCH_DEVICE)

    def _call_batch(self, sequence: int, chunks: Sequence[int]) -> None:
        batches = self._batches
        if batches is None:
            raise ValueError("CALLS before there is a batch")
        with torch.no_grad():
            self._channel.send(FrameKind.BEGUN, sequence, pack_begun(batches.begin()))
            returned = batches.call(chunks)
            self._channel.send(FrameKind.DONE, sequence)
            claim, places = batches.hand_over(returned)
        self._channel.send(FrameKind.OUTPUTS, sequence, pack_outputs(claim))
        if batches.pool_bytes:
            self._channel.send(FrameKind.PLACES, sequence, pack_places(places))

    def _measured(self, kind: FrameKind, payload: bytes, meter: Meter, kernels: Kernels) -> Tuple[Any, int, bool]:
        """Run the call; return its result, its device time in nanoseconds, and whether it was a graph's replay."""
        calls = {
            FrameKind.CALL: self._once,
            FrameKind.TRACE: lambda: self._traced(kernels),
        }
        if kind in calls:
            return (*meter.time(calls[kind]), False)
        if kind is not FrameKind.REPLAY:
            raise ValueError(f"{kind.name} is no order for a worker")
        if self._replayed is None:
            self._replayed = captured_or_called(self._once, self._platform)
        replayed, captured = self._replayed
        return (*meter.time_replays(replayed, unpack_replay(payload)), captured)

    def _once(self) -> Any:
        return self._model(*self._arguments)

    def _traced(self, kernels: Kernels) -> Any:
        returned, seen = trace(self._once, self._platform)
        kernels += seen
        return returned

    def _handed_over(self, finished: FinishedCall, buffers: CallBuffers) -> OutputsClaim:
        """Copy the outputs to the judge's buffer as far as they fit."""
        structure, outputs = flatten(finished.returned)
        views: Sequence[Optional[torch.Tensor]] = buffers.outputs
        if len(outputs) != len(buffers.outputs):
            views = [None] * len(outputs)
        aliases = self._aliases.aliases(outputs[:MAX_OUTPUTS], finished.input_range)
        claims = tuple(copy_one(*one) for one in zip(outputs, views, aliases))
        self._platform.synchronize()
        buffers.arenas.publish()
        if not finished.captured:  # the memory of a graph's outputs is the graph's choice, not the candidate's
            self._aliases.remember(outputs[:MAX_OUTPUTS])
        return OutputsClaim(structure, claims, finished.captured)


def copy_state(model: Any, state: Any) -> None:
    """Copy the reference's parameters and buffers where name and shape match."""
    own = model.state_dict()
    for name, value in state.items():
        if name in own and own[name].shape == value.shape:
            own[name].copy_(value)
