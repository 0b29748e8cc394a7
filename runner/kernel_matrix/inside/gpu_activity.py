"""Recording of what a GPU runs with torch's profiler, which contains a tracer of each vendor."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Callable, Iterable, Optional

from kernel_matrix.inside.platform import Activity

StartRecorder = Callable[[], Callable[[], Iterable[Activity]]]
"""Function that starts a tracer, and returns the function that stops it and returns the records."""


def record_activity(start: Optional[StartRecorder] = None) -> Callable[[], Iterable[Activity]]:
    """Start a tracer of the GPU and return the function that ends it.

    If no GPU is in use, or it cannot be traced, that function returns no activity.

    Args:
        start: Starts another tracer in place of the profiler.
    """
    with suppress(Exception):
        import torch  # noqa: PLC0415  # a worker imports torch after it has connected

        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            stop = _profiled(torch) if start is None else start()

            def stopped() -> Iterable[Activity]:
                torch.cuda.synchronize()  # work that ends late belongs to this call, too
                return stop()

            return stopped
    return list


def _profiled(torch: Any) -> Callable[[], Iterable[Activity]]:
    """Record with torch's profiler; its first start takes seconds."""
    profiler = torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA], acc_events=True)
    profiler.start()

    def stop() -> Iterable[Activity]:
        profiler.stop()
        return [
            (event.name, round(event.time_range.elapsed_us() * 1000))
            for event in profiler.events()
            if event.device_type == torch.autograd.DeviceType.CUDA and not getattr(event, "is_user_annotation", False)
        ]

    return stop
