"""The state file: which folder the last night had, and how far it came.

Cells that are still due are not in it: they follow from the records in the folder, so that a night that was killed
loses nothing.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from kernel_matrix.errors import StoreError
from kernel_matrix.model.messages import from_json, to_json
from kernel_matrix.nightly.paths import is_night_name
from kernel_matrix.results.store import replace_document
from kernel_matrix.untrusted_json import NoSuchFileError, read_object

VERSION: Final = 1  # of the file's format


@dataclass(frozen=True, slots=True, kw_only=True)
class NightState:
    """The last night of a matrix."""

    night: str
    """Name of its folder: the local date on which it began, with ``.2`` and so on for a further one."""
    began_at: str
    """UTC, RFC 3339."""
    planned: int
    """Cells that could run here."""
    ended_at: str | None = None
    """``None`` while it goes on, and for ever when it was killed."""
    measured: int = 0
    """Cells that came to an end which is not the machine's failure."""
    left: int = 0
    """Cells that the next night begins with."""
    end: str = ""
    """A value of :class:`~kernel_matrix.nightly.night_summary.NightEnd`; empty while it goes on."""
    exit_code: int | None = None
    version: int = VERSION


def read_state(path: Path) -> NightState | None:
    """Return the last night; ``None`` where there was none.

    Raises:
        StoreError: The file is damaged, or of another version.
    """
    try:
        state = from_json(NightState, read_object(path, max_bytes=1 << 20, follow_links=True))
        _check(state)
    except NoSuchFileError:
        return None
    except ValueError as error:
        raise StoreError(
            f"{path} is damaged: {error}",
            next_step=f"Move it away: all nights in {path.parent / 'nights'} stay; the next begins anew.",
        ) from None
    return state


def write_state(path: Path, state: NightState) -> None:
    """Replace the state file.

    Raises:
        StoreError: It cannot be written.
    """
    replace_document(path, f"{json.dumps(to_json(state), indent=2, sort_keys=True)}\n")


def _check(state: NightState) -> None:
    if state.version != VERSION:
        raise ValueError(f"version {state.version}, this program reads {VERSION}")
    if not is_night_name(state.night):
        raise ValueError(f"{state.night!r:.80} is no name of a night")
