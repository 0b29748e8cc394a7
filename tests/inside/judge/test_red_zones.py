"""Red zones: every byte written around the tensors of an arena is found, and nothing else."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.judge.red_zones import RedZones
from kernel_matrix.inside.memory import guards, lay_out

pytestmark = pytest.mark.torch

TENSORS = [torch.zeros(5), torch.empty(0), torch.zeros(300, dtype=torch.int8)]
SPECS, NBYTES = lay_out(TENSORS)


@pytest.fixture
def arena():
    return torch.full((NBYTES,), 255, dtype=torch.uint8)


@pytest.fixture
def zones(arena):
    zones = RedZones(arena, SPECS, "output")
    zones.fill()
    return zones


def test_red_zones_do_not_cover_the_tensors(arena, zones):
    for spec in SPECS:
        view = spec.view(arena)
        assert bool((view.reshape(-1).view(torch.uint8) == 255).all())
        view.fill_(1)
    assert zones.damage() == ""


FIRST_AND_LAST = [place for start, stop in guards(SPECS, NBYTES) for place in (start, stop - 1)]


@pytest.mark.parametrize("place", FIRST_AND_LAST)
def test_one_byte_around_them_is_found(place, arena, zones):
    arena[place] += 1
    assert zones.damage().startswith("1 bytes of the memory around the outputs were written to, first ")


@pytest.mark.parametrize(
    ("zone", "words"), list(enumerate(["before output 0", "behind output 0", "behind output 1", "behind output 2"]))
)
def test_where_it_was_is_said(zone, words, arena, zones):
    start, stop = guards(SPECS, NBYTES)[zone]
    arena[start:stop] += 1
    assert zones.damage().endswith(words)


def test_what_lies_there_cannot_be_foreseen(arena, zones):
    start, stop = guards(SPECS, NBYTES)[0]
    before = arena[start:stop].clone()
    zones.fill()
    assert not torch.equal(arena[start:stop], before)
    other = torch.empty_like(arena)
    RedZones(other, SPECS, "output").fill()
    assert not torch.equal(arena[start:stop], other[start:stop])


def test_an_arena_without_tensors_is_all_guard():
    arena = torch.zeros(512, dtype=torch.uint8)
    zones = RedZones(arena, [], "input")
    zones.fill()
    arena[100] += 1
    assert zones.damage().endswith("before input 0")
