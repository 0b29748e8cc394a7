"""Faults at random on a real Slurm: every cell ends with a record, and nothing is left."""

from __future__ import annotations

import pytest

from tests.executors.fleet.faults import FaultyRun, players, prepare
from tests.executors.fleet.slurm_faults import SlurmFaults

pytestmark = [pytest.mark.torch, pytest.mark.timeout(600)]


def test_every_cell_ends_with_a_record_and_nothing_is_left(field, lab):
    cluster = SlurmFaults(lab)
    prepare(field, cluster.engine, cells=40, seconds=0.5)
    FaultyRun(field, cluster, faults=5, seed=1).run()
    assert len({record["cell_id"] for record in field.records()}) == 40
    assert "0 cells to run" in field.call("run", "--fleet", "fleet.toml").stdout
    assert list((field.root / "workspace").rglob("chunk.json")) == []
    lab.wait_until(lambda: lab.call("squeue", "-h", "-p", "night").split() == [])
    lab.wait_until(lambda: players(field) == [])
