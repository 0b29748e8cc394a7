"""What a worker measures on a CPU; on a GPU whole sessions show it."""
# ruff: noqa: E402  # without torch this file is skipped before the core is imported

import time

import pytest

torch = pytest.importorskip("torch")

from kernel_matrix.inside.platform import load_platform
from kernel_matrix.inside.worker.meter import Meter, captured_or_called

pytestmark = pytest.mark.torch

CPU = load_platform("cpu")


def test_a_call_is_made_once_and_its_time_is_its_own():
    calls = []

    def call():
        calls.append(1)
        time.sleep(0.01)
        return "returned"

    started = time.perf_counter_ns()
    returned, device_ns = Meter(CPU, 1 << 20).time(call)
    whole_ns = time.perf_counter_ns() - started
    assert (returned, len(calls)) == ("returned", 1)
    assert 10_000_000 <= device_ns <= whole_ns


def test_replays_return_the_last_and_take_the_time_of_all():
    numbers = iter(range(10))

    def call():
        time.sleep(0.002)
        return next(numbers)

    returned, device_ns = Meter(CPU, 0).time_replays(call, 4)
    assert returned == 3
    assert device_ns >= 4 * 2_000_000


def test_what_a_call_raises_is_raised():
    with pytest.raises(ValueError, match="no"):
        Meter(CPU, 0).time(lambda: (_ for _ in ()).throw(ValueError("no")))


def test_a_processor_has_no_graphs():
    function = object()
    assert captured_or_called(function, CPU) == (function, False)


@pytest.mark.gpu
def test_a_graph_computes_on_what_lies_in_its_inputs_now():
    x = torch.ones(4, device="cuda")
    replay, captured = captured_or_called(lambda: x * 2, load_platform("cuda"))
    assert captured
    x.fill_(5)
    returned, device_ns = Meter(load_platform("cuda"), 0).time_replays(replay, 3)
    assert returned.tolist() == [10] * 4
    assert device_ns > 0


@pytest.mark.gpu
def test_what_cannot_be_captured_is_called():
    x = torch.ones(4, device="cuda")
    call, captured = captured_or_called(lambda: x * x.sum().item(), load_platform("cuda"))
    assert not captured
    assert Meter(load_platform("cuda"), 0).time_replays(call, 2)[0].tolist() == [4] * 4
    assert torch.rand(3, device="cuda").shape == (3,), "random numbers are drawn as before"
