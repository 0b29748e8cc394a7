"""``kernel-matrix`` whose process sandbox breaks torch for some roles: ``python launch_without_torch.py VERB …``.

The environment variable ``WITHOUT_TORCH`` has the roles, separated by commas, and ``BROKEN_TORCH`` a folder with the
module ``torch`` that they find. Differs from the real command in that alone.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

from kernel_matrix.cli import main
from kernel_matrix.sandboxes import PACKAGE_TARGET, SANDBOXES, Mount, RoleSpec, RunningProcess, process

TARGET = "/broken"


class TorchlessSandbox(process.ProcessSandbox):
    """The process sandbox, with another ``torch`` before the real one."""

    @contextmanager
    def launch(self, spec: RoleSpec) -> Iterator[RunningProcess]:
        """Start ``spec``; roles that shall not import torch see the broken one first."""
        if spec.role.value in os.environ["WITHOUT_TORCH"].split(","):
            mounts = (*spec.mounts, Mount(source=Path(os.environ["BROKEN_TORCH"]), target=TARGET))
            spec = replace(spec, mounts=mounts, env={**spec.env, "PYTHONPATH": f"{TARGET}:{PACKAGE_TARGET}"})
        with super().launch(spec) as running:
            yield running


def open_sandbox() -> TorchlessSandbox:
    """The sandbox of this machine."""
    return TorchlessSandbox()


SANDBOXES.built_in["process"] = __name__

if __name__ == "__main__":
    main()
