"""A fleet in virtual time: nodes of one GPU each, some of which die, under the real dispatcher."""

from __future__ import annotations

import heapq
import math
import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import count

from kernel_matrix.fleet.chunks import Chunk, PlacedCell, SlotKind
from kernel_matrix.fleet.dispatcher import Dispatcher

SLOT = SlotKind("cluster", "h200")
START_S = 5.0
"""From a chunk's start to its first cell."""
NOTICE_S = 30.0
"""From the death of a node until its engine says so."""


@dataclass
class SimulatedFleet:
    """Runs cells whose real times differ from the expected ones by a factor of about 1.3 either way."""

    nodes: int
    cells: Sequence[PlacedCell]
    dying: float = 0.0
    """Share of the nodes that die at a random time of the run, and stay dead."""
    slow: float = 0.0
    """Share of the nodes that take three times as long."""
    deadly: frozenset[str] = frozenset()
    """Cells that kill their chunk's process."""
    seed: int = 1
    records: Counter[str] = field(default_factory=Counter)
    """Cell → how often it was measured to its end."""
    ended_s: float = 0.0

    def __post_init__(self) -> None:
        rng = random.Random(self.seed)
        spread = 0.26
        self.real_s = {
            cell.id: cell.expected_s * rng.lognormvariate(-spread * spread / 2, spread) for cell in self.cells
        }
        ideal_s = sum(self.real_s.values()) / self.nodes
        chosen = rng.sample(range(self.nodes), int(self.nodes * (self.dying + self.slow)))
        dying = int(self.nodes * self.dying)
        self.dies_s = {node: rng.uniform(0, ideal_s) for node in chosen[:dying]}
        self.factor = dict.fromkeys(chosen[dying:], 3.0)
        self.dispatcher = Dispatcher(self.cells, {SLOT: self.nodes})
        self._events: list[tuple[float, int, str, int, int]] = []
        self._order = count()
        self._waiting: set[int] = set()
        self._chunks: dict[int, tuple[int, Chunk]] = {}

    def least_s(self) -> float:
        """The time below which no schedule could have ended: all cells, and nodes that work until they die."""
        total, low, high = sum(self.real_s.values()), 0.0, 1e9
        speeds = [(self.dies_s.get(node, math.inf), 1 / self.factor.get(node, 1.0)) for node in range(self.nodes)]
        while high - low > 1e-3:
            middle = (low + high) / 2
            done = sum(min(middle, dies) * speed for dies, speed in speeds)
            low, high = (middle, high) if done < total else (low, middle)
        return high

    def run(self) -> None:
        """Let the time pass until nothing is left to happen."""
        for node in range(self.nodes):
            self._at(0.0, "free", node)
        while self._events:
            now_s, _, what, one, other = heapq.heappop(self._events)
            getattr(self, f"_{what}")(now_s, one, other)

    def _at(self, when_s: float, what: str, one: int, other: int = 0) -> None:
        heapq.heappush(self._events, (when_s, next(self._order), what, one, other))

    def _is_dead(self, node: int, now_s: float) -> bool:
        return self.dies_s.get(node, math.inf) <= now_s

    def _free(self, now_s: float, node: int, _: int) -> None:
        if self._is_dead(node, now_s):
            return
        chunk = self.dispatcher.take(SLOT)
        if chunk is None:
            self._waiting.add(node)
            return
        self._chunks[chunk.number] = node, chunk
        self._at(now_s + START_S, "begin", chunk.number, 0)

    def _begin(self, now_s: float, number: int, place: int) -> None:
        """Begin a chunk's next cell that is still its own."""
        node, chunk = self._chunks[number]
        if self._is_dead(node, now_s):
            self._at(now_s + NOTICE_S, "lose", number)
            return
        withdrawn = self.dispatcher.withdrawn(number)
        while place < len(chunk.cells) and chunk.cells[place].id in withdrawn:
            place += 1
        if place == len(chunk.cells):
            self.dispatcher.ended(number, lost=False)
            self.ended_s = now_s
            self._at(now_s, "free", node)
            self._wake(now_s)
            return
        if chunk.cells[place].id in self.deadly:
            self._at(now_s + NOTICE_S, "lose", number)
            self._at(now_s + NOTICE_S, "free", node)
            return
        self._at(now_s + self.real_s[chunk.cells[place].id] * self.factor.get(node, 1.0), "record", number, place)

    def _record(self, now_s: float, number: int, place: int) -> None:
        node, chunk = self._chunks[number]
        if self._is_dead(node, now_s):
            self._at(now_s + NOTICE_S, "lose", number)
            return
        self.records[chunk.cells[place].id] += 1
        self.dispatcher.recorded([chunk.cells[place].id])
        self._begin(now_s, number, place + 1)

    def _lose(self, now_s: float, number: int, _: int) -> None:
        self.dispatcher.ended(number, lost=True)
        self._wake(now_s)

    def _wake(self, now_s: float) -> None:
        for node in self._waiting:
            self._at(now_s, "free", node)
        self._waiting.clear()


def some_cells(number: int, mean_s: float = 10.0, seed: int = 2) -> list[PlacedCell]:
    """Cells of sixteen to a problem, whose times differ as those of a suite do."""
    rng = random.Random(seed)
    return [
        PlacedCell(
            f"{n:032x}",
            mean_s * rng.lognormvariate(-0.32, 0.8),
            ("h200", "cu130"),
            (f"problem {n // 16}", "fp16"),
            frozenset({SLOT}),
        )
        for n in range(number)
    ]
