"""Timer of a worker: device time of one call, or of many calls replayed in a row."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import torch

from kernel_matrix.inside.platform import InsidePlatform


class Meter:
    """Timer of calls on one device. All times in nanoseconds."""

    def __init__(self, platform: InsidePlatform, flush_bytes: int) -> None:
        """Create a timer for the device of ``platform``.

        Args:
            platform: The device's platform.
            flush_bytes: Bytes to write before each single call; 0 leaves the caches unchanged.
        """
        self._flush = torch.empty(flush_bytes, dtype=torch.uint8, device=platform.TORCH_DEVICE)
        self._span = platform.make_timer()

    def time(self, function: Callable[[], Any]) -> Tuple[Any, int]:
        """Return the result of ``function`` and its time on the device after a flush."""
        # The flush also keeps the device busy while the host enqueues the call, so that launch latency is hidden.
        if self._flush.numel():
            self._flush.zero_()
        return self._span(function)

    def time_replays(self, function: Callable[[], Any], count: int) -> Tuple[Any, int]:
        """Return the result of the last of ``count`` calls in a row, and the device time of all of them."""

        def all_of_them() -> Any:
            for _ in range(count - 1):
                function()
            return function()

        return self._span(all_of_them)


def captured_or_called(function: Callable[[], Any], platform: InsidePlatform) -> Tuple[Callable[[], Any], bool]:
    """Return a replay of ``function`` and ``True``; if it cannot be captured, ``function`` itself and ``False``."""
    captured = platform.capture(function)
    return (function, False) if captured is None else (captured, True)
