"""Which cells run where and when: longest first, in chunks that shrink towards the end, and again where one was lost.

A free GPU asks for a chunk; nothing is assigned ahead. While much is left, a chunk takes fifteen minutes, so that
builds and processes that are started ahead are shared. Towards the end a chunk is the GPU's share of half of what is
left, so that all GPUs end together (guided self-scheduling: Polychronopoulos and Kuck, *IEEE Transactions on Computers*
C-36, 1987). When nothing is left to take, a free GPU takes over cells that a slow chunk has not begun.
"""

from __future__ import annotations

import math
from collections import Counter, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Final

from kernel_matrix.fleet.chunks import Chunk, PlacedCell, SlotKind

LONGEST_CHUNK_S: Final = 900.0
"""Between ten minutes, below which starting costs too much, and twenty, above which a lost chunk hurts."""
SHORTEST_CHUNK_S: Final = 30.0
"""Some times what starting a runner takes."""
MOST_LOSSES: Final = 3
"""How often chunks may be lost at one cell before it is given up: by then the cell is likely to be the cause."""

MOST_REFUSALS: Final = 8
"""How often a board may not take a cell that it has measured before, until the search for another one ends."""


class Dispatcher:
    """The cells of a run that have no record yet, and who has them.

    Args:
        cells: The cells, in any order.
        units: GPUs of each kind that may be used at the same time.
        held: Cell id → name of the chunk that has it, of an earlier run whose jobs go on; :meth:`resume` takes them.
    """

    def __init__(
        self, cells: Iterable[PlacedCell], units: Mapping[SlotKind, int], held: Mapping[str, str] | None = None
    ) -> None:
        self._units = dict(units)
        self._held: dict[str, list[PlacedCell]] = {}
        self._lots = _sorted_into_lots(self._without_held(cells, held or {}))
        self._running: dict[int, _Running] = {}
        self._holder: dict[str, int] = {}
        self._numbers = count(1)
        self._losses: Counter[str] = Counter()
        self.given_up: list[PlacedCell] = []
        """Cells at which too many chunks were lost; nothing tries them again."""
        self.too_late: list[PlacedCell] = []
        """Cells that no chunk could end before the deadline; nothing tries them again."""
        self.without_unit: list[PlacedCell] = []
        """Cells for which no board was found that has not measured them; nothing tries them again."""
        self._refusals: Counter[str] = Counter()

    @property
    def is_done(self) -> bool:
        """True if every cell has a record or was given up."""
        return not self._running and not any(lot.families for lot in self._lots.values())

    def has_work_for(self, slots: Collection[SlotKind]) -> bool:
        """Return whether a cell waits that GPUs of one of ``slots`` can run."""
        return any(lot.families and not lot.slots.isdisjoint(slots) for lot in self._lots.values())

    def take(self, slot: SlotKind, *, room_s: float = math.inf) -> Chunk | None:
        """Return a chunk for a free GPU of ``slot``; None if there is nothing for it now.

        Args:
            slot: The GPU's kind.
            room_s: Time until the deadline, seconds; cells that are expected to take longer are given up.
        """
        # What few GPUs can run comes first: the others have more to choose from.
        while waiting := [lot for lot in self._lots.values() if slot in lot.slots and lot.families]:
            lot = min(waiting, key=lambda one: (self._units_for(one.slots), -one.left_s))
            share_s = lot.left_s / (2 * self._units_for(lot.slots))
            taken, too_late = lot.take(min(LONGEST_CHUNK_S, max(SHORTEST_CHUNK_S, share_s)), room_s)
            self.too_late += too_late
            if taken:
                return self._begun(slot, taken)
        return self._take_over(slot, room_s)

    def resume(self, name: str, slot: SlotKind) -> Chunk:
        """Return the chunk of an earlier run, with those of its cells that still have no record."""
        return self._begun(slot, self._held.pop(name, []))

    def recorded(self, ids: Iterable[str]) -> None:
        """Note that cells have records, whichever chunk they came from."""
        for id_ in ids:
            holder = self._holder.pop(id_, None)
            if holder is not None:
                self._running[holder].remove(id_)

    def withdrawn(self, number: int) -> Sequence[str]:
        """List the cells that others have now and the chunk should leave out."""
        return tuple(self._running[number].withdrawn)

    def newly_withdrawn(self) -> Iterator[tuple[int, Sequence[str]]]:
        """Yield the number and the withdrawn cells of each chunk that has more of them than at the last call."""
        for number, running in self._running.items():
            if running.told < len(running.withdrawn):
                running.told = len(running.withdrawn)
                yield number, tuple(running.withdrawn)

    def ended(self, number: int, *, lost: bool, where: str | None = None) -> PlacedCell | None:
        """Note that a chunk's process is gone; cells without a record are for others to take.

        Args:
            number: The chunk's.
            lost: It did not end by itself: what it measured then may be the cause, and is not tried for ever.
            where: Node or board on which it ended by itself, which cells that move avoid next; empty if nobody knows,
                or if it found no place that it does not avoid.

        Returns:
            What it measured then; None if all its cells have records or others have them.
        """
        left = list(self._running.pop(number).left.values())
        measured = left[0] if left else None
        for cell in left:
            del self._holder[cell.id]
        if lost and left:
            self._losses[left[0].id] += 1
            if self._losses[left[0].id] >= MOST_LOSSES:
                self.given_up.append(left.pop(0))
        for family in _families(self._moved(left, where)):
            _put(self._lots, family)
        return measured

    def _moved(self, cells: Iterable[PlacedCell], where: str | None) -> Iterator[PlacedCell]:
        """Yield the cells to send again; those that move go elsewhere."""
        for cell in cells:
            if where is None or not cell.moves:
                yield cell
                continue
            self._refusals[cell.id] += 1
            if self._refusals[cell.id] >= MOST_REFUSALS:
                self.without_unit.append(cell)
            else:
                # Where even what was avoided came again, or nothing else, every place may try once more.
                is_new = where and where not in cell.avoid
                yield replace(cell, avoid=cell.avoid | {where} if is_new else frozenset())

    def _without_held(self, cells: Iterable[PlacedCell], held: Mapping[str, str]) -> Iterator[PlacedCell]:
        for cell in cells:
            if cell.id in held:
                self._held.setdefault(held[cell.id], []).append(cell)
            else:
                yield cell

    def _units_for(self, slots: Iterable[SlotKind]) -> int:
        return max(1, sum(self._units.get(slot, 0) for slot in slots))

    def _begun(self, slot: SlotKind, cells: Sequence[PlacedCell]) -> Chunk:
        chunk = Chunk(number=next(self._numbers), slot=slot, cells=tuple(cells))
        self._running[chunk.number] = _Running({cell.id: cell for cell in cells}, chunk.expected_s)
        self._holder.update((cell.id, chunk.number) for cell in cells)
        return chunk

    def _take_over(self, slot: SlotKind, room_s: float) -> Chunk | None:
        """Return the later half of what the chunk with the most left has not begun."""
        slowest = max(
            (one for one in self._running.values() if one.left and slot in next(iter(one.left.values())).slots),
            key=lambda one: one.left_s,
            default=None,
        )
        if slowest is None or slowest.left_s < 2 * SHORTEST_CHUNK_S:
            return None
        taken: list[PlacedCell] = []
        room_s = min(room_s, slowest.left_s / 2)
        for cell in list(slowest.left.values())[:0:-1]:  # the first one is being measured
            room_s -= cell.expected_s
            if room_s < 0:
                break
            taken.append(cell)
        if not taken:
            return None
        for cell in taken:
            slowest.remove(cell.id)
            slowest.withdrawn.append(cell.id)
        return self._begun(slot, taken[::-1])


