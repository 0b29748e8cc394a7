"""What the bad days share."""

from __future__ import annotations

import pytest

from tests.baddays.field import new_field


@pytest.fixture(
    params=[pytest.param("docker", marks=pytest.mark.docker), pytest.param("process", marks=pytest.mark.torch)]
)
def sandbox(request):
    """Either sandbox's name."""
    return request.param


@pytest.fixture
def world(request, tmp_path, sandbox):
    """A field for that sandbox."""
    lock = request.getfixturevalue("cpu_lock") if sandbox == "docker" else None
    with new_field(tmp_path, lock) as made:
        yield made
