"""What a role's process finds around itself, whichever sandbox starts it: command, environment, log tail."""

from __future__ import annotations

from pathlib import Path

from kernel_matrix.judge_checks import added_checks
from kernel_matrix.model.enums import Role
from kernel_matrix.platforms.registry import inside_folder, platforms
from kernel_matrix.sandboxes import PACKAGE_TARGET, RoleSpec

PACKAGE = "kernel_matrix"
INSIDE_PACKAGES = ("model", "inside")
"""The parts of this package that a role can import; nothing else of it is shown inside."""

PACKAGE_FOLDER = Path(__file__).resolve().parents[1]

SCRATCH = "/tmp"  # noqa: S108  # as seen inside, where it is new, private and limited in size
"""The one place inside that can be written."""

TAIL_BYTES = 16 << 10


def command(spec: RoleSpec) -> tuple[str, ...]:
    """Arguments of the Python that runs the role: no user site, no bytecode files."""
    return ("-s", "-B", "-m", spec.module, *spec.args)


def environment(spec: RoleSpec) -> dict[str, str]:
    """The whole environment of the role, nothing of the host's in it; every cache is empty and its own."""
    return {
        "HOME": SCRATCH,
        "USER": spec.role.value,
        "LOGNAME": spec.role.value,
        "LANG": "C.UTF-8",
        "TMPDIR": SCRATCH,
        "XDG_CACHE_HOME": f"{SCRATCH}/cache",
        "TRITON_CACHE_DIR": f"{SCRATCH}/triton",
        "TORCH_EXTENSIONS_DIR": f"{SCRATCH}/torch-extensions",
        "TORCHINDUCTOR_CACHE_DIR": f"{SCRATCH}/inductor",
        **{name: f"{SCRATCH}/{folder}" for each in platforms().values() for name, folder in each.CACHES.items()},
        "PYTHONPATH": PACKAGE_TARGET,
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONFAULTHANDLER": "1",
        **spec.env,
    }


def package_parts(spec: RoleSpec) -> dict[str, Path]:
    """Return what a role can import from: path below the package inside → folder or file on this host.

    The inside half of the platform is shown at the same place whichever package it comes from. Only the judge sees the
    checks that other packages add.
    """
    own = {name: PACKAGE_FOLDER / name for name in INSIDE_PACKAGES}
    checks = added_checks() if spec.role is Role.JUDGE else {}
    added = {f"plugin_checks/{name}.py": file for name, file in checks.items()}
    return {**own, f"platforms/{spec.platform}/inside": inside_folder(spec.platform), **added}


def package_mounts(spec: RoleSpec) -> tuple[tuple[str, str], ...]:
    """Return the same as mounts: folder or file on this host, and its path inside."""
    return tuple((str(source), f"{PACKAGE_TARGET}/{PACKAGE}/{name}") for name, source in package_parts(spec).items())


class LogTail:
    """The last :data:`TAIL_BYTES` of a stream of any length."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, chunk: bytes) -> None:
        """Append, forgetting what is too old."""
        self._bytes += chunk[-TAIL_BYTES:]
        del self._bytes[:-TAIL_BYTES]

    def text(self) -> str:
        """The tail, undecodable bytes replaced."""
        return self._bytes.decode(errors="replace")