@dataclass(slots=True)
class _Running:
    left: dict[str, PlacedCell]
    """Cells without a record, in their order."""
    left_s: float
    """Their expected time."""
    withdrawn: list[str] = field(default_factory=list)
    told: int = 0
    """How many of them :meth:`Dispatcher.newly_withdrawn` has yielded."""

    def remove(self, id_: str) -> None:
        """Remove a cell that another chunk has, or that has a record."""
        self.left_s -= self.left.pop(id_).expected_s


@dataclass(slots=True)
class _Lot:
    """Waiting cells of one kind and set of slots; a chunk takes cells of one lot."""

    slots: frozenset[SlotKind]
    families: deque[deque[PlacedCell]] = field(default_factory=deque)
    """Cells that share a judge; the family with the longest cell is first, and so within each."""
    left_s: float = 0.0

    def put(self, family: Sequence[PlacedCell]) -> None:
        """Add cells in front, since they have waited longest."""
        self.families.appendleft(deque(family))
        self.left_s += sum(cell.expected_s for cell in family)

    def take(self, size_s: float, room_s: float) -> tuple[list[PlacedCell], list[PlacedCell]]:
        """Remove and return cells of about ``size_s`` seconds, and those met that take longer than ``room_s``."""
        taken: list[PlacedCell] = []
        too_late: list[PlacedCell] = []
        left_s = room_s
        while self.families and size_s > 0:
            cell = self.families[0][0]
            is_too_late = cell.expected_s > room_s
            if cell.expected_s > left_s and not is_too_late:
                break
            self.families[0].popleft()
            self.left_s -= cell.expected_s
            if not self.families[0]:
                self.families.popleft()
            if is_too_late:
                too_late.append(cell)
                continue
            taken.append(cell)
            size_s, left_s = size_s - cell.expected_s, left_s - cell.expected_s
        return taken, too_late


_LotKey = tuple[tuple[str, str], frozenset[SlotKind], frozenset[str]]


def _sorted_into_lots(cells: Iterable[PlacedCell]) -> dict[_LotKey, _Lot]:
    """Return the lots by kind and slots of their cells, longest cells first."""
    lots: dict[_LotKey, _Lot] = {}
    for family in _families(sorted(cells, key=lambda cell: -cell.expected_s))[::-1]:
        _put(lots, family)
    return lots


def _put(lots: dict[_LotKey, _Lot], family: Sequence[PlacedCell]) -> None:
    one = family[0]
    lots.setdefault((one.kind, one.slots, one.avoid), _Lot(one.slots)).put(family)


def _families(cells: Iterable[PlacedCell]) -> list[list[PlacedCell]]:
    """Group cells that share a judge, in the order of each group's first cell."""
    found: dict[tuple[object, ...], list[PlacedCell]] = {}
    for cell in cells:
        found.setdefault((*cell.kind, *cell.family, cell.slots, cell.avoid), []).append(cell)
    return list(found.values())
