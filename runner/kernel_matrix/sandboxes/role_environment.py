"""What a role's process finds around itself, whichever sandbox starts it: command, environment, log tail."""

from __future__ import annotations

from pathlib import Path

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


def package_folders(platform: str) -> dict[str, Path]:
    """Folders that a role can import from: path below the package inside → where it lies on this host.

    The inside half of ``platform`` is shown at the same place whichever distribution it comes from.
    """
    own = {name: PACKAGE_FOLDER / name for name in INSIDE_PACKAGES}
    return {**own, f"platforms/{platform}/inside": inside_folder(platform)}


def package_mounts(platform: str) -> tuple[tuple[str, str], ...]:
    """The same as mounts: where each folder lies on this host, and its path inside."""
    folders = package_folders(platform)
    return tuple((str(folder), f"{PACKAGE_TARGET}/{PACKAGE}/{name}") for name, folder in folders.items())


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
