"""Removal of old evaluations from a queue, so that a service may run for months."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from typing import Final

from kernel_matrix.errors import StoreError
from kernel_matrix.model.instants import instant_text
from kernel_matrix.service.evaluation_queue import EvaluationQueue

_EVERY_S: Final = 3600.0
_MOST_AT_ONCE: Final = 200
"""Evaluations of one transaction, which takes some milliseconds; requests wait for it."""
_PAUSE_S: Final = 0.02
"""Time between transactions, in which requests have their turn."""
_DAY_S: Final = 86_400.0
_log = logging.getLogger(__name__)


def forget_old(
    queue: EvaluationQueue,
    keep_days: int,
    *,
    now_s: Callable[[], float] = time.time,
    stop: threading.Event | None = None,
) -> int:
    """Remove evaluations that ended more than ``keep_days`` ago; return how many.

    Args:
        queue: The queue.
        keep_days: Days.
        now_s: The clock, seconds since 1970.
        stop: Ends this early when it is set.
    """
    stop = stop or threading.Event()
    before = instant_text(datetime.fromtimestamp(now_s() - keep_days * _DAY_S, timezone.utc))
    forgotten = 0
    while not stop.is_set() and (count := queue.forget(before, _MOST_AT_ONCE)):
        forgotten += count
        stop.wait(_PAUSE_S)
    return forgotten


@contextmanager
def forgetting(queue: EvaluationQueue, keep_days: int | None) -> Iterator[None]:
    """Remove old evaluations now and every hour in the background; None: keep all."""
    if keep_days is None:
        yield
        return
    stop = threading.Event()

    def forget() -> None:
        while True:
            try:
                forget_old(queue, keep_days, stop=stop)
            except StoreError as error:
                _log.warning("old evaluations stay: %s", error.what)
            if stop.wait(_EVERY_S):
                return

    thread = threading.Thread(target=forget, name="forgetting")
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
