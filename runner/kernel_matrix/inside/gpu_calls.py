"""Timing and capturing calls on a GPU, in the process that makes them."""

from __future__ import annotations

from functools import lru_cache
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


def capture(function: Callable[[], Any], pool: Any = None) -> Optional[Callable[[], Any]]:
    """Return a function that replays ``function`` as a CUDA graph; None if it cannot be captured.

    Args:
        function: Function that is captured.
        pool: Identity of torch's memory pool from which the graph's memory comes; None for one of its own.
    """
    try:
        return _capture_graph(function, pool)
    except Exception:  # noqa: BLE001  # the call may still work without a capture; if not, it raises again then
        torch.cuda.synchronize()
        _reset_capture()
        return None


def _reset_capture() -> None:
    """Capture a trivial operation: after a failed capture torch draws no random numbers until another one succeeds."""
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(1, device="cuda")


@lru_cache(maxsize=None)
def _side_stream() -> torch.cuda.Stream:
    """Return the stream of all captures: libraries keep a workspace for each, and torch unused memory."""
    return torch.cuda.Stream()


def _capture_graph(function: Callable[[], Any], pool: Any) -> Callable[[], Any]:
    side_stream = _side_stream()
    side_stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side_stream):
        for _ in range(_CALLS_BEFORE_CAPTURE):
            function()
    torch.cuda.current_stream().wait_stream(side_stream)
    graph = torch.cuda.CUDAGraph()
    # On the same stream, so that workspaces of libraries, which stay, do not come from the graph's memory.
    with torch.cuda.graph(graph, pool=pool, stream=side_stream):
        returned = function()

    def replay() -> Any:
        graph.replay()
        return returned

    return replay
