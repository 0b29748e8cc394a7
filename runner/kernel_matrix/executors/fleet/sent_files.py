"""Files by which the head of a fleet sends candidates to a job that stays, one after the other.

A candidate is a file in ``sent/``; the job removes it when it has taken it. When its cell has ended, and its record is
written, the job writes a file in ``ended/``, which the head removes. The head changes the file ``head`` every few
seconds. Where it does not change any more, the head is gone, and the job ends.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from kernel_matrix.inside.atomic_write import replace_file
from kernel_matrix.untrusted_json import UntrustedJsonError, read_object

_SENT: Final = "sent"
_ENDED: Final = "ended"
_HEAD: Final = "head"
_LAST: Final = "last"
"""Says that no more candidates come."""
SIGN_EVERY_S: Final = 5.0
"""Between two changes of the file ``head``."""
_SILENT_S: Final = 120.0
"""After this time without one the head counts as gone; a shared file system may show a change half a minute later."""


@dataclass(slots=True)
class SentFiles:
    """The files of one job.

    Args:
        folder: The folder of the job.
    """

    folder: Path
    _number: int = 0
    _sign: tuple[str, float] = field(default_factory=lambda: ("", time.monotonic()))
    """What ``head`` said last, and when that was new here: the clocks of two machines are never compared."""

    # ---- at the head

    def send(self, cell_id: str, request: dict[str, Any]) -> None:
        """Send a candidate.

        Args:
            cell_id: Its cell, which the job plans, too.
            request: What the candidate is, as JSON.

        Raises:
            OSError: The folder cannot be written.
        """
        self._number += 1
        folder = self.folder / _SENT
        folder.mkdir(exist_ok=True)
        replace_file(folder / f"{self._number:06}.json", json.dumps({"cell_id": cell_id, "request": request}))

    def send_last(self) -> None:
        """Let the job end when it has judged what it was sent; a job that misses it ends when the head is silent."""
        with suppress(OSError):
            replace_file(self.folder / _LAST, "")

    def give_sign(self) -> None:
        """Show the job that the head is there."""
        with suppress(OSError):  # one more comes soon
            replace_file(self.folder / _HEAD, str(time.monotonic_ns()))

    def ended(self) -> dict[str, str]:
        """Return the cells that have ended: cell id → why it has no record, empty if it has one."""
        found: dict[str, str] = {}
        for path in (self.folder / _ENDED).glob("*.json"):
            with suppress(UntrustedJsonError):
                found[path.stem] = str(read_object(path).get("why", ""))
        return found

    def forget(self, cell_id: str) -> None:
        """Remove the file of a cell that has ended."""
        with suppress(OSError):
            (self.folder / _ENDED / f"{cell_id}.json").unlink()

    # ---- at the job

    def take(self) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield cell and request of what was sent since, oldest first."""
        for path in sorted((self.folder / _SENT).glob("*.json")):
            with suppress(UntrustedJsonError, KeyError, TypeError):
                sent = read_object(path)
                yield str(sent["cell_id"]), dict(sent["request"])
            with suppress(OSError):
                path.unlink()

    def tell_ended(self, cell_id: str, why: str = "") -> None:
        """Say that a cell has ended, or why it has no record.

        Raises:
            OSError: The folder cannot be written.
        """
        (self.folder / _ENDED).mkdir(exist_ok=True)
        replace_file(self.folder / _ENDED / f"{cell_id}.json", json.dumps({"why": why}))

    @property
    def is_last(self) -> bool:
        """True if no more candidates come."""
        return (self.folder / _LAST).exists()

    @property
    def is_head_gone(self) -> bool:
        """True if the head has not shown itself for two minutes."""
        with suppress(OSError):
            said = (self.folder / _HEAD).read_text(encoding="utf-8")
            if said != self._sign[0]:
                self._sign = said, time.monotonic()
        return time.monotonic() - self._sign[1] > _SILENT_S
