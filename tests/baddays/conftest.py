"""What the bad days share."""

from __future__ import annotations

import pytest

from tests.baddays.field import new_field

SANDBOXES = [
    *(pytest.param(name, marks=pytest.mark.docker) for name in ("docker", "unpacked")),
    pytest.param("process", marks=pytest.mark.torch),
]


def images_for(sandbox, request):
    """Return the arguments of :func:`new_field` with which the sandbox has the image that it runs."""
    if sandbox == "process":
        return {}
    environment = request.getfixturevalue("unpacked_cpu") if sandbox == "unpacked" else None
    return {"lock": request.getfixturevalue("cpu_lock"), "environment": environment}


@pytest.fixture(params=SANDBOXES)
def sandbox(request):
    """Every sandbox's name in turn."""
    return request.param


@pytest.fixture
def world(request, tmp_path, sandbox):
    """A field for that sandbox."""
    with new_field(tmp_path, **images_for(sandbox, request)) as made:
        yield made
