"""Error classes: one tree, one exit code per class, and a next step in every message.

::

    KernelMatrixError                    exit 4
    ├── UsageError                       exit 2   the command line or a file cannot be understood
    │   ├── ServiceRefusedError          exit 2   a service refuses a request
    │   └── ConfigError                  exit 2   matrix.toml or fleet.toml: all problems of the file at once
    ├── NothingSelectedError             exit 3   the selection is empty
    ├── InfrastructureError              exit 4   the machine, the daemon, an image or the disk failed
    │   ├── SandboxError                 exit 4   a container or process could not be started or was lost
    │   ├── ImageError                   exit 4   an image is missing, not pinned, or not what the lock says
    │   ├── PythonEnvironmentError       exit 4   a Python environment is missing, or cannot be a toolchain
    │   ├── PluginError                  exit 4   an extension is unknown, or its package is broken
    │   ├── GpuSettingError              exit 4   a GPU's setting was not, or may not be, changed
    │   ├── GpuLostError                 exit 4   a GPU no longer answers
    │   ├── GpuRefusedError              exit 4   exclusive use of a GPU cannot be proven, and the policy requires it
    │   ├── ServiceError                 exit 4   a service cannot be reached, or failed
    │   └── StoreError                   exit 4   a record could not be written or read
    ├── RegressionError                  exit 5   a comparison found a regression
    └── GpuBusyError                     exit 75  the GPU stayed in use past the wait limit
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import ClassVar

NEXT_STEP = "\n  → "
"""What stands between an error and its next step."""


class KernelMatrixError(Exception):
    """Root of all errors that this program raises on purpose.

    Args:
        what: One sentence: what is wrong, where, and what is allowed.
        next_step: One sentence: what the reader should do now.
    """

    exit_code: ClassVar[int] = 4

    def __init__(self, what: str, *, next_step: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.next_step = next_step

    def __str__(self) -> str:
        return f"{self.what}{NEXT_STEP}{self.next_step}" if self.next_step else self.what


class UsageError(KernelMatrixError):
    """The command line or a configuration file cannot be understood."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration file, such as ``matrix.toml``, is unusable; carries all problems found, not only the first."""

    def __init__(self, problems: list[str], *, next_step: str = "") -> None:
        super().__init__("\n".join(problems), next_step=next_step)
        self.problems = problems


class ServiceRefusedError(UsageError):
    """A service refuses a request, such as for its form, its token, or a name that it does not know.

    Args:
        what: See :class:`KernelMatrixError`.
        next_step: See :class:`KernelMatrixError`.
        status: The HTTP status of the answer.
    """

    def __init__(self, what: str, *, next_step: str = "", status: int) -> None:
        super().__init__(what, next_step=next_step)
        self.status = status


class NothingSelectedError(KernelMatrixError):
    """The matrix and the filters together select no cell."""

    exit_code = 3


class InfrastructureError(KernelMatrixError):
    """The machine failed, not a candidate; the lost work can be run again."""


class SandboxError(InfrastructureError):
    """A container or process could not be started, or vanished."""


class ImageError(InfrastructureError):
    """An image is missing, not pinned, or not what the lock says."""


class PythonEnvironmentError(InfrastructureError):
    """A Python environment is missing, cannot be a toolchain, or is not what a record ran in."""


class PluginError(InfrastructureError):
    """A platform, sandbox or other extension is not known, cannot be imported, or lacks a part of its protocol."""


class GpuSettingError(InfrastructureError):
    """A setting of a GPU was not changed.

    Args:
        what: See :class:`KernelMatrixError`.
        next_step: See :class:`KernelMatrixError`.
        permitted: ``False`` if this host or the driver forbids the change to this user; ``True`` if it failed.
        supported: ``False`` if the device does not offer the setting, so that it cannot have been changed.
    """

    def __init__(self, what: str, *, next_step: str = "", permitted: bool = True, supported: bool = True) -> None:
        super().__init__(what, next_step=next_step)
        self.permitted = permitted
        self.supported = supported


class GpuLostError(InfrastructureError):
    """A GPU no longer answers: fallen off the bus, or in need of a reset."""


class GpuRefusedError(InfrastructureError):
    """Exclusive use of a GPU cannot be proven, because of its mode (MIG, MPS) or the runner's namespace."""


class ServiceError(InfrastructureError):
    """A service cannot be reached, failed, or does not answer like a service of kernel-matrix."""


class StoreError(InfrastructureError):
    """A record could not be written or read."""


class RegressionError(KernelMatrixError):
    """A comparison found a regression beyond its margin."""

    exit_code = 5


class NothingComparedError(KernelMatrixError):
    """A comparison has no cell that says anything about both sides."""

    exit_code = 6


class GpuBusyError(KernelMatrixError):
    """A GPU stayed in use by another process past the wait limit."""

    exit_code = 75


def closest(word: object, allowed: Sequence[str]) -> str | None:
    """Return the member of ``allowed`` that is closest to ``word``, or None if none is close."""
    if not isinstance(word, str):
        return None
    by_lower_case = {name.lower(): name for name in reversed(allowed)}
    close = difflib.get_close_matches(word.lower(), by_lower_case, n=1)
    return by_lower_case[close[0]] if close else None


def suggestion(word: object, allowed: Sequence[str]) -> str:
    """Return ``; did you mean 'x'?``, or an empty text if none of ``allowed`` is close."""
    close = closest(word, allowed)
    return f"; did you mean {close!r}?" if close else ""
