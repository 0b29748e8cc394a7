"""The sandbox ``polite``: local processes that give way to everything else on the machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress

from kernel_matrix.sandboxes import RoleSpec, RunningProcess
from kernel_matrix.sandboxes.process import ProcessSandbox


class PoliteSandbox(ProcessSandbox):
    """Starts what the sandbox ``process`` starts, at the lowest priority."""

    name = "polite"

    @contextmanager
    def launch(self, spec: RoleSpec) -> Iterator[RunningProcess]:
        """Start ``spec`` and lower its priority; what it starts later inherits that."""
        with super().launch(spec) as running:
            root = running.root_pid()
            if root is not None:
                with suppress(ProcessLookupError):
                    os.setpriority(os.PRIO_PROCESS, root, 19)
            yield running


def open_sandbox() -> PoliteSandbox:
    """Return the sandbox of this host."""
    return PoliteSandbox()
