"""Batches: many calls back to back, each on inputs that its process sees for the first time.

The judge writes new inputs into memory of the worker just before the request. So hardly anything can be worked out
before the clock runs, and no result of an earlier batch fits. The outputs of all calls are handed over afterwards, and
compared like those of single calls.

Where torch can allocate in given memory, outputs are computed *in place*: they lie in the judge's memory when the calls
end, and the judge takes them at once. That takes as long as for the baseline, or longer if work was left for it.
Elsewhere the worker copies its outputs there first.
"""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Callable, Dict, List, Optional, Sequence, Tuple

import torch

from kernel_matrix.inside.arguments import decode_arguments
from kernel_matrix.inside.input_generation import seed_torch
from kernel_matrix.inside.judge.bits import same_bits
from kernel_matrix.inside.judge.input_supply import FRESH
from kernel_matrix.inside.judge.lent_buffers import POISON, RankArenas, as_empty, for_ranks, rank_message
from kernel_matrix.inside.judge.verification import GLANCED
from kernel_matrix.inside.judge.worker_client import CallResult, calls_of_ranks
from kernel_matrix.inside.memory import RowLayout, TensorSpec, guards
from kernel_matrix.inside.rank_parts import parts_of_ranks
from kernel_matrix.inside.wire import MOST_PLACES, Places, unpack_places
from kernel_matrix.model.enums import Role

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.input_supply import InputSupply
    from kernel_matrix.inside.judge.lent_buffers import CallArguments
    from kernel_matrix.inside.judge.reference import ReferenceModel
    from kernel_matrix.inside.judge.worker_client import CallTimes, WorkerClient
    from kernel_matrix.inside.platform import InsidePlatform
    from kernel_matrix.inside.wire import OutputsClaim

CHUNKS = 8
"""Least number of pieces of a long batch, each captured on its own, so that it may consist of any number of them."""
MOST_SETS = 1024
LONG_NS = 20_000_000
"""A long batch takes about this long, unless it then had more sets than :data:`MOST_SETS`."""
LONGEST_NS = 300_000_000
"""The slowest contestant's long batch takes about this long at most; it may be hundreds of times slower than others."""
CAPTURED_BELOW_NS = 1_000_000
"""Calls shorter than this are captured. Launching a Triton kernel from Python takes 100 to 250 µs on a slow host, and
calls of about that length took 3 to 5 % longer back to back than in a graph."""
MOST_BYTES = 12 << 30
"""The sets of one batch take at most this many bytes, or two sets whatever they take."""
MOST_SHARE = 6
"""Likewise, at most one part in this many of the free memory."""
DRAWN_TOGETHER = 16
"""Most sets that are drawn in one capture, where drawing can be captured; from Python it takes ten times as long."""
COPIES = 2
"""Times as much as one batch's sets must be free on the device, and once more per contestant: the judge's copies."""


class NoBatchesError(Exception):
    """Batches cannot be made of this problem, or not on this device."""


class OutputsElsewhereError(Exception):
    """An output of a batch does not lie where all outputs lay in the first one."""


@dataclass(frozen=True)
class BatchResult:
    """One batch: its number of calls, its times, and everything that is checked, out of the worker's reach."""

    calls: int
    claim: OutputsClaim
    times: CallTimes
    in_place: bool
    """The outputs were computed in the judge's memory."""
    numbers: Sequence[int]
    """Sets that were called on, in order."""
    outputs: torch.Tensor
    """Bytes in which all outputs are."""
    places: Places
    """Where the outputs of each call begin there."""
    inputs: Optional[torch.Tensor]
    """All sets' inputs as they are now; None if their bits are still those that were sent."""
    damage: str
    """Description of memory around the tensors that the batch changed; empty if none was."""


