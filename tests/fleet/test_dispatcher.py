"""The dispatcher on simulated fleets: nothing is lost or doubled, and all GPUs end together."""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import groupby

from kernel_matrix.fleet.chunks import PlacedCell, SlotKind
from kernel_matrix.fleet.dispatcher import MOST_LOSSES, MOST_REFUSALS, Dispatcher
from tests.fleet.simulated import SimulatedFleet, some_cells

H200, L40S = SlotKind("cluster", "h200"), SlotKind("cluster", "l40s")


def cells_of(number, *, slots=frozenset({H200}), seconds=10.0, kind=("gpu", "cu130"), start=0):
    return [
        PlacedCell(f"{n:032x}", seconds, kind, (f"problem {n // 8}", "fp16"), slots)
        for n in range(start, start + number)
    ]


def test_what_few_gpus_can_run_comes_first():
    rare = cells_of(2, slots=frozenset({H200}), kind=("h200", "cu130"))
    common = cells_of(2, slots=frozenset({H200, L40S}), kind=("any", "cu130"), start=2)
    dispatcher = Dispatcher([*common, *rare], {H200: 1, L40S: 4})
    assert [cell.id for cell in dispatcher.take(H200).cells] == [cell.id for cell in rare]
    assert dispatcher.take(SlotKind("elsewhere", "h200")) is None


def test_chunk_has_one_kind_and_keeps_families_together():
    cells = cells_of(40)
    random.Random(1).shuffle(cells)
    chunk = Dispatcher(cells, {H200: 2}).take(H200)
    families = [cell.family for cell in chunk.cells]
    assert chunk.expected_s == 100
    assert len(set(families)) == len([family for family, _ in groupby(families)])


def test_lost_chunk_is_taken_again_without_what_has_records():
    dispatcher = Dispatcher(cells_of(6), {H200: 1})
    first = dispatcher.take(H200)
    dispatcher.recorded([first.cells[0].id])
    dispatcher.ended(first.number, lost=True)
    again = dispatcher.take(H200)
    assert [cell.id for cell in again.cells[:2]] == [cell.id for cell in first.cells[1:]]


def test_cell_that_kills_its_chunk_each_time_is_given_up():
    dispatcher = Dispatcher(cells_of(2), {H200: 1})
    for _ in range(MOST_LOSSES):
        chunk = dispatcher.take(H200)
        dispatcher.ended(chunk.number, lost=True)
    assert [cell.id for cell in dispatcher.given_up] == [chunk.cells[0].id]
    last = dispatcher.take(H200)
    dispatcher.recorded(cell.id for cell in last.cells)
    dispatcher.ended(last.number, lost=False)
    assert dispatcher.is_done


def test_cell_that_no_new_board_takes_avoids_the_others():
    (cell,) = cells_of(1)
    dispatcher = Dispatcher([replace(cell, moves=True)], {H200: 2})
    avoided = []
    for where in ("n1", "n2", "n1", ""):
        chunk = dispatcher.take(H200)
        avoided.append(chunk.avoid)
        dispatcher.ended(chunk.number, lost=False, where=where)
    assert avoided == [set(), {"n1"}, {"n1", "n2"}, set()]


def test_search_for_a_new_board_ends():
    fixed, moves = cells_of(2)
    dispatcher = Dispatcher([fixed, replace(moves, moves=True)], {H200: 2})
    for number in range(MOST_REFUSALS):
        chunk = dispatcher.take(H200)
        while moves.id not in {cell.id for cell in chunk.cells}:
            chunk = dispatcher.take(H200)
        dispatcher.ended(chunk.number, lost=False, where=f"n{number}")
    assert [cell.id for cell in dispatcher.without_unit] == [moves.id]
    assert not dispatcher.is_done


