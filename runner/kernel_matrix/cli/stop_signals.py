"""Stopping by SIGINT, SIGTERM or SIGHUP: the first one ends the verb cleanly, and later ones do not cut that short.

There is no signal that skips the clean-up but SIGKILL. After it, the next run or ``kernel-matrix sweep`` removes what
was left.
"""

from __future__ import annotations

import errno
import os
import signal
import termios
import threading
import time
from contextlib import suppress
from types import FrameType
from typing import Final

_STOPPING: Final = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STILL_STOPPING: Final = b"still stopping: containers, processes and folders are being removed (kill -9 leaves them)\n"
_OUTPUTS: Final = (1, 2)
"""Descriptors of standard output and standard error."""
_WAKE_UP: Final = signal.SIGURG  # does nothing in programs that do not handle it, such as those started from here
_WAKE_UP_EVERY_S: Final = 0.05  # the main thread may be about to wait when it is woken up, and then sleeps on


class Terminated(BaseException):
    """SIGINT, SIGTERM or SIGHUP arrived; raised so that every ``finally`` and ``with`` runs."""

    def __init__(self, signum: int) -> None:
        super().__init__(signum)
        self.signum = signum


class StopSignals:
    """Handler that raises :class:`Terminated` in the main thread at the first signal; later ones only print.

    When a signal arrives, Python only notes it; the handler is called between two instructions of the main thread. If
    the signal came just before the main thread began to wait, or interrupted another thread, that is not before the end
    of the wait. Therefore a thread of its own interrupts what the main thread waits for until the handler was called.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        """The first signal that arrived."""

    def install(self) -> None:
        """Handle each signal that this process did not inherit as ignored.

        ``nohup`` ignores SIGHUP, and a shell without job control ignores SIGINT for what it starts in the background.
        """
        signal.signal(_WAKE_UP, lambda *_: None)
        arrivals, noting = os.pipe()
        os.set_blocking(noting, False)
        signal.set_wakeup_fd(noting, warn_on_full_buffer=False)
        waking = threading.Thread(
            target=self._wake_main_thread, args=(arrivals, threading.get_ident()), name="stop-signals", daemon=True
        )
        waking.start()
        for signum in _STOPPING:
            if signal.getsignal(signum) is not signal.SIG_IGN:
                signal.signal(signum, self._stop)

    def ignore_further(self) -> None:
        """To be called before exiting: at its very end the interpreter gives handled signals their default back."""
        for signum in _STOPPING:
            signal.signal(signum, signal.SIG_IGN)

    def _stop(self, signum: int, _frame: FrameType | None) -> None:
        silence_gone_terminal()
        if self.received is not None:
            with suppress(OSError):  # not through sys.stderr, which the signal may have interrupted
                os.write(2, _STILL_STOPPING)
            return
        self.received = signal.Signals(signum)
        raise Terminated(signum)

    def _wake_main_thread(self, arrivals: int, main_thread: int) -> None:
        """Wait for the first signal, then interrupt the main thread until it has called the handler.

        Args:
            arrivals: Descriptor from which the number of each signal that arrives can be read, one byte each.
            main_thread: Identifier of the main thread.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _STOPPING)  # the kernel shall choose the main thread
        while os.read(arrivals, 1)[0] not in _STOPPING:
            pass
        while self.received is None:
            signal.pthread_kill(main_thread, _WAKE_UP)
            time.sleep(_WAKE_UP_EVERY_S)


def silence_gone_terminal() -> bool:
    """Redirect output to a closed terminal to ``/dev/null``, since each further write there would raise an error.

    Returns:
        Whether standard output or standard error was such a terminal.
    """
    gone = [descriptor for descriptor in _OUTPUTS if _is_gone_terminal(descriptor)]
    if gone:
        nothing = os.open(os.devnull, os.O_WRONLY)
        for descriptor in gone:
            os.dup2(nothing, descriptor)
        os.close(nothing)
    return bool(gone)


def _is_gone_terminal(descriptor: int) -> bool:
    try:
        termios.tcgetattr(descriptor)
    except termios.error as error:
        return bool(error.args[0] == errno.EIO)
    return False
