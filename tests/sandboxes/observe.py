"""What tests of sandboxes look at: processes of this machine, and what probes print."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kernel_matrix.sandboxes import ProcessExit


def survivors(token: str) -> list[str]:
    """Processes of this machine whose command line holds ``token``."""
    return [place.name for place in Path("/proc").iterdir() if place.name.isdigit() and token in _command_line(place)]


def _command_line(place: Path) -> str:
    try:
        return (place / "cmdline").read_text(errors="replace")
    except OSError:
        return ""


def soon(condition: Callable[[], bool], timeout_s: float = 20.0) -> bool:
    """Whether ``condition`` comes true before the time is up."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def answer(end: ProcessExit) -> Any:
    """The JSON that a probe printed last."""
    assert end.code == 0, end
    return json.loads(end.log_tail.strip().splitlines()[-1])