class BatchLayout:
    """Places of the sets' inputs and outputs, the same for all contestants."""

    def __init__(self, reference: ReferenceModel, inputs: List[Any], sets: int) -> None:
        self.ranks = reference.ranks
        calls = calls_of_ranks(inputs, self.ranks)
        self.arguments, self.input_row = self.place(calls)
        self.output_row = RowLayout.of(parts_of_ranks([as_empty(tensor) for tensor in reference.like], self.ranks))
        self.inputs, self.input_bytes = self.input_row.specs, self.input_row.nbytes
        self.outputs, self.output_bytes = self.output_row.specs, self.output_row.nbytes
        self.sets = sets
        self.room_in_place = 0
        """Bytes that outputs in place need; 0 if outputs are copied."""

    @staticmethod
    def place(calls: Sequence[CallArguments]) -> Tuple[List[Any], RowLayout]:
        """Return the arguments of each rank as JSON, and the places of their tensors."""
        return [call.document for call in calls], RowLayout.of([call.tensors for call in calls])

    @property
    def all_output_bytes(self) -> int:
        """Return the size of memory with a row for each set's outputs."""
        return self.output_bytes * self.sets

    def output_sizes(self, rank: int) -> Tuple[Tuple[int, int], ...]:
        """Return (bytes, bytes of an element) of each output of a call of ``rank``."""
        specs = self.output_row.ranks[rank]
        return tuple((spec.span_bytes, int(getattr(torch, spec.dtype).itemsize)) for spec in specs)

    def read_places(self, payload: bytes, calls: int, used: int) -> Places:
        """Return where the outputs of each call begin in ``used`` bytes, of which each rank has an equal part.

        Raises:
            WireError: For places that are not possible.
        """
        each = used // self.ranks
        of_ranks = [
            unpack_places(part, self.output_sizes(rank), calls, each)
            for rank, part in enumerate(parts_of_ranks(payload, self.ranks))
        ]
        if not all(of_ranks):
            return ()
        return tuple(
            tuple(rank * each + start for rank, starts in enumerate(one) for start in starts) for one in zip(*of_ranks)
        )

    def views(self, specs: Sequence[TensorSpec], memory: torch.Tensor, number: int) -> Tuple[torch.Tensor, ...]:
        """Return the tensors of one set in ``memory``, which has a row per set."""
        return tuple(spec.view(memory[number]) for spec in specs)

    def places(self, numbers: Sequence[int]) -> Places:
        """Return where the outputs of these sets begin in memory that has a row per set."""
        return tuple(tuple(number * self.output_bytes + spec.offset for spec in self.outputs) for number in numbers)

    def sample(self, memory: torch.Tensor, places: Places, seed: int) -> Tuple[torch.Tensor, ...]:
        """Return at most :data:`GLANCED` numbers of each output, at random places of all calls."""
        generator = torch.Generator(memory.device).manual_seed(seed)
        found = []
        for spec, starts in zip(self.outputs, zip(*places)):
            dtype: torch.dtype = getattr(torch, spec.dtype)
            numbers = memory[: len(memory) // dtype.itemsize * dtype.itemsize].view(dtype)
            at = torch.zeros(min(GLANCED, len(starts) * math.prod(spec.shape)), dtype=torch.int64, device=memory.device)
            for size, step in zip(spec.shape, spec.stride):
                at += step * torch.randint(max(1, size), at.shape, device=memory.device, generator=generator)
            call = torch.randint(len(starts), at.shape, device=memory.device, generator=generator)
            found.append(numbers[torch.tensor(starts, device=memory.device)[call] // dtype.itemsize + at])
        return tuple(found)

    def decode(self, tensors: Sequence[torch.Tensor]) -> List[Any]:
        """Return the arguments of all ranks with these tensors in their places."""
        left = list(tensors)
        counts = [len(specs) for specs in self.input_row.ranks]
        of_ranks = [[left.pop(0) for _ in range(count)] for count in counts]
        return [one for pair in zip(self.arguments, of_ranks) for one in decode_arguments(*pair)]

    def memory_sizes(self, rank: int) -> Tuple[int, int]:
        """Return the sizes of the memory for all sets' inputs and outputs of a rank; for outputs all have the same.

        What one rank says of its outputs in place must be possible in the memory of each.
        """
        start, stop = self.input_row.segments[rank]
        widest = max(end - begin for begin, end in self.output_row.segments)
        return (stop - start) * self.sets, max(widest * self.sets, self.room_in_place)

    def to_json(self, chunk: int, *, capture: bool) -> Any:
        """Return its form on the wire."""
        return for_ranks([self._of_rank(rank, chunk, capture=capture) for rank in range(self.ranks)])

    def _of_rank(self, rank: int, chunk: int, *, capture: bool) -> Dict[str, Any]:
        (first, stop), (start, end) = self.input_row.segments[rank], self.output_row.segments[rank]
        specs = self.input_row.ranks[rank], self.output_row.ranks[rank]
        return {
            **rank_message(self.arguments[rank], *specs, self.memory_sizes(rank)),
            "strides": (stop - first, end - start),
            "sets": self.sets,
            "chunk": chunk,
            "capture": capture,
            "in_place": self.room_in_place > 0,
        }


class LentRows:
    """Memory that a contestant has for batches: a row per set in each arena."""

    def __init__(self, platform: InsidePlatform, layout: BatchLayout) -> None:
        self._layout = layout
        self.arenas = RankArenas(platform, [layout.memory_sizes(rank) for rank in range(layout.ranks)])

    def fill(self, sent: torch.Tensor) -> None:
        """Copy the rows of all inputs to their ranks."""
        for (start, stop), arena in zip(self._layout.input_row.segments, self.arenas.inputs):
            arena.tensor.view(self._layout.sets, -1).copy_(sent[:, start:stop])

    def take(self, memory: torch.Tensor, *, in_place: bool) -> None:
        """Copy the outputs to ``memory``: rows, or what lies at the start of each rank's memory."""
        self.arenas.fetch_outputs()
        if in_place:
            for part, arena in zip(memory.view(self._layout.ranks, -1), self.arenas.outputs):
                part.copy_(arena.tensor[: len(part)])
            return
        rows = memory.view(self._layout.sets, -1)
        for (start, stop), arena in zip(self._layout.output_row.segments, self.arenas.outputs):
            nbytes = (stop - start) * self._layout.sets
            rows[:, start:stop].copy_(arena.tensor[:nbytes].view(self._layout.sets, -1))

    def inputs_now(self) -> torch.Tensor:
        """Return the rows of all inputs as they are now; of several ranks, a copy."""
        self.arenas.fetch_inputs()
        found = [arena.tensor.view(self._layout.sets, -1) for arena in self.arenas.inputs]
        return found[0] if len(found) == 1 else torch.cat([one.to(found[0].device) for one in found], 1)


class Batches:
    """Maker of the batches of one workload."""

    def __init__(
        self,
        reference: ReferenceModel,
        supply: InputSupply,
        dice: random.Random,
        layout: BatchLayout,
        *,
        contestants: int = 2,
    ) -> None:
        self._platform = reference.platform
        self._reference = reference
        self._supply = supply
        self._dice = dice
        self._layout = layout
        self._copies = COPIES + contestants
        self._chunk = 1
        self._memory: Dict[str, LentRows] = {}
        """Contestant → memory for its inputs and outputs."""
        self._in_place: Dict[str, int] = {}
        """Contestant that computes outputs in place → bytes of the memory in which they lie."""
        device = self._platform.TORCH_DEVICE
        self._flushes = [self._new_flush(rank) for rank in range(layout.ranks)]
        self._sent = torch.zeros((layout.sets, layout.input_bytes), dtype=torch.uint8, device=device)
        # Batches are of whole chunks if captured, so that hardly a set is drawn for nothing.
        self._drawn_together = min(DRAWN_TOGETHER, _chunk_of(layout.sets))
        self._redraw: Optional[Callable[[], torch.Tensor]] = None
        if layout.sets > DRAWN_TOGETHER and supply.kind == FRESH:
            self._redraw = self._capture_draws()
        self._write(range(layout.sets))
        layout.room_in_place = self._find_room_in_place()

    def lend(self, client: WorkerClient, *, capture: bool) -> bool:
        """Lend memory for batches; return True if ``client`` has captured its calls, otherwise False.

        Calls of several ranks are not captured: one that cannot be on one rank would leave the others waiting.
        """
        capture = capture and self._layout.ranks == 1
        self._chunk = _chunk_of(self._layout.sets) if capture else 1
        message = self._layout.to_json(self._chunk, capture=capture)
        self._take_back(client.name)
        lent = self._memory[client.name] = LentRows(self._platform, self._layout)
        lent.fill(self._sent)
        self._platform.synchronize()
        lent.arenas.publish_inputs()
        captured, used_bytes = client.lend_batches(message, lent.arenas.descriptors, self._most_in_place())
        if used_bytes:
            self._in_place[client.name] = used_bytes
        return captured

    def draw_length(self) -> int:
        """Draw the number of chunks of a long batch; a short one has one chunk."""
        chunks = self._layout.sets // self._chunk
        return self._dice.randint(max(2, -(-3 * chunks // 4)), chunks)

    def call(self, client: WorkerClient, chunks: int) -> BatchResult:
        """Let ``client`` make a batch of that many chunks of calls, on new inputs."""
        chosen = self._dice.sample(range(self._layout.sets // self._chunk), chunks)
        numbers = [number for one in chosen for number in range(one * self._chunk, (one + 1) * self._chunk)]
        self._write(numbers)  # for all contestants: what the device does before a batch may change its time
        in_place = client.name in self._in_place
        # Of all contestants in place the same, so that taking it takes equally long.
        used = max(self._in_place.values()) * self._layout.ranks if in_place else self._layout.all_output_bytes
        lent = self._memory[client.name]
        lent.arenas.poison()
        taken = torch.empty(used, dtype=torch.uint8, device=self._sent.device)
        self._platform.synchronize()
        lent.arenas.publish_outputs()

        def deliver() -> None:
            lent.fill(self._sent)
            for flush in self._flushes:
                flush.zero_()  # after the inputs, which empties the cache
            self._platform.synchronize()
            lent.arenas.publish_inputs()

        def take() -> None:
            lent.take(taken, in_place=in_place)
            self._platform.synchronize()

        def read_places(payload: bytes) -> Places:
            return self._layout.read_places(payload, len(numbers), used)

        claim, places, times = client.call_batch(deliver, chosen, len(numbers), take, read_places if in_place else None)
        if in_place and not places:
            raise OutputsElsewhereError
        now = lent.inputs_now()
        # The baseline is not hostile, and the controls have checked that it writes to no input.
        unchanged = client.role is Role.BASELINE or same_bits(now, self._sent)
        damage = "" if in_place else self._around_outputs(taken.view(self._layout.sets, -1))
        return BatchResult(
            calls=len(numbers),
            claim=claim,
            times=times,
            in_place=in_place,
            numbers=numbers,
            outputs=taken,
            places=places or self._layout.places(numbers),
            inputs=None if unchanged else now.clone(),
            damage=damage or ("" if unchanged else self._around_inputs(now, numbers)),
        )

    def close(self) -> None:
        """Take back all memory that was lent."""
        for name in list(self._memory):
            self._take_back(name)

    def result_of(self, batch: BatchResult, number: int) -> Tuple[CallResult, List[Any]]:
        """Return the result of the call on one set as that of a single call, and its arguments."""
        layout = self._layout
        sent = layout.views(layout.inputs, self._sent, number)
        now = sent if batch.inputs is None else layout.views(layout.inputs, batch.inputs, number)
        result = CallResult(
            claim=batch.claim,
            times=batch.times,
            outputs=tuple(
                replace(spec, offset=start).view(batch.outputs)
                for spec, start in zip(layout.outputs, batch.places[batch.numbers.index(number)])
            ),
            sent=sent,
            inputs=now,
            damage=batch.damage,
        )
        return result, layout.decode(sent)

    def result_of_all(self, batch: BatchResult) -> CallResult:
        """Return a sample of the outputs of all calls, as if it were the outputs of one call without inputs."""
        outputs = self._layout.sample(batch.outputs, batch.places, self._dice.getrandbits(63))
        return CallResult(batch.claim, batch.times, outputs, sent=(), inputs=(), damage=batch.damage)

    def _find_room_in_place(self) -> int:
        """Return how much memory outputs in place need; 0 where they are copied."""
        layout = self._layout
        sizes = [[nbytes for nbytes, _ in layout.output_sizes(rank)] for rank in range(layout.ranks)]
        room = max(self._platform.pool_bytes(of_rank, layout.sets) for of_rank in sizes)
        if room:  # twice, since a freed temporary may be too small for the next one, or be cut for an output
            room += 2 * self._reference.temporary_bytes
        free = self._platform.free_bytes()
        fits = free is None or room * layout.ranks <= free // self._copies
        return room if fits and layout.sets * len(layout.outputs) <= MOST_PLACES else 0

    def _most_in_place(self) -> int:
        """Return the size of a rank's memory in which outputs may be computed in place; 0 where they are copied."""
        return self._layout.memory_sizes(0)[1] if self._layout.room_in_place else 0

    def _around_outputs(self, rows: torch.Tensor) -> str:
        """Check the guards of all outputs."""
        gaps = [rows[:, start:stop] != POISON for start, stop in guards(self._layout.outputs, rows.shape[1])]
        written = bool(torch.stack([gap.any() for gap in gaps]).any())
        return "memory around an output was written to" if written else ""

    def _around_inputs(self, now: torch.Tensor, numbers: Sequence[int]) -> str:
        """Check everything except the inputs of the calls that were made: guards, and sets that were not called on."""
        changed = now != self._sent
        for spec in self._layout.inputs:
            changed[numbers, spec.offset : spec.offset + spec.span_bytes] = False
        return "memory around an input was written to" if bool(changed.any()) else ""

    def _write(self, numbers: Sequence[int]) -> None:
        """Write new inputs into the judge's own copy of these sets.

        Raises:
            NoBatchesError: They differ from others in more than the numbers in their tensors.
        """
        if self._redraw is None:
            for number in numbers:
                self._write_one(self._sent[number], self._supply.next())
            return
        sets = self._sent.view(torch.int64)  # copying word by word takes a quarter of the time, on an H100
        for chosen in torch.tensor(numbers, device=self._sent.device).split(self._drawn_together):
            sets.index_copy_(0, chosen, self._redraw()[: len(chosen)].view(torch.int64))

    def _write_one(self, memory: torch.Tensor, inputs: List[Any]) -> None:
        calls = calls_of_ranks(inputs, self._layout.ranks)
        if self._layout.place(calls) != (self._layout.arguments, self._layout.input_row):
            raise NoBatchesError
        tensors = (tensor for call in calls for tensor in call.tensors)
        for spec, tensor in zip(self._layout.inputs, tensors):
            spec.view(memory).copy_(tensor)

    def _capture_draws(self) -> Optional[Callable[[], torch.Tensor]]:
        """Capture drawing some sets; return a function that draws them anew into the same memory.

        None where the problem's drawing cannot be captured, or where numbers that should be new are not.
        """
        self._write((0, 1))  # one by one, to see which tensors differ from set to set
        shape = (self._drawn_together, self._layout.input_bytes)
        drawn = torch.zeros(shape, dtype=torch.uint8, device=self._sent.device)

        def draw() -> None:
            for memory in drawn:
                self._write_one(memory, self._reference.draw_unseeded())

        replay = self._platform.capture(draw)
        if replay is None:
            return None

        def redraw() -> torch.Tensor:
            seed_torch(self._dice.getrandbits(63))
            replay()
            return drawn

        before = redraw().clone()
        return redraw if self._are_new(before, redraw()) else None

    def _are_new(self, before: torch.Tensor, now: torch.Tensor) -> bool:
        """Return True if all tensors of all sets differ that differ between two sets that were drawn one by one."""
        for spec in self._layout.inputs:
            one, other = spec.view(self._sent[0]), spec.view(self._sent[1])
            pairs = [(spec.view(before[k]), spec.view(now[k])) for k in range(len(before))]
            if not same_bits(one, other) and any(same_bits(*pair) for pair in pairs):
                return False
        return True

    def _new_flush(self, rank: int) -> torch.Tensor:
        """Return memory on the device of ``rank`` that is written to empty its cache."""
        with self._platform.on_device(rank):
            nbytes = 2 * self._platform.cache_bytes()
            return torch.empty(nbytes, dtype=torch.uint8, device=self._platform.TORCH_DEVICE)

    def _take_back(self, name: str) -> None:
        """Take back the memory that contestant ``name`` has, if any."""
        self._in_place.pop(name, None)
        lent = self._memory.pop(name, None)
        if lent is not None:
            lent.arenas.close()


def batches_of(
    reference: ReferenceModel,
    supply: InputSupply,
    dice: random.Random,
    call_ns: float,
    slowest_ns: float,
    *,
    contestants: int,
) -> Batches:
    """Prepare batches of calls.

    Args:
        reference: The workload's reference.
        supply: Supply of inputs.
        dice: Source of everything that is drawn.
        call_ns: Time of a call of the quicker one of candidate and baseline.
        slowest_ns: Time of a call of the slowest contestant by the judge's clock.
        contestants: Number of contestants, each of which has memory of its own.

    Raises:
        NoBatchesError: There is too little memory for two sets, or the inputs of two calls have different forms, or
            calls are so long that their own wall times say enough.
    """
    if 2 * slowest_ns > LONGEST_NS:
        raise NoBatchesError
    layout = BatchLayout(reference, supply.next(), 1)
    per_set = layout.input_bytes + layout.output_bytes
    free = reference.platform.free_bytes()
    if free is not None:  # what is compared must fit too, beside temporaries that contestants keep
        free = max(0, free - reference.expected_bytes - contestants * reference.temporary_bytes)
    room = MOST_BYTES if free is None else free // (COPIES + contestants)
    most = MOST_BYTES if free is None else min(MOST_BYTES, free // MOST_SHARE)
    timely = min(int(LONG_NS / max(call_ns, 1.0)), int(LONGEST_NS / max(slowest_ns, 1.0)))
    sets = min(MOST_SETS, timely, max(2, most // per_set), room // per_set)
    if room // per_set < 2:
        raise NoBatchesError
    layout.sets = max(2, sets - sets % _chunk_of(sets))
    return Batches(reference, supply, dice, layout, contestants=contestants)


def _chunk_of(sets: int) -> int:
    """Return how many of so many sets are captured together."""
    return max(1, sets // CHUNKS)
