"""Recording of the kernels that the GPU runs: with CUPTI's library if torch loads one, else with torch's profiler."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Callable, Iterable

from kernel_matrix.inside.platform import Activity
from kernel_matrix.platforms.cuda.inside.cupti import ActivityRecorder, loaded_library, recorder


def record_activity() -> Callable[[], Iterable[Activity]]:
    """Start a tracer of the GPU and return the function that ends it.

    If no GPU is in use, or it cannot be traced, that function returns no activity.
    """
    with suppress(Exception):
        import torch  # noqa: PLC0415  # a worker imports torch after it has connected

        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            library = loaded_library()
            stop = _profiled(torch) if library is None else _recorded(recorder(library))

            def stopped() -> Iterable[Activity]:
                torch.cuda.synchronize()  # work that ends late belongs to this call, too
                return stop()

            return stopped
    return list


def _recorded(recorder: ActivityRecorder) -> Callable[[], Iterable[Activity]]:
    recorder.start()
    return recorder.stop


def _profiled(torch: Any) -> Callable[[], Iterable[Activity]]:
    """Record with torch's profiler, for builds that contain CUPTI; its first start takes seconds."""
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
