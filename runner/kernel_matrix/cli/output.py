"""Output of verbs: a rich console that obeys ``NO_COLOR`` and pipes, plain lines, and strict JSON for scripts."""

from __future__ import annotations

import json
import math
import sys
from contextlib import contextmanager
from datetime import date
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from rich.console import Console


def console(*, stderr: bool = False) -> Console:
    """Return a console for people: colour only on a terminal and never under ``NO_COLOR``; full width when piped.

    Control characters in what is printed are shown, not obeyed.
    """
    from kernel_matrix.cli.safe_console import SafeConsole

    piped = not (sys.stderr if stderr else sys.stdout).isatty()
    return SafeConsole(stderr=stderr, highlight=False, width=200 if piped else None, soft_wrap=piped)


def write_line(text: str, *, stderr: bool = False) -> None:
    """Write a line as it is and flush; control characters in it are shown, not obeyed."""
    from kernel_matrix.api.wording import visible

    stream = sys.stderr if stderr else sys.stdout
    stream.write(f"{visible(text)}\n")
    stream.flush()


def write_cut_line(text: str) -> None:
    """Write a text on one line, on a terminal no longer than that is wide."""
    from rich.cells import cell_len, set_cell_size

    from kernel_matrix.api.wording import printable

    line = printable(text)
    if sys.stdout.isatty() and cell_len(line) > (width := console().width):
        line = f"{set_cell_size(line, width - 1)}…"
    sys.stdout.write(f"{line}\n")


@contextmanager
def progress_bar() -> Iterator[Callable[[int, int], None]]:
    """Show a merge's progress on a terminal; yields a function of the number done and the number of all."""
    from rich.progress import Progress

    err = console(stderr=True)
    with Progress(console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("merging", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_json(document: Any) -> None:
    """Print one strict JSON document: infinity and NaN become null, dates become text."""
    json.dump(_plain(document), sys.stdout, allow_nan=False, indent=2, sort_keys=True)
    sys.stdout.write("\n")


def _plain(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, dict):
        return {str(name): _plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return value if isinstance(value, (str, int, float, bool)) or value is None else str(value)


def print_json_line(document: Any) -> None:
    """Print one strict JSON document on one line and flush, for event streams."""
    sys.stdout.write(json.dumps(document, allow_nan=False, separators=(",", ":"), sort_keys=True) + "\n")
    sys.stdout.flush()


def duration(seconds: float) -> str:
    """Return for example ``25 s``, ``3 min``, ``2.5 h`` or ``4.0 d``."""
    for limit, unit, size in ((90, "s", 1), (90 * 60, "min", 60)):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds / 3600:.1f} h" if seconds < 48 * 3600 else f"{seconds / 86400:.1f} d"
