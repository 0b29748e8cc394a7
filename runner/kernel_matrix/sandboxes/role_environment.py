"""Command, environment, package folders and log tail of a role's process, the same in every sandbox."""

from __future__ import annotations

from pathlib import Path

from kernel_matrix.judge_checks import added_checks
from kernel_matrix.model.enums import Role
from kernel_matrix.platforms.registry import inside_folder, platforms
from kernel_matrix.sandboxes import PACKAGE_TARGET, RoleSpec

PACKAGE = "kernel_matrix"
INSIDE_PACKAGES = ("model", "inside")
"""Parts of this package that a role can import; the rest of the package is not visible inside."""

PACKAGE_FOLDER = Path(__file__).resolve().parents[1]

SCRATCH = "/tmp"  # noqa: S108  # as seen inside, where it is new, private and limited in size
"""The only folder inside that a role can write."""

TAIL_BYTES = 16 << 10
"""Enough for the traceback that ends a failed process, and small enough for every record."""


def command(spec: RoleSpec) -> tuple[str, ...]:
    """Return the arguments of the Python that runs the role: no user site, no bytecode files."""
    return ("-s", "-B", "-m", spec.module, *spec.args)


def environment(spec: RoleSpec) -> dict[str, str]:
    """Return the complete environment of the role: no variable of the host, and caches in its own scratch folder."""
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
    """Return what a role can import from, as path below the package inside → folder or file on this host.

    The path of the platform's inside half does not depend on the package that it comes from. Only the judge sees the
    checks that other packages add.
    """
    own = {name: PACKAGE_FOLDER / name for name in INSIDE_PACKAGES}
    checks = added_checks() if spec.role is Role.JUDGE else {}
    added = {f"plugin_checks/{name}.py": file for name, file in checks.items()}
    return {**own, f"platforms/{spec.platform}/inside": inside_folder(spec.platform), **added}


def package_mounts(spec: RoleSpec) -> tuple[tuple[str, str], ...]:
    """Return the parts of :func:`package_parts` as pairs of path on this host and path inside."""
    return tuple((str(source), f"{PACKAGE_TARGET}/{PACKAGE}/{name}") for name, source in package_parts(spec).items())


class LogTail:
    """The last :data:`TAIL_BYTES` of a stream of any length."""

    def __init__(self) -> None:
        self._bytes = bytearray()

    def add(self, chunk: bytes) -> None:
        """Append ``chunk`` and drop the oldest bytes beyond the limit."""
        self._bytes += chunk[-TAIL_BYTES:]
        del self._bytes[:-TAIL_BYTES]

    def text(self) -> str:
        """Return the tail as text, with undecodable bytes replaced."""
        return self._bytes.decode(errors="replace")