def test_free_gpu_takes_over_what_a_slow_chunk_has_not_begun():
    dispatcher = Dispatcher(cells_of(10, seconds=60.0), {H200: 1})
    slow = dispatcher.take(H200)
    while (rest := dispatcher.take(H200)) is not None and not dispatcher.withdrawn(slow.number):
        dispatcher.recorded(cell.id for cell in rest.cells)
        dispatcher.ended(rest.number, lost=False)
    assert [cell.id for cell in rest.cells] == list(dispatcher.withdrawn(slow.number))[::-1]
    assert slow.cells[0] not in rest.cells
    assert 0 < rest.expected_s <= slow.expected_s / 2
    dispatcher.recorded(cell.id for cell in slow.cells)
    dispatcher.ended(slow.number, lost=False)
    dispatcher.ended(rest.number, lost=False)  # what it had was measured by the slow one after all
    assert dispatcher.is_done


def test_nothing_is_lost_or_doubled_when_nodes_die():
    fleet = SimulatedFleet(nodes=40, cells=some_cells(10_000), dying=0.2)
    fleet.run()
    assert set(fleet.records) == {cell.id for cell in fleet.cells}
    assert set(fleet.records.values()) == {1}
    assert fleet.dispatcher.is_done
    assert fleet.dispatcher.given_up == []
    assert fleet.ended_s <= 1.1 * fleet.least_s()


def test_slow_nodes_do_not_hold_up_the_end():
    fleet = SimulatedFleet(nodes=40, cells=some_cells(10_000), slow=0.1)
    fleet.run()
    assert len(fleet.records) == 10_000
    assert fleet.ended_s <= 1.2 * fleet.least_s()


def test_deadly_cells_are_given_up_and_cost_no_other():
    cells = some_cells(2000)
    deadly = frozenset(cell.id for cell in cells[::400])
    fleet = SimulatedFleet(nodes=20, cells=cells, deadly=deadly)
    fleet.run()
    assert {cell.id for cell in fleet.dispatcher.given_up} == deadly
    assert len(fleet.dispatcher.given_up) == len(deadly)
    assert set(fleet.records) == {cell.id for cell in cells} - deadly
    assert set(fleet.records.values()) == {1}
    assert fleet.dispatcher.is_done


def test_deadly_cells_are_given_up_where_nodes_die_too():
    cells = some_cells(2000)
    deadly = frozenset(cell.id for cell in cells[::400])
    fleet = SimulatedFleet(nodes=20, cells=cells, deadly=deadly, dying=0.2)
    fleet.run()
    assert {cell.id for cell in fleet.dispatcher.given_up} >= deadly
    assert set(fleet.records) == {cell.id for cell in cells} - {cell.id for cell in fleet.dispatcher.given_up}
    assert fleet.dispatcher.is_done


def test_losses_at_different_cells_give_nothing_up():
    dispatcher = Dispatcher(cells_of(4 * MOST_LOSSES), {H200: 1})
    for _ in range(2 * MOST_LOSSES):
        chunk = dispatcher.take(H200)
        dispatcher.recorded([chunk.cells[0].id])
        dispatcher.ended(chunk.number, lost=True)
    assert dispatcher.given_up == []


def test_chunks_that_end_by_themselves_give_nothing_up():
    dispatcher = Dispatcher(cells_of(2), {H200: 1})
    for _ in range(2 * MOST_LOSSES):
        dispatcher.ended(dispatcher.take(H200).number, lost=False)
    assert dispatcher.given_up == []
    assert not dispatcher.is_done


def test_cells_of_a_resumed_chunk_that_is_lost_are_taken_again():
    cells = cells_of(3)
    dispatcher = Dispatcher(cells, {H200: 1}, held={cell.id: "left" for cell in cells})
    assert dispatcher.take(H200) is None
    resumed = dispatcher.resume("left", H200)
    assert list(resumed.cells) == cells
    dispatcher.recorded([cells[0].id])
    dispatcher.ended(resumed.number, lost=True)
    assert dispatcher.take(H200).cells == (cells[1], cells[2])


def test_resumed_chunk_without_cells_ends():
    dispatcher = Dispatcher(cells_of(1), {H200: 1})
    resumed = dispatcher.resume("unreadable", SlotKind("cluster", ""))
    dispatcher.ended(resumed.number, lost=True)
    assert dispatcher.has_work_for([H200])
    assert dispatcher.given_up == []
