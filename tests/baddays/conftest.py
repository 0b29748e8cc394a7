"""What the bad days share."""

from __future__ import annotations

import pytest

from tests.baddays.field import new_field


@pytest.fixture(
    params=[pytest.param("docker", marks=pytest.mark.docker), pytest.param("process", marks=pytest.mark.torch)]
)
def engine(request):
    """Either engine's name."""
    return request.param


@pytest.fixture
def world(request, tmp_path, engine):
    """A field for that engine."""
    lock = request.getfixturevalue("cpu_lock") if engine == "docker" else None
    with new_field(tmp_path, lock) as made:
        yield made
