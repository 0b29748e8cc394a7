"""A real Slurm, and a small matrix with a fleet file that names it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.baddays.field import PRELOADED, new_field
from tests.executors.engines.slurm_lab import missing_programs, slurm_lab
from tests.executors.fleet.faults import write_fleet
from tests.executors.fleet.slurm_faults import ENGINE


def pytest_collection_modifyitems(items):
    """Leave out what needs Slurm where there is none."""
    why = f"not installed: {', '.join(missing_programs())}" if missing_programs() else ""
    why = why or ("" if os.geteuid() == 0 else "the daemons need root")
    for item in items:
        if why and Path(__file__).parent in item.path.parents and "lab" in item.fixturenames:
            item.add_marker(pytest.mark.skip(reason=why))


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    """A cluster of two nodes."""
    with slurm_lab(tmp_path_factory.mktemp("slurm")) as running:
        yield running


@pytest.fixture
def field(tmp_path, lab):
    """A folder with a matrix and ``fleet.toml``, whose commands talk to the cluster."""
    with new_field(tmp_path, program=PRELOADED, environment=lab.environment) as made:
        write_fleet(made, ENGINE)
        made.call("--version")  # starts the process that commands are forked from, which takes seconds
        yield made
