"""Write the first files of a project: a commented matrix and a candidate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kernel_matrix.bundled import bundled_path
from kernel_matrix.errors import UsageError, suggestion

__all__ = ["EXAMPLES", "ExampleProject", "start_project"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExampleProject:
    """An example of :data:`EXAMPLES`."""

    description: str
    next_commands: tuple[str, ...]
    """What to run first in the new folder."""
    has_softmax: bool = False
    """``True``: its first candidate is the softmax in ``docs/examples/projects/shared/``."""
    needs_images: bool = False
    """``True``: it also gets ``images/``, with the lock and the recipes of the pinned images."""


EXAMPLES = {
    "cpu": ExampleProject(
        description="kernels judged on this machine's CPU, without Docker",
        next_commands=("kernel-matrix run", "kernel-matrix results"),
        has_softmax=True,
    ),
    "gpu": ExampleProject(
        description="kernels on this machine's GPU, with the PyTorch at hand and with a pinned image",
        next_commands=("kernel-matrix doctor", "kernel-matrix run --filter toolchain=here", "kernel-matrix results"),
        has_softmax=True,
        needs_images=True,
    ),
    "kernel": ExampleProject(
        description="a problem of one's own and a kernel for it, on the GPU or the CPU",
        next_commands=("kernel-matrix run", "kernel-matrix results"),
    ),
    "nightly": ExampleProject(
        description="nights: every cell anew, compared with a baseline, with a report",
        next_commands=("kernel-matrix images pull cu130", "kernel-matrix nightly --until 06:30 --dry-run"),
        has_softmax=True,
        needs_images=True,
    ),
    "fleet": ExampleProject(
        description="cells on the machines of a Slurm cluster, from one command",
        next_commands=("kernel-matrix fleet check", "kernel-matrix run --fleet fleet.toml", "kernel-matrix results"),
        has_softmax=True,
        needs_images=True,
    ),
}
"""Name → example project; its files are in ``docs/examples/projects/<name>/``."""


def start_project(folder: str | Path = ".", example: str = "kernel") -> list[Path]:
    """Write the files of an example project; no file is replaced.

    Args:
        folder: Where they go; it is made if it does not exist.
        example: A name of :data:`EXAMPLES`.

    Returns:
        The files, sorted.

    Raises:
        UsageError: There is no such example, one of the files exists already, or the folder cannot be written.

    Examples:
        >>> import kernel_matrix, tempfile
        >>> with tempfile.TemporaryDirectory() as folder:
        ...     [path.name for path in kernel_matrix.start_project(folder, "kernel")]
        ['matrix.toml', 'mine.py', 'problem.toml', 'reference.py']
    """
    if example not in EXAMPLES:
        what = f"there is no example {example!r}{suggestion(example, list(EXAMPLES))}"
        raise UsageError(what, next_step=f"examples: {', '.join(EXAMPLES)}")
    folder = Path(folder)
    contents = {folder / name: source for name, source in _files(example)}
    if existing := sorted(path for path in contents if path.exists()):
        what = f"{existing[0]} exists already, and no file is replaced"
        raise UsageError(what, next_step="name a new folder: kernel-matrix init DIR")
    try:
        for path, source in contents.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(source.read_bytes())
    except OSError as error:
        raise UsageError(f"{folder} cannot be written: {error.strerror}", next_step="name another folder") from None
    return sorted(contents)


def _files(example: str) -> Iterator[tuple[str, Path]]:
    """Yield the name of each file below the new folder, and the file to copy."""
    yield from _tree(bundled_path("docs", f"examples/projects/{example}"))
    if EXAMPLES[example].has_softmax:
        yield from _tree(bundled_path("docs", "examples/projects/shared"))
    if EXAMPLES[example].needs_images:
        yield from ((f"images/{name}", source) for name, source in _tree(bundled_path("images")))


def _tree(folder: Path) -> Iterator[tuple[str, Path]]:
    for path in sorted(folder.rglob("*")):
        # pip compiles every Python file that it installs.
        if path.is_file() and "__pycache__" not in path.parts:
            yield path.relative_to(folder).as_posix(), path
