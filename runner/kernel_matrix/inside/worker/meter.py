"""What a worker measures: the device time of one call, or of many replayed in a row."""

from __future__ import annotations

from typing import Any, Callable, Tuple

import torch

from kernel_matrix.inside.platform import InsidePlatform


class Meter:
    """Times calls on one device. All times in nanoseconds."""

    def __init__(self, platform: InsidePlatform, flush_bytes: int) -> None:
        """:param flush_bytes: how much is written before each single call; 0 leaves the caches as they are."""
        self._flush = torch.empty(flush_bytes, dtype=torch.uint8, device=platform.TORCH_DEVICE)
        self._span = platform.make_timer()

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


def captured_or_called(function: Callable[[], Any], platform: InsidePlatform) -> Tuple[Callable[[], Any], bool]:
    """``function`` as something that is replayed and true; itself and false where it cannot be captured."""
    captured = platform.capture(function)
    return (function, False) if captured is None else (captured, True)
