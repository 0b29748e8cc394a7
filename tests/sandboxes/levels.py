"""The process sandbox at each level of confinement."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_matrix.inside import confine
from kernel_matrix.sandboxes import Mount
from kernel_matrix.sandboxes.process import Confinement, ProcessSandbox

LEVELS = {
    "namespaces": Confinement(confine.ROOT, other_user=True),
    "user namespace": Confinement(confine.USER, other_user=False),
    "another uid": Confinement(confine.NONE, other_user=True),
    "limits only": Confinement(confine.NONE, other_user=False),
}


class AtLevel(ProcessSandbox):
    """A process sandbox that does not look for a stronger level."""

    confinement: Confinement

    def __init__(self, level: Confinement) -> None:
        self.confinement = level


def at_level(level: Confinement) -> ProcessSandbox:
    """The sandbox at this level; skips the test where it cannot be had."""
    if os.geteuid() != 0 and (level.namespaces == confine.ROOT or level.other_user):
        pytest.skip("only root can do this")
    found = AtLevel(level)
    refusal = found._try(level)
    if refusal is not None:
        pytest.skip(f"not to be had here: {refusal}")
    return found


@contextmanager
def public_probes() -> Iterator[Mount]:
    """Probes that every user may read: another user runs them, without mounts too."""
    with tempfile.TemporaryDirectory(prefix="km-test-") as folder:
        Path(folder).chmod(0o755)
        yield Mount(
            source=Path(shutil.copytree(Path(__file__).parent / "probes", Path(folder) / "probes")), target="/probes"
        )
