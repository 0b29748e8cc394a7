"""A doctor's clinic on a simulated driver, and a daemon for it to ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from sim.board import Board
from sim.nvml import SimulatedDriver

from tests.hosts.doctor.clinic import Clinic
from tests.hosts.doctor.daemon import INFO, answering


@pytest.fixture
def gpu_clinic(clinic: Clinic, driver: SimulatedDriver) -> Clinic:
    """On the simulated driver's GPUs."""
    return Clinic(clinic.root, driver.environment)


@pytest.fixture
def board_clinic(clinic: Clinic, board: Board) -> Clinic:
    """On a simulated GPU of each vendor in turn."""
    return Clinic(clinic.root, board.driver.environment)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Starts a daemon that says of itself what the test changes of a usual one; gives its ``DOCKER_HOST``."""
    with ExitStack() as stack:
        yield lambda api="1.52", **info: stack.enter_context(answering(tmp_path, {**INFO, **info}, api=api))
