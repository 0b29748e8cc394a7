"""Queue of the cells that no lane has taken yet, and of those that may be returned."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from kernel_matrix.plan import Cell, groups_matching, linked_by
from kernel_matrix.platforms import Gpu


class CellQueue:
    """Queue that hands out cells, in order, to the lanes of ``gpus``. Safe to share between threads.

    Args:
        cells: Cells to hand out.
        gpus: Devices of this host.
        measured_on: Cell id → UUIDs of devices that do not get it.
        is_open: More cells may come by :meth:`add`, until :meth:`end`.
    """

    def __init__(
        self,
        cells: Sequence[Cell],
        gpus: tuple[Gpu, ...],
        measured_on: Mapping[str, Collection[str]] | None = None,
        *,
        is_open: bool = False,
    ) -> None:
        self._cells = list(cells)
        self._gpus = gpus
        self._measured_on = measured_on or {}
        self._is_open = is_open
        self._running: dict[str, Cell] = {}
        """UUID of a lane's device → its present cell."""
        self._closed: set[str] = set()
        """UUIDs of devices whose lanes take no more cells."""
        self._reserved: dict[str, list[Cell]] = {}
        """UUID of a lane's device → its next cells; see :meth:`reserve`."""
        self._called_off = False
        self._changed = threading.Condition()

    def add(self, cells: Sequence[Cell]) -> None:
        """Hand out these cells, too."""
        with self._changed:
            self._cells += cells
            self._changed.notify_all()

    def end(self) -> None:
        """Say that no more cells come: lanes end once all are done."""
        with self._changed:
            self._is_open = False
            self._changed.notify_all()

    def devices(self) -> list[Gpu]:
        """Return the devices and groups that at least one cell can run on; all devices while more cells may come."""
        if self._is_open:
            return list(self._gpus)
        return list({gpu.uuid: gpu for cell in self._cells for gpu in self._devices_of(cell)}.values())

    def take(self, gpu: Gpu, is_ready: Callable[[Cell], bool]) -> Cell | None:
        """Return the next ready cell for ``gpu``; wait while one may still become ready or be returned."""
        with self._changed:
            while not self._called_off:
                mine = [cell for cell in self._cells if self._fits(cell, gpu)]
                ready = [cell for cell in mine if is_ready(cell)]
                if ready:
                    # If all ready cells are reserved for other lanes, take the one that they would reach last.
                    cell = next(iter(self._choose(gpu, ready)), ready[-1])
                    self._cells.remove(cell)
                    self._reserved[gpu.uuid] = [other for other in self._reserved.get(gpu.uuid, ()) if other != cell]
                    self._running[gpu.uuid] = cell
                    return cell
                # A cell of another lane is returned if that lane's GPU is quarantined.
                if not self._is_open and not mine and not any(self._fits(cell, gpu) for cell in self._running.values()):
                    return None
                self._changed.wait()
        return None

    def has_ready(self, gpu: Gpu, is_ready: Callable[[Cell], bool]) -> bool:
        """Return True if :meth:`take` would not have to wait."""
        with self._changed:
            return self._has_ready(gpu, is_ready)

    def stays_empty(self, gpu: Gpu, is_ready: Callable[[Cell], bool], wait_s: float) -> bool:
        """Return True if nothing is ready for ``gpu`` after ``wait_s`` seconds, and more cells may come."""

        def is_settled() -> bool:
            return self._called_off or not self._is_open or self._has_ready(gpu, is_ready)

        with self._changed:
            return not self._changed.wait_for(is_settled, wait_s)

    def reserve(self, gpu: Gpu, count: int, is_ready: Callable[[Cell], bool]) -> Sequence[Cell]:
        """Return the next ``count`` cells of ``gpu``, which other lanes leave to it while they have any other.

        There are fewer if it would have to wait, or if they exceed its share of the remaining cells.
        """
        with self._changed:
            ready = [cell for cell in self._cells if self._fits(cell, gpu) and is_ready(cell)]
            share = math.ceil(len(ready) / max(1, self._count_takers(ready)))
            self._reserved[gpu.uuid] = self._choose(gpu, ready)[: min(count, share)]
            return tuple(self._reserved[gpu.uuid])

    def finish(self, gpu: Gpu) -> None:
        """Mark the cell of this lane as finished: it will not be returned."""
        with self._changed:
            self._running.pop(gpu.uuid, None)
            self._changed.notify_all()

    def give_back(self, gpu: Gpu, tell: Callable[[], None]) -> bool:
        """Return the cell of ``gpu``'s lane to the others; ``False`` if no other lane can take it.

        Args:
            gpu: Device of the lane.
            tell: Function called before another lane can take the cell.
        """
        with self._changed:
            cell = self._running[gpu.uuid]
            if all(other.uuid in self._closed for other in self._devices_of(cell)):
                return False
            tell()
            del self._running[gpu.uuid]
            self._cells.insert(0, cell)
            self._changed.notify_all()
        return True

    def retire(self, gpu: Gpu) -> None:
        """Stop giving cells to the lane of ``gpu``, though it still has one."""
        with self._changed:
            self._closed.add(gpu.uuid)
            self._reserved.pop(gpu.uuid, None)

    def close(self, gpu: Gpu) -> None:
        """Mark the lane of ``gpu`` as ended, so that other lanes stop waiting for its cell."""
        with self._changed:
            self._closed.add(gpu.uuid)
            self._reserved.pop(gpu.uuid, None)
            self._running.pop(gpu.uuid, None)
            self._changed.notify_all()

    def cancel(self) -> None:
        """Stop handing out cells."""
        with self._changed:
            self._called_off = True
            self._changed.notify_all()

    def wake(self) -> None:
        """Wake the waiting lanes, because a cell may have become ready."""
        with self._changed:
            self._changed.notify_all()

    def _has_ready(self, gpu: Gpu, is_ready: Callable[[Cell], bool]) -> bool:
        return any(self._fits(cell, gpu) and is_ready(cell) for cell in self._cells)

    def _choose(self, gpu: Gpu, ready: Iterable[Cell]) -> list[Cell]:
        """Return those of ``ready`` reserved for ``gpu``, then those not reserved for any lane."""
        others = {cell.id for uuid, cells in self._reserved.items() if uuid != gpu.uuid for cell in cells}
        own = {cell.id for cell in self._reserved.get(gpu.uuid, ())}
        free = [cell for cell in ready if cell.id not in others]
        return sorted(free, key=lambda cell: cell.id not in own)

    def _count_takers(self, cells: Sequence[Cell]) -> int:
        """Return the number of lanes that may still take one of ``cells``."""
        lanes = (gpu for gpu in self._gpus if gpu.uuid not in self._closed)
        return sum(any(self._fits(cell, gpu) for cell in cells) for gpu in lanes)

    def _fits(self, cell: Cell, gpu: Gpu) -> bool:
        return gpu in self._devices_of(cell)

    def _devices_of(self, cell: Cell) -> Sequence[Gpu]:
        measured_on = set(self._measured_on.get(cell.id, ()))
        fitting = groups_matching(cell.gpu, self._gpus, cell.problem.ranks)
        if linked_by(fitting) != cell.link:  # the cell's id is that of results over another kind of link
            return []
        return [gpu for gpu in fitting if measured_on.isdisjoint(one.uuid for one in (gpu, *gpu.members))]
