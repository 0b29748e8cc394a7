"""Which kernels the GPU runs, by CUPTI: alone where it is a library of its own, else through torch's profiler."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Callable, Iterable

from kernel_matrix.inside.platform import Activity
from kernel_matrix.platforms.cuda.inside.cupti import ActivityRecorder, loaded_library, recorder


def record_activity() -> Callable[[], Iterable[Activity]]:
    """Start a tracer of the GPU; returns what ends it. Where no GPU is in use, or none can be traced, it sees none."""
    with suppress(Exception):
        import torch  # noqa: PLC0415  # a worker imports torch after it has connected

        if torch.cuda.is_available() and torch.cuda.is_initialized():
            torch.cuda.synchronize()
            library = loaded_library()
            stop = _profiled(torch) if library is None else _recorded(recorder(library))

            def stopped() -> Iterable[Activity]:
                torch.cuda.synchronize()  # late work is work of this call
                return stop()

            return stopped
    return list


def _recorded(recorder: ActivityRecorder) -> Callable[[], Iterable[Activity]]:
    recorder.start()
    return recorder.stop


def _profiled(torch: Any) -> Callable[[], Iterable[Activity]]:
    """The same with torch's own profiler, where CUPTI is a part of torch: seconds, when it is started first."""
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
