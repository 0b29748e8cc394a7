"""The worker's side of batches: many calls back to back, each on a set of arguments of its own.

Where the platform lets torch allocate in given memory, calls allocate their outputs *in place*: in the memory that the
judge lent for them, so that nothing has to be copied when they are handed over. Otherwise they are copied there.
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any, Callable, List, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.arguments import decode_arguments
from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.memory import LentArenas, OutputPool, TensorSpec
from kernel_matrix.inside.platform import InsidePlatform
from kernel_matrix.inside.wire import CallFailure, OutputAlias, OutputsClaim, Structure, do_overlap
from kernel_matrix.inside.worker.handing_over import copy_one, describe, fits, flatten

Returned = List[Tuple[int, Any]]
"""(number of the set, what the model returned for it) of each call."""

Replay = Callable[[], Returned]


class CallBatches:
    """The memory of batches, the sets of arguments in it, and the captured calls.

    The sets are at the same addresses in every batch, so a chunk of them is captured once.
    """

    def __init__(self, platform: InsidePlatform, model: Any, message: Any, descriptors: Sequence[int]) -> None:
        """Open the memory, and capture the calls of each chunk if the judge asks for it."""
        self._platform = platform
        self._model = model
        self._chunk: int = message["chunk"]
        self._sets: int = message["sets"]
        self._arenas = LentArenas(platform.open_arena, (message["input_bytes"], message["output_bytes"]), descriptors)
        inputs, outputs = (
            [arena.tensor[k * stride :] for k in range(self._sets)]
            for arena, stride in zip((self._arenas.inputs, self._arenas.outputs), message["strides"])
        )
        specs, places = ([TensorSpec.from_json(spec) for spec in message[kind]] for kind in ("inputs", "outputs"))
        self._switch = torch.zeros(1, device=platform.TORCH_DEVICE)
        """What is written to let the device switch to this process."""
        self._arguments: List[List[Any]] = [
            decode_arguments(message["arguments"], [spec.view(one) for spec in specs]) for one in inputs
        ]
        self._places = [[spec.view(one) for spec in places] for one in outputs]
        self._output_bytes = [spec.span_bytes for spec in places]
        self._captured: Optional[List[Replay]] = None
        self.pool_bytes = 0
        """Bytes of the memory for outputs in which all of them are allocated; 0 if they are copied."""
        self._pool: Optional[OutputPool] = platform.open_pool(self._arenas.outputs) if message["in_place"] else None
        if self._pool is not None and not self._try_in_place(self._pool, capture=message["capture"]):
            self._captured = None
            self._pool.close()
            self._pool, self.pool_bytes = None, 0
        if self._pool is None and message["capture"]:
            self._captured = self._capture(platform.capture)

    @property
    def captured(self) -> bool:
        """True if the calls of every chunk are replayed from a graph."""
        return self._captured is not None

    def begin(self) -> int:
        """See a batch's inputs, and let the device switch to this process; return how long that took, nanoseconds.

        The switch takes a third of a millisecond, and would otherwise be part of the first call.
        """
        started = time.perf_counter_ns()
        self._arenas.fetch()
        self._switch.zero_()
        self._platform.synchronize()
        return time.perf_counter_ns() - started

    def call(self, chunks: Sequence[int]) -> Returned:
        """Call the model on the sets of these chunks, and wait until all calls have ended."""
        returned: Returned = []
        with nullcontext() if self._pool is None or self.captured else self._pool.allocating():
            for chunk in chunks:
                returned += self._call_chunk(chunk) if self._captured is None else self._captured[chunk]()
        self._platform.synchronize()
        return returned

    def hand_over(self, returned: Returned) -> Tuple[OutputsClaim, Sequence[int]]:
        """Copy all outputs to the judge's memory, or return where they lie there; also describe those of one call."""
        claim, places = self._copy(returned) if self._pool is None else self._locate(returned)
        self._platform.synchronize()
        self._arenas.publish()
        return claim or OutputsClaim(Structure.OTHER, (), self.captured), places

    def close(self) -> None:
        """Give everything back."""
        self._captured = None
        self._arguments, self._places = [], []
        if self._pool is not None:
            self._pool.close()
            self._pool = None
        self._arenas.close()

    def _call_chunk(self, chunk: int) -> Returned:
        numbers = range(chunk * self._chunk, (chunk + 1) * self._chunk)
        return [(number, self._model(*self._arguments[number])) for number in numbers]

    def _capture(self, capture: Callable[[Replay], Optional[Replay]]) -> Optional[List[Replay]]:
        """Return a replay of each chunk's calls; None if one of them cannot be captured."""
        replays: List[Replay] = []
        for chunk in range(self._sets // self._chunk):
            replay = capture(lambda chunk=chunk: self._call_chunk(chunk))  # type: ignore[misc]
            if replay is None:
                return None
            replays.append(replay)
        return replays

    def _try_in_place(self, pool: OutputPool, *, capture: bool) -> bool:
        """Make all calls once, with outputs from the pool; return True if all of them lie there."""
        try:
            if capture:
                self._captured = self._capture(pool.capture)
                if self._captured is None:
                    return False
            else:
                # Outside of the pool, since libraries keep the workspaces that they allocate in a first call.
                self._model(*self._arguments[0])
            returned = self.call(range(self._sets // self._chunk))
            self.pool_bytes = pool.used_bytes
            _, places = self._locate(returned)
        except Exception as error:
            if classify(error) is not CallFailure.MEMORY:
                raise
            return False
        return bool(places)

    def _locate(self, returned: Returned) -> Tuple[Optional[OutputsClaim], Sequence[int]]:
        """Describe the first call's outputs; also return where all outputs begin in the memory for them.

        Nothing is returned for the latter if one of them does not lie there in the form that it must have.
        """
        begin, device = self._arenas.outputs.tensor.data_ptr(), self._platform.TORCH_DEVICE
        spans: List[Tuple[int, int]] = []
        complete = True
        for number, one in returned:
            _, outputs = flatten(one)
            views = self._places[number]
            starts = [output.data_ptr() - begin for output in outputs]
            complete &= len(outputs) == len(views) and all(map(_alike, outputs, views))
            complete &= all(0 <= start < self.pool_bytes for start in starts)
            spans += zip(starts, self._output_bytes)
        complete &= not do_overlap(spans)
        if not returned:
            return None, ()
        structure, outputs = flatten(returned[0][1])
        described = (describe(one, same_device=one.device.type == device, copied=complete) for one in outputs)
        claim = OutputsClaim(structure, tuple(described), self.captured)
        return claim, [start for start, _ in spans] if complete else ()

    def _copy(self, returned: Returned) -> Tuple[Optional[OutputsClaim], Sequence[int]]:
        """Copy all outputs into their places as far as they fit; describe those of the first call that differs."""
        claim: Optional[OutputsClaim] = None
        fitting: Tuple[List[torch.Tensor], List[torch.Tensor]] = ([], [])
        for number, one in returned:
            structure, outputs = flatten(one)
            views = self._places[number]
            alike = claim is not None and structure is claim.structure and len(outputs) == len(views)
            if alike and all(map(fits, outputs, views)):
                fitting[0].extend(views)
                fitting[1].extend(outputs)
                continue
            described = _copied(structure, outputs, views, captured=self.captured)
            if claim is not None and described != claim:
                claim = described
                break
            claim = described
        if fitting[0]:
            torch._foreach_copy_(*fitting)  # one launch for many outputs; it has no public name
        return claim, ()


def _alike(output: torch.Tensor, view: torch.Tensor) -> bool:
    """Return True if ``output`` has the form of ``view``, in memory too."""
    steps = zip(view.shape, output.stride(), view.stride())
    return fits(output, view) and all(size == 1 or step == other for size, step, other in steps)


def _copied(
    structure: Structure, outputs: Sequence[torch.Tensor], views: Sequence[torch.Tensor], *, captured: bool
) -> OutputsClaim:
    places: Sequence[Optional[torch.Tensor]] = views if len(views) == len(outputs) else [None] * len(outputs)
    claims = tuple(copy_one(output, place, OutputAlias.NONE) for output, place in zip(outputs, places))
    return OutputsClaim(structure, claims, captured)
