"""Rates under the roofline."""

import pytest

from kernel_matrix.measure.roofline import Work, roofline

PEAK = Work(flops=100e12, bytes=4e12, link_bytes=0.4e12)  # 25 FLOPs per byte where both take equally long


def test_a_product_is_bound_by_compute():
    found = roofline(1_000_000, Work(flops=80e9, bytes=0.4e9), PEAK)
    assert (found.flops_per_s, found.bytes_per_s) == pytest.approx((80e12, 0.4e12))
    assert (found.mfu, found.bandwidth_utilisation, found.intensity) == pytest.approx((0.8, 0.1, 200))
    assert (found.bound, found.utilisation) == ("compute", found.mfu)


def test_an_elementwise_sum_is_bound_by_memory():
    found = roofline(1_000_000, Work(flops=1e9, bytes=3e9), PEAK)
    assert (found.bound, found.utilisation) == ("memory", pytest.approx(0.75))


def test_the_bound_does_not_depend_on_the_time():
    work = Work(flops=26e9, bytes=1e9)
    assert {roofline(time_ns, work, PEAK).bound for time_ns in (1_000, 1_000_000)} == {"compute"}


@pytest.mark.parametrize(
    ("flops", "link_bytes", "bound"),
    [
        (10e9, 0.09e9, "link"),
        (0, 0.09e9, "link"),
        (10e9, 0.03e9, "compute"),
        (None, 0.09e9, None),
        (10e9, None, "compute"),
    ],
)
def test_the_link_limits_where_its_share_is_the_largest(flops, link_bytes, bound):
    found = roofline(1_000_000, Work(flops=flops, bytes=0.2e9, link_bytes=link_bytes), PEAK)
    assert found.bound == bound
    assert found.link_utilisation == (link_bytes and pytest.approx(link_bytes / 0.4e9))


@pytest.mark.parametrize(
    ("work", "peak", "utilisation"),
    [(Work(bytes=2e9), PEAK, 0.5), (Work(flops=1e9, bytes=1e9), Work(), None), (Work(), PEAK, None)],
)
def test_what_is_not_known_is_not_guessed(work, peak, utilisation):
    found = roofline(1_000_000, work, peak)
    assert (found.utilisation, found.bound) == (utilisation, None)
