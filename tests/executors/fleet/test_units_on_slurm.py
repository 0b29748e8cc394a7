"""Several boards that measure each cell, on a real Slurm whose two nodes stand for boards."""

from __future__ import annotations

import sys
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from kernel_matrix.executors.fleet.fleet_run import FleetOrder, FleetRun, FleetSites
from kernel_matrix.executors.local import UnitsLeft
from kernel_matrix.executors.run_policy import RunPolicy
from kernel_matrix.executors.unit_passes import UnitPasses
from kernel_matrix.fleet import Fleet, Site
from kernel_matrix.fleet.chunks import SlotKind
from kernel_matrix.results.store import RecordStore
from tests.baddays.field import ROOT
from tests.executors.fleet.faults import PLAYER
from tests.executors.fleet.planned import cpu_cells

NODE = SlotKind("lab", "cpu")


@pytest.fixture
def measure(tmp_path, lab, monkeypatch):
    """Lets a number of boards measure each of some cells; returns the run, and how often each board measured a cell."""
    monkeypatch.setenv("SLURM_CONF", lab.environment["SLURM_CONF"])
    start = ("env", f"PYTHONPATH={ROOT / 'runner'}:{ROOT}", sys.executable, str(PLAYER), "0.1")
    options = {"partition": "night", "cpus": 1}
    site = Site(
        name="lab", engine="slurm", sandbox="process", workspace=tmp_path, gpus=("cpu",), command=start, options=options
    )
    fleet = Fleet(path=tmp_path / "fleet.toml", sites=(site,))

    def measured(cells, boards):
        store = RecordStore(tmp_path / "home")
        slots = {cell.id: frozenset({NODE}) for cell in cells}
        sites = FleetSites(FleetOrder(fleet=fleet, matrix=tmp_path / "m.toml", lock=None, slots=slots), store)
        wanted = {cell.id: UnitsLeft(boards) for cell in cells}
        policy = RunPolicy(run_id="run-1")
        run = UnitPasses(partial(FleetRun, sites), cells, wanted, survey=None, store=store, policy=policy)
        with run.running() as events:
            for _ in events:
                pass
        records = [store.load(path) for path in store.records.glob("*.json")]
        return run, Counter((record.cell_id, record.host.device["uuid"]) for record in records)

    return measured


def with_units(cells, units):
    return [replace(cell, gpu=replace(cell.gpu, units=units)) for cell in cells]


def test_two_boards_measure_each_cell_once(measure):
    cells = with_units(cpu_cells(6), 2)
    run, boards = measure(cells, 2)
    assert boards == dict.fromkeys(((cell.id, node) for cell in cells for node in ("h1", "l1")), 1)
    assert (run.planned, run.left) == (12, 0)


def test_board_that_is_not_there_is_looked_for_and_told(measure):
    (cell,) = with_units(cpu_cells(1), 3)
    run, boards = measure([cell], 3)
    assert set(boards.values()) == {1}
    assert (len(boards), run.left) == (2, 1)
