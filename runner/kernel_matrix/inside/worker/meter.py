"""What a worker measures: the device time of one call, or of many replayed in a row."""

from __future__ import annotations

import time
from typing import Any, Callable, Tuple

import torch

_CALLS_BEFORE_CAPTURE = 3
"""Eager calls on a side stream before a capture, as torch's notes on CUDA graphs ask for."""


class Meter:
    """Times calls on one device. All times in nanoseconds."""

    def __init__(self, device: str, flush_bytes: int) -> None:
        """:param flush_bytes: how much is written before each single call; 0 leaves the caches as they are."""
        self._device = device
        self._flush = torch.empty(flush_bytes, dtype=torch.uint8, device=device)
        # Made once: making them takes the driver microseconds, and never the same number of them.
        self._ends = None if device == "cpu" else [torch.cuda.Event(enable_timing=True) for _ in range(2)]

    def time(self, function: Callable[[], Any]) -> Tuple[Any, int]:
        """What ``function`` returned, and how long the device took for it after a flush."""
        # The flush also keeps the device busy while the host enqueues the call, so that launch latency is hidden.
        if self._flush.numel():
            self._flush.zero_()
        return self._span(function)

    def time_replays(self, function: Callable[[], Any], count: int) -> Tuple[Any, int]:
        """What the last of ``count`` calls in a row returned, and how long the device took for all of them."""

        def all_of_them() -> Any:
            for _ in range(count - 1):
                function()
            return function()

        return self._span(all_of_them)

    def _span(self, function: Callable[[], Any]) -> Tuple[Any, int]:
        if self._ends is None:
            started = time.perf_counter_ns()
            returned = function()
            return returned, time.perf_counter_ns() - started
        begin, end = self._ends
        begin.record()
        returned = function()
        end.record()
        torch.cuda.synchronize()  # all streams: what is not in the claim is in the judge's wall time
        return returned, round(begin.elapsed_time(end) * 1e6)


def captured_or_called(function: Callable[[], Any], device: str) -> Tuple[Callable[[], Any], bool]:
    """``function`` as a CUDA graph and true; itself and false on a CPU, or where it cannot be captured.

    The graph's outputs are the same memory at every replay.
    """
    if device == "cpu":
        return function, False
    try:
        return _captured(function), True
    except Exception:  # noqa: BLE001  # a call that cannot be captured can still be made; if not, it says so itself
        torch.cuda.synchronize()
        _leave_capture()
        return function, False


def _leave_capture() -> None:
    """Capture something that can be: after a failed capture torch draws no random numbers until another one ends."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")


def _captured(function: Callable[[], Any]) -> Callable[[], Any]:
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(_CALLS_BEFORE_CAPTURE):
            function()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        returned = function()

    def replay() -> Any:
        graph.replay()
        return returned

    return replay
