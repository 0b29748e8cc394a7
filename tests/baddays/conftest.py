"""What the bad days share."""

from __future__ import annotations

import pytest

from tests.baddays.field import new_field

LOCKS = {"docker": "cpu_lock", "unpacked": "unpacked_cpu_lock"}
"""Sandbox → fixture with the lock of the image that it runs."""


SANDBOXES = [
    *(pytest.param(name, marks=pytest.mark.docker) for name in LOCKS),
    pytest.param("process", marks=pytest.mark.torch),
]


@pytest.fixture(params=SANDBOXES)
def sandbox(request):
    """Every sandbox's name in turn."""
    return request.param


@pytest.fixture
def world(request, tmp_path, sandbox):
    """A field for that sandbox."""
    lock = request.getfixturevalue(LOCKS[sandbox]) if sandbox in LOCKS else None
    with new_field(tmp_path, lock) as made:
        yield made
