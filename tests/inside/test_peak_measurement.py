"""Measured rates: the best of several, each a median, for every dtype the device multiplies."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import math
import platform

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside import peak_measurement as module
from kernel_matrix.inside.peak_measurement import DTYPES, FEWEST_REPEATS, MOST_REPEATS, calibrate
from kernel_matrix.inside.platform import load_platform

pytestmark = pytest.mark.torch

CPU = load_platform("cpu")


def test_a_processor_is_measured_in_every_dtype():
    found = calibrate(CPU, 0.2)
    assert set(found.flops_per_s) == {"fp64", "fp32", "tf32", "fp16", "bf16"} == set(DTYPES)
    assert all(rate > 0 and math.isfinite(rate) for rate in (found.bytes_per_s, *found.flops_per_s.values()))
    assert found.device_name in (platform.processor(), platform.machine())
    assert (found.torch, found.cuda) == (str(torch.__version__), torch.version.cuda)
    assert found.seconds > 0


class Device:
    """Times of a device that multiplies and copies at told rates, and what it was asked."""

    def __init__(self, monkeypatch, times):
        self._times = times
        self.calls = 0
        monkeypatch.setattr(CPU, "make_timer", lambda: self.timed)

    def timed(self, operation):
        self.calls += 1
        return operation(), round(next(self._times) * 1e9)


def test_median_ignores_the_first_call_and_one_slow_repeat(monkeypatch):
    Device(monkeypatch, iter([100.0, 1.0, 50.0, 2.0]))
    assert module._median_s(CPU, lambda: None, 0.0) == 2.0


def test_repeats_end_with_the_time_or_when_there_are_enough(monkeypatch):
    device = Device(monkeypatch, iter([1.0] * 1000))
    module._median_s(CPU, lambda: None, 3600.0)
    assert device.calls == 1 + MOST_REPEATS


def test_bandwidth_counts_reads_and_writes_and_keeps_the_best(monkeypatch):
    nbytes = 64 << 20
    Device(monkeypatch, iter([1.0] * 4 + [0.5] * 4))
    assert module._bytes_per_s(CPU, 0.0) == 2 * nbytes
    Device(monkeypatch, iter([1.0] * 4 + [0.25] * 4))
    assert module._bytes_per_s(CPU, 0.0) == 4 * nbytes


def test_flop_rate_keeps_the_best_size_and_skips_slow_sizes(monkeypatch):
    monkeypatch.setattr(module, "MOST_REPEATS", FEWEST_REPEATS)
    device = Device(monkeypatch, iter([1e-3] * 4 + [4e-3] * 4))
    assert module._flops_per_s(CPU, "fp32", 0.1) == pytest.approx(2 * 512**3 / 4e-3)
    assert device.calls == 8
    device = Device(monkeypatch, iter([1.0] * 4))
    assert module._flops_per_s(CPU, "fp32", 0.1) == pytest.approx(2 * 256**3)
    assert device.calls == 4


def test_a_dtype_that_the_device_does_not_multiply_is_left_out(monkeypatch):
    multiply = torch.matmul

    def only_floats(left, right, *, out):
        if left.dtype is torch.bfloat16:
            raise RuntimeError("not implemented for 'BFloat16'")
        return multiply(left, right, out=out)

    monkeypatch.setattr(torch, "matmul", only_floats)
    monkeypatch.setattr(module, "_bytes_per_s", lambda *_: 1.0)
    assert set(calibrate(CPU, 0.1).flops_per_s) == set(DTYPES) - {"bf16"}


def test_tf32_is_allowed_for_tf32_only_and_setting_is_restored(monkeypatch):
    seen = {}

    def product_rate(_device, dtype, _size, _seconds):
        seen.setdefault((dtype, torch.get_float32_matmul_precision()), 0)
        return 1e15

    monkeypatch.setattr(module, "_product_rate", product_rate)
    with module._float32_products("medium"):
        for name in DTYPES:
            module._flops_per_s(CPU, name, 1.0)
        assert torch.get_float32_matmul_precision() == "medium"
    assert [dtype for dtype, precision in seen if precision == "high"] == [torch.float32]
    assert (torch.float32, "highest") in seen
