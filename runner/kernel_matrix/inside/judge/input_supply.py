"""Inputs for timed calls: none exists before its call, and no two calls get equal inputs.

Drawing many gigabytes takes longer than most kernels. So a set above :data:`SMALL_BYTES` is kept if its numbers do not
depend on one another, and each call gets a new secret share of it. The new numbers come from the same places of another
draw of the problem, so they have the right distribution. No place is written twice before the whole set is replaced.
A candidate that recognizes its inputs by a few values, and returns an earlier result, is wrong at all places that it
did not read.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Callable, List, Optional

import torch

from kernel_matrix.inside.input_generation import nbytes_of, tensors_in
from kernel_matrix.inside.judge.reference import DrawnInputs
from kernel_matrix.inside.platform import InsidePlatform
from kernel_matrix.model.enums import InputMode

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.reference import ReferenceModel
    from kernel_matrix.model.messages import ProtocolSpec

# Values of :attr:`InputSupply.kind`.
FRESH = "fresh"  # every call's inputs are drawn
FRESH_IN_PART = "fresh-in-part"  # one part in PARTS is new at each call, everything at each REDRAW_CALLS-th
ROTATING = "rotating"  # one of a few sets, at random

SMALL_BYTES = 256 << 20  # up to this size a set is drawn for each call
PARTS = 64
REDRAW_CALLS = 16
_SPANS = 1 << 16  # pieces per tensor: short enough to be everywhere, long enough to be copied fast
# A set is kept if so many fit into free memory, and half as many with their outputs: two sets, temporaries of drawing,
# and comparisons.
_ROOM = 8
_LARGE_BYTES = 64 << 10  # smaller tensors change only with the whole set
_FEWEST = 16  # fewer elements may be in order by chance
_LOOK = 4096  # elements that are read to find out how a tensor is built

Draw = Callable[[], List[Any]]


class InputSupply:
    """Supply of the inputs of timed calls, one after the other."""

    def __init__(
        self, reference: ReferenceModel, protocol: ProtocolSpec, dice: random.Random, *, keeps: bool = True
    ) -> None:
        """Create the supply; unless it ``keeps`` large sets, and renews them in part, each is drawn for its call."""
        self._reference = reference
        self._dice = dice
        self._drawn = 0
        self._sets = [self._draw() for _ in range(protocol.rotation)] if protocol.inputs == ROTATING else []
        self._first: Optional[DrawnInputs] = None if self._sets else self._draw_one()
        self._kept: Optional[RefreshedInputs] = None
        if keeps and self._first is not None and self._worth_keeping(self._first.values):
            self._kept = RefreshedInputs(self._first.values, self._draw, dice)

    @property
    def kind(self) -> str:
        """Kind of inputs for the record: :data:`FRESH`, :data:`FRESH_IN_PART` or :data:`ROTATING`."""
        if self._sets:
            return ROTATING
        return FRESH if self._kept is None else FRESH_IN_PART

    def next(self) -> List[Any]:
        """Return inputs for one call; they may change when those of the next call are requested."""
        return self.next_drawn().values

    def next_drawn(self) -> DrawnInputs:
        """Return inputs for one call like :meth:`next`; those that are drawn for it can be forgotten."""
        if self._sets:
            chosen = self._dice.choice(self._sets)
            return DrawnInputs(lambda: chosen)
        first, self._first = self._first, None
        if self._kept is not None:
            return DrawnInputs(self._kept.renewed)
        return self._draw_one() if first is None else first

    def _draw(self) -> List[Any]:
        return self._draw_one().values

    def _draw_one(self) -> DrawnInputs:
        self._drawn += 1
        number = self._drawn
        return DrawnInputs(lambda: self._reference.draw(InputMode.STANDARD, "timed", number))

    def _worth_keeping(self, inputs: List[Any]) -> bool:
        nbytes = nbytes_of(tensors_in(inputs))
        with_outputs = nbytes + nbytes_of(self._reference.like)
        roomy = nbytes > SMALL_BYTES and _has_room(self._reference.platform, max(nbytes, with_outputs // 2))
        return roomy and all(map(exchangeable, large_in(inputs)))


class RefreshedInputs:
    """A set of inputs, part of which is replaced for each call."""

    def __init__(self, inputs: List[Any], draw: Draw, dice: random.Random) -> None:
        self._draw = draw
        self._dice = dice
        self._now: List[Any] = inputs
        self._next: List[Any] = draw()
        self._calls = 0
        self._places = self._shuffle()

    def renewed(self) -> List[Any]:
        """Replace one more part of the set by the next set's, or switch to the next set when all parts are used."""
        if self._calls == REDRAW_CALLS:
            self._turn()
        for place, now, then in zip(self._places, large_in(self._now), large_in(self._next)):
            chosen = place[self._calls * len(place) // PARTS : (self._calls + 1) * len(place) // PARTS]
            spans_of(now).index_copy_(0, chosen, spans_of(then).index_select(0, chosen))
        self._calls += 1
        return self._now

    def _turn(self) -> None:
        self._now, self._next = self._next, []  # frees the old set before the new one is drawn
        self._next = self._draw()
        self._calls = 0
        self._places = self._shuffle()

    def _shuffle(self) -> List[torch.Tensor]:
        """Return a secret order of every tensor's pieces."""
        orders = []
        for tensor in large_in(self._now):
            generator = torch.Generator(tensor.device)
            generator.manual_seed(self._dice.getrandbits(63))
            orders.append(torch.randperm(len(spans_of(tensor)), device=tensor.device, generator=generator))
        return orders


def large_in(inputs: Any) -> List[torch.Tensor]:
    """Return the tensors that are replaced in part; small ones may be indices into the others."""
    return [tensor for tensor in tensors_in(inputs) if nbytes_of([tensor]) >= _LARGE_BYTES]


def spans_of(tensor: torch.Tensor) -> torch.Tensor:
    """View a dense tensor's memory as about :data:`_SPANS` rows of 64-bit words.

    Less than one row, and less than one word, may be left over at the end.
    """
    # Words for every dtype, since not every operator supports the narrow floating ones.
    per_word = max(1, 8 // tensor.element_size())
    flat = tensor.as_strided((tensor.numel(),), (1,))
    words = flat[: tensor.numel() // per_word * per_word].view(torch.int64)
    length = max(1, len(words) // _SPANS)
    return words[: len(words) // length * length].view(-1, length)


def exchangeable(tensor: torch.Tensor) -> bool:
    """Return True if a part of ``tensor`` may come from another draw, judging by its first elements.

    Ordered (boundaries) and symmetric tensors would lose that property. Integers may be indices that must occur once
    each (permutations, slots, pages), or as often as another tensor says.
    """
    is_built = _may_name_places(tensor) or _is_ordered(tensor) or _is_symmetric(tensor)
    return _is_dense(tensor) and not is_built


def _may_name_places(tensor: torch.Tensor) -> bool:
    """Return True for integers; 8-bit ones are too narrow to index anything large."""
    return not (tensor.is_floating_point() or tensor.is_complex()) and tensor.element_size() > 1


def _is_dense(tensor: torch.Tensor) -> bool:
    """Return True if its elements fill a contiguous range of memory that begins at a whole word."""
    reach = sum((size - 1) * step for size, step in zip(tensor.shape, tensor.stride()))
    return bool(reach + 1 == tensor.numel() and tensor.data_ptr() % 8 == 0)


def _is_ordered(tensor: torch.Tensor) -> bool:
    if tensor.is_complex():
        return False
    head = tensor[(0,) * (tensor.dim() - 1)][:_LOOK].to(torch.float64)
    return len(head) >= _FEWEST and bool((head[1:] >= head[:-1]).all())


def _is_symmetric(tensor: torch.Tensor) -> bool:
    if tensor.dim() < 2 or tensor.shape[-1] != tensor.shape[-2]:
        return False
    side = int(_LOOK**0.5)
    corner = tensor[(0,) * (tensor.dim() - 2)][:side, :side]
    corner = corner if corner.is_complex() else corner.to(torch.float64)
    return bool(torch.equal(corner, corner.transpose(0, 1)))


def _has_room(platform: InsidePlatform, nbytes: int) -> bool:
    free = platform.free_bytes()
    return free is None or free >= _ROOM * nbytes
