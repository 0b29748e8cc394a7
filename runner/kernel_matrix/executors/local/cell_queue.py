"""The cells of a run that no lane has taken yet, and those that may come back."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterable, Sequence

from kernel_matrix.plan import Cell, devices_matching
from kernel_matrix.platforms import Gpu


class CellQueue:
    """Hands out cells, in their order, to the lanes of ``gpus``. Safe to share between threads."""

    def __init__(self, cells: Sequence[Cell], gpus: tuple[Gpu, ...]) -> None:
        self._cells = list(cells)
        self._gpus = gpus
        self._running: dict[str, Cell] = {}
        """UUID of a lane's device → the cell it runs now."""
        self._closed: set[str] = set()
        """UUIDs of devices whose lane takes nothing any more."""
        self._promised: dict[str, list[Cell]] = {}
        """UUID of a lane's device → the cells that it takes next, see :meth:`promise`."""
        self._called_off = False
        self._changed = threading.Condition()

    def devices(self) -> list[Gpu]:
        """Devices that at least one cell can run on."""
        axes = {cell.gpu.name: cell.gpu for cell in self._cells}.values()
        return list({gpu.uuid: gpu for axis in axes for gpu in devices_matching(axis, self._gpus)}.values())

    def take(self, gpu: Gpu, is_ready: Callable[[Cell], bool]) -> Cell | None:
        """The next cell for ``gpu`` that is ready; waits while one may still become ready, or come back."""
        with self._changed:
            while not self._called_off:
                mine = [cell for cell in self._cells if self._fits(cell, gpu)]
                ready = [cell for cell in mine if is_ready(cell)]
                if ready:
                    # Where everything is promised to others, what they would come to last.
                    cell = next(iter(self._chosen(gpu, ready)), ready[-1])
                    self._cells.remove(cell)
                    self._promised[gpu.uuid] = [other for other in self._promised.get(gpu.uuid, ()) if other != cell]
                    self._running[gpu.uuid] = cell
                    return cell
                # A cell that another lane runs comes back when that lane's GPU is quarantined.
                if not mine and not any(self._fits(cell, gpu) for cell in self._running.values()):
                    return None
                self._changed.wait()
        return None

    def promise(self, gpu: Gpu, count: int, is_ready: Callable[[Cell], bool]) -> Sequence[Cell]:
        """The next ``count`` cells of ``gpu``, which other lanes leave to it while they have any other.

        Fewer where it would have to wait, or where they are more than its share of what is left.
        """
        with self._changed:
            ready = [cell for cell in self._cells if self._fits(cell, gpu) and is_ready(cell)]
            share = math.ceil(len(ready) / max(1, self._takers(ready)))
            self._promised[gpu.uuid] = self._chosen(gpu, ready)[: min(count, share)]
            return tuple(self._promised[gpu.uuid])

    def put_down(self, gpu: Gpu) -> None:
        """The cell of this lane does not come back."""
        with self._changed:
            self._running.pop(gpu.uuid, None)
            self._changed.notify_all()

    def hand_on(self, gpu: Gpu, tell: Callable[[], None]) -> bool:
        """Leave the cell of ``gpu``'s lane to the others; false when none of them is left to take it.

        :param tell: called before any of them can have taken it.
        """
        with self._changed:
            cell = self._running[gpu.uuid]
            if all(other.uuid in self._closed for other in devices_matching(cell.gpu, self._gpus)):
                return False
            tell()
            del self._running[gpu.uuid]
            self._cells.insert(0, cell)
            self._changed.notify_all()
        return True

    def bar(self, gpu: Gpu) -> None:
        """The lane of ``gpu`` takes nothing any more, though it still has a cell."""
        with self._changed:
            self._closed.add(gpu.uuid)
            self._promised.pop(gpu.uuid, None)

    def close(self, gpu: Gpu) -> None:
        """The lane of ``gpu`` has ended; whoever waits for its cell need not wait."""
        with self._changed:
            self._closed.add(gpu.uuid)
            self._promised.pop(gpu.uuid, None)
            self._running.pop(gpu.uuid, None)
            self._changed.notify_all()

    def call_off(self) -> None:
        """Nothing is handed out any more."""
        with self._changed:
            self._called_off = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Some cell may have become ready."""
        with self._changed:
            self._changed.notify_all()

    def _chosen(self, gpu: Gpu, ready: Iterable[Cell]) -> list[Cell]:
        """Of ``ready``, the cells promised to ``gpu``, then those that are promised to nobody."""
        others = {cell.id for uuid, cells in self._promised.items() if uuid != gpu.uuid for cell in cells}
        own = {cell.id for cell in self._promised.get(gpu.uuid, ())}
        free = [cell for cell in ready if cell.id not in others]
        return sorted(free, key=lambda cell: cell.id not in own)

    def _takers(self, cells: Sequence[Cell]) -> int:
        """How many lanes may still take one of ``cells``."""
        lanes = (gpu for gpu in self._gpus if gpu.uuid not in self._closed)
        return sum(any(self._fits(cell, gpu) for cell in cells) for gpu in lanes)

    def _fits(self, cell: Cell, gpu: Gpu) -> bool:
        return gpu in devices_matching(cell.gpu, self._gpus)
