"""Timing and capturing calls on a GPU, in the process that makes them."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch

_CALLS_BEFORE_CAPTURE = 3
"""Eager calls on a side stream before a capture; torch's notes on CUDA graphs use this number."""


def make_timer() -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
    """Return a function that calls another one between two events, and returns its result and the nanoseconds."""
    # Created once, because creating an event takes the driver a varying number of microseconds.
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(function: Callable[[], Any]) -> Tuple[Any, int]:
        begin.record()
        returned = function()
        end.record()
        torch.cuda.synchronize()  # all streams: work that the events miss then counts in the judge's own time
        return returned, round(begin.elapsed_time(end) * 1e6)

    return timed


def capture(function: Callable[[], Any]) -> Optional[Callable[[], Any]]:
    """Return a function that replays ``function`` as a CUDA graph; None if it cannot be captured."""
    try:
        return _capture_graph(function)
    except Exception:  # noqa: BLE001  # the call may still work without a capture; if not, it raises again then
        torch.cuda.synchronize()
        _reset_capture()
        return None


def _reset_capture() -> None:
    """Capture a trivial operation: after a failed capture torch draws no random numbers until another one succeeds."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")


def _capture_graph(function: Callable[[], Any]) -> Callable[[], Any]:
    side_stream = torch.cuda.Stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(_CALLS_BEFORE_CAPTURE):
            function()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        returned = function()

    def replay() -> Any:
        graph.replay()
        return returned

    return replay
