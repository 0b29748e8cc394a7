"""Write files that readers find complete or not at all, even after a crash or a power cut."""

from __future__ import annotations

import errno
import os
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Iterator, Optional, Union

_NO_HARD_LINKS = frozenset({errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS, errno.EMLINK})


def replace_file(
    path: Path, data: Union[str, bytes], *, aside: Optional[Path] = None, mode: Optional[int] = None
) -> None:
    """Replace the content of ``path``, which need not exist.

    The content is on disk when this returns. The name is so only after :func:`sync_folder`.

    Args:
        path: The file.
        data: Its new content; text is encoded as UTF-8.
        aside: Name under which the content is written first, in the same folder. A writer that is killed may leave it,
            so give a fixed one only if a lock admits a single writer. None for a random name.
        mode: Permissions, whatever the umask is; None for the default ones.

    Raises:
        OSError: It cannot be written; what was there before stays.
    """
    with _written_aside(path, data, aside, mode) as written:
        written.replace(path)


def publish_file(path: Path, data: Union[str, bytes]) -> None:
    """Write a new file; see :func:`replace_file`.

    Raises:
        FileExistsError: There is one already, and it stays.
        OSError: It cannot be written; then nothing is left.
    """
    with _written_aside(path, data) as written:
        _link_new(written, path)


def sync_folder(folder: Path) -> None:
    """Bring the names in ``folder`` to disk.

    Raises:
        OSError: It cannot be done; some network file systems never can.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


@contextmanager
def _written_aside(
    path: Path, data: Union[str, bytes], aside: Optional[Path] = None, mode: Optional[int] = None
) -> Iterator[Path]:
    """Write ``data`` under another name, which is gone after the context."""
    content = data.encode() if isinstance(data, str) else data
    if aside is None:
        aside = path.with_name(f".{path.name}.{os.urandom(8).hex()}.tmp")
    else:
        aside.unlink(missing_ok=True)
    try:
        try:
            _write_nameless(aside, content, mode)
        except OSError:  # not every file system has files without a name, and not every sandbox has /proc
            with open(aside, "xb") as file:  # noqa: PTH123  # Path.open has no advantage and hides the exclusive mode
                _fill(file, content, mode)
        yield aside
    finally:
        aside.unlink(missing_ok=True)


def _write_nameless(path: Path, content: bytes, mode: Optional[int]) -> None:
    """Write a file that gets its name only once it is whole, so that a writer that is killed leaves nothing."""
    descriptor = os.open(path.parent, os.O_TMPFILE | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    with open(descriptor, "wb") as file:  # noqa: PTH123  # Path.open takes no descriptor
        _fill(file, content, mode)
        # Only with a descriptor, which an absolute path has no use for, does Python call linkat, and follow the link.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)


def _fill(file: BinaryIO, content: bytes, mode: Optional[int]) -> None:
    if mode is not None:
        os.fchmod(file.fileno(), mode)
    file.write(content)
    file.flush()
    os.fsync(file.fileno())


def _link_new(aside: Path, path: Path) -> None:
    """Give ``aside`` the name ``path`` too, unless that is taken: a rename would overwrite silently."""
    try:
        os.link(aside, path)
    except OSError as error:
        if error.errno not in _NO_HARD_LINKS:
            raise
        if path.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(path)) from None
        aside.rename(path)
