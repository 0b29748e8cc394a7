"""Inputs for timed calls: none of them exists before its call is due, and no two calls get equal ones.

Drawing many gigabytes anew takes longer than most kernels. Above :data:`SMALL_BYTES` a set is therefore kept, where its
numbers do not depend on one another, and per call a secret share of it is written anew. What is written comes from
another draw of the problem, at the places it had there, so that it is as likely as any; and no place is written a
second time before the whole set is another one. A candidate that knows its inputs again by a few of their values, and
returns what it computed before, is wrong wherever it did not look.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Callable, List, Optional

import torch

from kernel_matrix.inside.input_generation import nbytes_of, tensors_in
from kernel_matrix.model.enums import InputMode

if TYPE_CHECKING:
    from kernel_matrix.inside.judge.reference import ReferenceModel
    from kernel_matrix.model.messages import ProtocolSpec

FRESH = "fresh"
"""Every call's inputs are drawn anew."""
FRESH_IN_PART = "fresh-in-part"
"""One part in :data:`PARTS` is new at each call, everything else at each :data:`REDRAW_CALLS`-th."""
ROTATING = "rotating"
"""One of a few sets, at random."""

SMALL_BYTES = 256 << 20
"""Up to so many bytes a set is drawn anew for each call."""
PARTS = 64
REDRAW_CALLS = 16
_SPANS = 1 << 16
"""A tensor is renewed in about so many pieces: small enough to be everywhere, long enough to be copied fast."""
_ROOM = 8
"""A set is kept where so many fit into what is free: two of them, what drawing takes, and what judging takes."""
_LARGE_BYTES = 64 << 10
"""Below this a tensor changes only with the whole set."""
_FEWEST = 16
"""Elements in order are a coincidence where they are fewer."""
_LOOK = 4096
"""Elements that are looked at to find out how a tensor is built."""

Draw = Callable[[], List[Any]]


class InputSupply:
    """Hands out the inputs of one timed call after the other."""

    def __init__(self, reference: ReferenceModel, protocol: ProtocolSpec, dice: random.Random) -> None:
        self._reference = reference
        self._dice = dice
        self._drawn = 0
        self._sets = [self._draw() for _ in range(protocol.rotation)] if protocol.inputs == ROTATING else []
        self._first: Optional[List[Any]] = None if self._sets else self._draw()
        self._kept = (
            RefreshedInputs(self._first, self._draw, dice) if self._first and self._worth_keeping(self._first) else None
        )

    @property
    def kind(self) -> str:
        """What the record says of the inputs: :data:`FRESH`, :data:`FRESH_IN_PART` or :data:`ROTATING`."""
        if self._sets:
            return ROTATING
        return FRESH if self._kept is None else FRESH_IN_PART

    def next(self) -> List[Any]:
        """Inputs for one call; they may change once those of the next call are asked for."""
        if self._sets:
            return self._dice.choice(self._sets)
        if self._kept is not None:
            self._first = None
            return self._kept.renewed()
        inputs, self._first = self._first, None
        return self._draw() if inputs is None else inputs

    def _draw(self) -> List[Any]:
        self._drawn += 1
        return self._reference.draw(InputMode.STANDARD, "timed", self._drawn)

    def _worth_keeping(self, inputs: List[Any]) -> bool:
        nbytes = nbytes_of(tensors_in(inputs))
        roomy = nbytes > SMALL_BYTES and _has_room(self._reference.device, nbytes)
        return roomy and all(map(exchangeable, large_in(inputs)))


class RefreshedInputs:
    """A set of inputs, part of which is new each time."""

    def __init__(self, inputs: List[Any], draw: Draw, dice: random.Random) -> None:
        self._draw = draw
        self._dice = dice
        self._now: List[Any] = inputs
        self._next: List[Any] = draw()
        self._calls = 0
        self._places = self._shuffle()

    def renewed(self) -> List[Any]:
        """The set, with one more of its parts taken from the next one, or the next one when all that is planned is."""
        if self._calls == REDRAW_CALLS:
            self._turn()
        for place, now, then in zip(self._places, large_in(self._now), large_in(self._next)):
            chosen = place[self._calls * len(place) // PARTS : (self._calls + 1) * len(place) // PARTS]
            spans_of(now).index_copy_(0, chosen, spans_of(then).index_select(0, chosen))
        self._calls += 1
        return self._now

    def _turn(self) -> None:
        self._now, self._next = self._next, []  # the old set's memory goes before the new one needs it
        self._next = self._draw()
        self._calls = 0
        self._places = self._shuffle()

    def _shuffle(self) -> List[torch.Tensor]:
        """An order of every tensor's pieces that only the judge knows."""
        orders = []
        for tensor in large_in(self._now):
            generator = torch.Generator(tensor.device)
            generator.manual_seed(self._dice.getrandbits(63))
            orders.append(torch.randperm(len(spans_of(tensor)), device=tensor.device, generator=generator))
        return orders


def large_in(inputs: Any) -> List[torch.Tensor]:
    """Those of them that are renewed in part; small ones may say how the others are to be read."""
    return [tensor for tensor in tensors_in(inputs) if nbytes_of([tensor]) >= _LARGE_BYTES]


def spans_of(tensor: torch.Tensor) -> torch.Tensor:
    """A dense tensor's memory as rows of 64-bit words, about :data:`_SPANS` of them.

    Less than one row, and less than one word, may be left over at the end.
    """
    # Words, whatever the dtype: not every operator is there for the narrow floating ones.
    per_word = max(1, 8 // tensor.element_size())
    flat = tensor.as_strided((tensor.numel(),), (1,))
    words = flat[: tensor.numel() // per_word * per_word].view(torch.int64)
    length = max(1, len(words) // _SPANS)
    return words[: len(words) // length * length].view(-1, length)


def exchangeable(tensor: torch.Tensor) -> bool:
    """Whether part of ``tensor`` may be that of another draw, as far as a look at its first elements can tell.

    Not where it is ordered (boundaries) or symmetric, since it would not be so any more; and no integers that may name
    places, each of them once (a permutation, slots, pages) or as often as another tensor says.
    """
    is_built = _may_name_places(tensor) or _is_ordered(tensor) or _is_symmetric(tensor)
    return _is_dense(tensor) and not is_built


def _may_name_places(tensor: torch.Tensor) -> bool:
    """Whether it holds integers; those of 8 bits are too narrow to name places of anything large."""
    return not (tensor.is_floating_point() or tensor.is_complex()) and tensor.element_size() > 1


def _is_dense(tensor: torch.Tensor) -> bool:
    """Whether its elements fill a stretch of memory that begins at a whole word."""
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


def _has_room(device: str, nbytes: int) -> bool:
    if device != "cuda":
        return True
    free, _total = torch.cuda.mem_get_info()
    idle = torch.cuda.memory_reserved() - torch.cuda.memory_allocated()
    return bool(free + idle >= _ROOM * nbytes)
