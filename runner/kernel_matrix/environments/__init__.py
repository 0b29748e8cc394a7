"""Python environments of this host that serve as toolchains: found, described and identified.

An environment is an interpreter with its packages: the one that this program runs in, a virtual environment, or a
prefix of conda. Its identity is a digest of its content, so that a record says what it ran on. A container image is
pinned; an environment is only described, since others may change it at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

AUTO = "auto"
"""In place of a path: the environment that this program runs in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PythonEnvironment:
    """An interpreter of this host and its packages."""

    prefix: str
    """``sys.prefix`` of the interpreter."""
    executable: str
    """Absolute path of the interpreter."""
    python: str
    """Implementation and version, such as ``CPython 3.12.3``."""
    folders: tuple[str, ...]
    """Folders of the interpreter and its packages, which a process that runs it must see."""
    distributions: Mapping[str, str]
    """Installed distribution → version; packages of conda are named ``conda:<name>``."""
    torch_builds: Mapping[str, str] = field(default_factory=dict)
    """Toolkit that PyTorch was built for → version; empty for a build for CPUs."""
    programs: Mapping[str, str] = field(default_factory=dict)
    """What else its results depend on, such as compilers and drivers of this host → path or version."""
    digest: str
    """``sha256:…`` of the interpreter, the hashes recorded of every distribution's files, and ``programs``."""
    stamps: Mapping[str, Sequence[int] | None] = field(default_factory=dict, compare=False, repr=False)
    """What it was described from: path → inode, size and times, nanoseconds; None for what did not exist."""

    @property
    def torch(self) -> str:
        """Version of PyTorch without its local part."""
        return self.distributions["torch"].partition("+")[0]

    @property
    def triton(self) -> str | None:
        """Version of Triton without its local part; ``None`` if it is not installed."""
        found = (self.distributions.get(name) for name in _TRITONS)
        return next((version.partition("+")[0] for version in found if version), None)


_TRITONS = ("triton", "pytorch-triton", "pytorch-triton-rocm", "triton-windows")
"""Distributions that bring the package ``triton``."""


_TORCH_NAMES = {"hip": "rocm"}
"""Toolkit's name in ``torch.version`` → that of its platform. Newer releases of PyTorch have both."""


def toolkits(torch_builds: Mapping[str, str]) -> dict[str, str]:
    """Return toolkit → version for the toolkits that PyTorch was built for, each named like its platform."""
    renamed = {own: torch_builds[name] for name, own in _TORCH_NAMES.items() if name in torch_builds}
    return {**renamed, **{name: version for name, version in torch_builds.items() if name not in _TORCH_NAMES}}


def changes(distributions: Mapping[str, str], programs: Mapping[str, str], now: PythonEnvironment) -> str:
    """Describe how ``now`` differs from an environment with these distributions and programs, and another digest."""
    found = [*differences(distributions, now.distributions), *differences(programs, now.programs)]
    return "; ".join(found) or "its files"


def differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """Return one line for each name whose version differs, sorted: ``torch: 2.10.0 → 2.11.0``."""
    changed = (name for name in sorted({*before, *now}) if before.get(name) != now.get(name))
    return [f"{name}: {before.get(name, 'absent')} → {now.get(name, 'absent')}" for name in changed]
