"""Which clock a policy means on which GPU."""

import pytest

from kernel_matrix.lease.clock_targets import memory_target, nearest, sm_target
from kernel_matrix.lease.terms import LeaseTerms
from kernel_matrix.platforms import ClockChoices, Gpu

H200 = Gpu(platform="cuda", uuid="GPU-1", name="NVIDIA H200")
CHOICES = ClockChoices(sm_mhz=(1980, 1965, 345), memory_mhz=(3201, 1593), base_sm_mhz=1500)


@pytest.mark.parametrize(
    ("supported", "megahertz", "found"),
    [((1980, 1965), 1973, 1980), ((1980, 1970), 1975, 1970), ((1970, 1980), 1975, 1970), ((), 1975, 1975)],
)
def test_the_nearest_is_taken_and_of_two_the_lower(supported, megahertz, found):
    assert nearest(supported, megahertz) == found


@pytest.mark.parametrize(
    ("asked", "requested", "megahertz"),
    [
        ("base", "base", 1500),
        ("max", "max", 1980),
        (1970, "1970", 1965),
        ({"*H200": "max", "*": 345}, "max", 1980),
        ({"*": 345, "*H200": "max"}, "345", 345),
        ({"nvidia H20?": 400}, "400", 345),
        ({"*A100*": 400}, "base", 1500),
        ({}, "base", 1500),
    ],
)
def test_the_sm_clock(asked, requested, megahertz):
    target = sm_target(H200, LeaseTerms(wait_s=0, clock_target=asked), CHOICES)
    assert (target.requested, target.megahertz, target.trouble) == (requested, megahertz, "")


@pytest.mark.parametrize(
    ("asked", "choices", "told"),
    [
        ("auto", CHOICES, ("max", 3201)),
        ("auto", ClockChoices(memory_mhz=(10501,), consumer=True), ("off", None)),
        ("max", ClockChoices(memory_mhz=(10501,), consumer=True), ("max", 10501)),
        ("auto", ClockChoices(), ("off", None)),
        ("off", CHOICES, ("off", None)),
        (2000, CHOICES, ("2000", 1593)),
        ({"*A100*": "off"}, CHOICES, ("max", 3201)),
    ],
)
def test_the_memory_clock(asked, choices, told):
    target = memory_target(H200, LeaseTerms(wait_s=0, memory_clock=asked), choices)
    assert (target.requested, target.megahertz, target.trouble) == (*told, "")
