"""Timing and capturing calls on a GPU, in the process that makes them."""

from __future__ import annotations

from typing import Any, Callable, Optional, Tuple

import torch

_CALLS_BEFORE_CAPTURE = 3
"""Eager calls on a side stream before a capture, as torch's notes on CUDA graphs ask for."""


def make_timer() -> Callable[[Callable[[], Any]], Tuple[Any, int]]:
    """Return a function that calls another one between two events."""
    # Made once: making them takes the driver microseconds, and never the same number of them.
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def timed(function: Callable[[], Any]) -> Tuple[Any, int]:
        begin.record()
        returned = function()
        end.record()
        torch.cuda.synchronize()  # all streams: what is not in the claim is in the judge's wall time
        return returned, round(begin.elapsed_time(end) * 1e6)

    return timed


def capture(function: Callable[[], Any]) -> Optional[Callable[[], Any]]:
    """Return ``function`` as a CUDA graph; None where it cannot be captured."""
    try:
        return _captured(function)
    except Exception:  # noqa: BLE001  # a call that cannot be captured can still be made; if not, it says so itself
        torch.cuda.synchronize()
        _leave_capture()
        return None


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
