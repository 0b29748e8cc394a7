"""The builder: compiles a candidate in a container without a GPU and hands the artefact to the host.

``python -m runner.core.build --channel DIR --code DIR``. Importing the source compiles it (``load_inline``); what then
lies in ``TORCH_EXTENSIONS_DIR`` is the artefact, sent as a tar in bounded frames. The host never looks into
it: only the candidate's own container unpacks it.
"""

from __future__ import annotations

import argparse
import io
import os
import socket
import sys
import tarfile
import traceback
from pathlib import Path
from typing import Optional, Sequence

from runner.core.sourcefile import import_file
from runner.core.wire import MAX_CHUNK, MAX_FROM_JUDGE, Channel, Failure, Kind, pack_failed
from runner.core.worker import MTIME_HEADER, classify

SOCKET_NAME = "build.sock"
"""Name of the host's socket in the channel folder."""

NEEDS_A_GPU = ("No CUDA GPUs are available", "Found no NVIDIA driver", "no CUDA-capable device")
"""Texts of torch when a source asks for the device while it is imported: it can only be built beside one."""


class FrameWriter(io.RawIOBase):
    """A file whose bytes leave as ``CHUNK`` frames."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: object) -> int:
        """Send ``data``, at most :data:`~runner.core.wire.MAX_CHUNK` bytes a frame."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # io declares the argument as object
        for start in range(0, len(view), MAX_CHUNK):
            self._channel.send(Kind.CHUNK, 0, bytes(view[start : start + MAX_CHUNK]))
        return len(view)


def build(channel: Channel, code: Path, file: str) -> None:
    """Import the source, send what it compiled; every failure is sent as one."""
    try:
        import_file(code / file, "candidate", {})
    except Exception as error:  # noqa: BLE001  # whatever candidate code raises is its own failure, told in full
        kind = classify(error)
        if any(text in str(error) for text in NEEDS_A_GPU):
            channel.send(Kind.DONE)  # nothing to hand over: it will be compiled where it runs
            return
        failure = Failure.LOAD if kind is Failure.RUNTIME else kind
        channel.send(Kind.FAILED, 0, pack_failed(failure, traceback.format_exc()))
        return
    folder = Path(os.environ["TORCH_EXTENSIONS_DIR"])
    if folder.is_dir():
        writer = io.BufferedWriter(FrameWriter(channel), buffer_size=MAX_CHUNK)
        with tarfile.open(fileobj=writer, mode="w|", format=tarfile.PAX_FORMAT) as archive:
            for path in sorted(folder.rglob("*")):
                _add(archive, path, str(path.relative_to(folder)))
        writer.flush()
    channel.send(Kind.DONE)


def _add(archive: tarfile.TarFile, path: Path, name: str) -> None:
    """Add one file with its modification time to the nanosecond, which a tar alone rounds.

    ninja compares these times with its log: a rounded one makes it compile everything again.
    """
    entry = archive.gettarinfo(str(path), arcname=name)
    entry.pax_headers = {MTIME_HEADER: str(path.lstat().st_mtime_ns)}
    if entry.isreg():
        with path.open("rb") as file:
            archive.addfile(entry, file)
    else:
        archive.addfile(entry)


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Build one candidate; the exit code means nothing to the host."""
    parser = argparse.ArgumentParser(prog="build")
    parser.add_argument("--channel", type=Path, required=True)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--file", default="candidate.py")
    arguments = parser.parse_args(argv)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connection.connect(str(arguments.channel / SOCKET_NAME))
    channel = Channel(connection, MAX_FROM_JUDGE)
    build(channel, arguments.code, arguments.file)
    channel.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
