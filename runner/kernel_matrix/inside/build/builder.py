"""The builder: compiles a candidate in a container without a GPU and sends the artifact to the host.

Run as ``python -m kernel_matrix.inside.build.builder --channel DIR --code DIR``. Importing the source compiles it
(``load_inline``). With ``--ahead``, its Triton kernels are compiled too, for the architecture and inputs that the
host's first frame names, without launching any. The artifact is the content of the compilers' folders afterwards, sent
as a tar in bounded frames and followed by properties of each kernel. The host never opens the artifact; only the
candidate's own container unpacks it.

The candidate's code never sees the problem that defines the inputs. A child process reads it from the channel, answers
with shapes alone, and has ended before the candidate is imported.
"""

from __future__ import annotations

import argparse
import io
import json
import multiprocessing
import os
import socket
import tempfile
import traceback
from contextlib import redirect_stdout
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, List, Optional, Sequence

from kernel_matrix.inside.artifact import PLACES, folders, pack
from kernel_matrix.inside.confine import refuse_connections
from kernel_matrix.inside.error_excerpt import useful_part
from kernel_matrix.inside.exception_kinds import classify
from kernel_matrix.inside.hard_exit import leave
from kernel_matrix.inside.platform import InsidePlatform, load_platform
from kernel_matrix.inside.source_module import import_file
from kernel_matrix.inside.wire import (
    MAX_CHUNK,
    MAX_FROM_JUDGE,
    MAX_KERNELS,
    MAX_TEXT,
    CallFailure,
    Channel,
    FrameKind,
    KernelCode,
    pack_code,
    pack_failed,
    short_name,
)

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

    from kernel_matrix.inside.build.call_forms import CallForm

SOCKET_NAME = "build.sock"  # name of the host's socket in the channel folder

MAX_LOG = 8 << 10  # bytes of a compiler's log that are sent: its end

_NICE = 10  # lowers the priority of compilers below that of processes that are being timed


class FrameWriter(io.RawIOBase):
    """A file that sends its bytes as ``CHUNK`` frames."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: object) -> int:
        """Send ``data`` in frames of at most :data:`~kernel_matrix.inside.wire.MAX_CHUNK` bytes."""
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # io declares the argument as object
        for start in range(0, len(view), MAX_CHUNK):
            self._channel.send(FrameKind.CHUNK, 0, bytes(view[start : start + MAX_CHUNK]))
        return len(view)


def build(channel: Channel, source: Path, platform: InsidePlatform, *, ahead: bool = False) -> None:
    """Compile ``source`` and send the artifact, or the failure.

    Args:
        platform: What to compile for.
        channel: Connection to the host.
        source: The candidate's source file.
        ahead: The host's first frame names calls and a device to compile Triton kernels for.
    """
    log = io.StringIO()
    try:
        _compile(channel, source, platform, log, ahead=ahead)
    except Exception as error:  # noqa: BLE001  # any exception of candidate code is reported as its failure
        if any(text in str(error) for text in platform.NEEDS_DEVICE):
            channel.send(FrameKind.DONE)  # without an artifact: it will be compiled where it runs
            return
        kind = classify(error)
        failure = CallFailure.LOAD if kind is CallFailure.RUNTIME else kind
        channel.send(FrameKind.FAILED, 0, pack_failed(failure, useful_part(traceback.format_exc(), MAX_TEXT)))
        return
    _send_artifact(channel, platform, log.getvalue())


def _compile(channel: Channel, source: Path, platform: InsidePlatform, log: io.StringIO, *, ahead: bool) -> None:
    """Run the compilers on ``source``, and append their messages to ``log``."""
    with tempfile.TemporaryDirectory() as folder:
        remarks = Path(folder) / "remarks.log"
        remarks.touch()
        os.environ.update(platform.compiler_settings(remarks))
        try:
            if ahead:
                _compile_ahead(channel, source, platform, log)
            else:
                import_file(source, "candidate", {})
        finally:
            log.write(remarks.read_text(encoding="utf-8", errors="replace"))


def _compile_ahead(channel: Channel, source: Path, platform: InsidePlatform, log: io.StringIO) -> None:
    from kernel_matrix.inside.build.call_forms import CompileTarget  # noqa: PLC0415  # brings torch
    from kernel_matrix.model.enums import Dtype  # noqa: PLC0415  # as above

    order = _order_and_forms(channel)
    log.write(order["trouble"])
    with redirect_stdout(log):  # Triton prints its assembler's messages there
        done = platform.compile_ahead(
            source, order["entry"], order["forms"], Dtype(order["dtype"]), CompileTarget(**order["target"])
        )
    log.write(done.stopped)


# ---- the problem, which only a child process sees


def _order_and_forms(channel: Channel) -> Any:
    """Return the host's order, with the forms of the calls instead of the problem's source."""
    ours, theirs = multiprocessing.Pipe(duplex=False)
    # Forked, so that torch is imported once; no third-party code has run so far.
    child = multiprocessing.get_context("fork").Process(target=_read_order, args=(channel, theirs))
    child.start()
    theirs.close()
    try:
        order = json.loads(ours.recv_bytes())
    finally:
        child.join()
    order["forms"] = [_form_from_json(form) for form in order["forms"]]
    return order


def _read_order(channel: Channel, answer: Connection) -> None:
    """Read the order from the channel, in the child process, and answer with everything but the problem."""
    from kernel_matrix.inside.build.call_forms import call_form  # noqa: PLC0415  # brings torch
    from kernel_matrix.model.enums import Dtype  # noqa: PLC0415  # as above

    order = {**json.loads(channel.receive()[2]), "forms": [], "trouble": ""}
    source, workloads = order.pop("problem"), order.pop("workloads")
    with tempfile.TemporaryDirectory() as folder:
        _redirect_temporary_files(folder)
        problem = Path(folder) / "problem.py"
        problem.write_text(source, encoding="utf-8")
        try:
            forms = [call_form(problem, values, Dtype(order["dtype"])) for values in workloads]
            order["forms"] = [asdict(form) for form in forms]
        except Exception as error:  # noqa: BLE001  # a problem may raise anything where values are missing
            order["trouble"] = _describe_error(error, problem)
    answer.send_bytes(json.dumps(order).encode())
    answer.close()


def _redirect_temporary_files(folder: str) -> None:
    """Redirect temporary files and compilers' caches to ``folder``, which is removed with this process."""
    tempfile.tempdir = folder
    for setting in ("TMPDIR", "HOME", "XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR", *PLACES.values()):
        os.environ[setting] = folder


def _describe_error(error: Exception, problem: Path) -> str:
    """Describe an error for the candidate, without the problem's text that tracebacks and messages contain."""
    lines = [line for frame, line in traceback.walk_tb(error.__traceback__) if frame.f_code.co_filename == str(problem)]
    where = f" at line {lines[-1]} of the problem" if lines else ""
    return f"the inputs could not be made without values: {type(error).__name__}{where}\n"


def _form_from_json(form: Any) -> CallForm:
    from kernel_matrix.inside.build.call_forms import CallForm, TensorShape  # noqa: PLC0415  # brings torch

    shapes = tuple(TensorShape(t["dtype"], tuple(t["size"]), tuple(t["stride"])) for t in form["tensors"])
    return CallForm(tuple(form["init"]), tuple(form["inputs"]), shapes)


# ---- sending the artifact


def _send_artifact(channel: Channel, platform: InsidePlatform, log: str) -> None:
    kernels: List[KernelCode] = []
    for _, folder in folders():
        kernels += platform.kernels_in(folder, log)
    writer = io.BufferedWriter(FrameWriter(channel), buffer_size=MAX_CHUNK)
    pack(writer)
    writer.flush()
    if kernels:
        channel.send(FrameKind.CODE, 0, pack_code(kernels[:MAX_KERNELS]))
    channel.send(FrameKind.DONE, 0, log.encode()[-MAX_LOG:])


def main(argv: Optional[Sequence[str]] = None) -> int:
    """Build one candidate; the host ignores the exit code."""
    parser = argparse.ArgumentParser(prog="build")
    parser.add_argument("--channel", type=Path, required=True)
    parser.add_argument("--code", type=Path, required=True)
    parser.add_argument("--file", default="candidate.py")
    parser.add_argument("--device", required=True, help="name of the platform to compile for")
    parser.add_argument("--ahead", action="store_true")
    arguments = parser.parse_args(argv)
    os.nice(_NICE)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with short_name(arguments.channel / SOCKET_NAME) as name:
        connection.connect(name)
    refuse_connections()
    channel = Channel(connection, MAX_FROM_JUDGE)
    build(channel, arguments.code / arguments.file, load_platform(arguments.device), ahead=arguments.ahead)
    channel.close()
    return 0


if __name__ == "__main__":
    leave(main())
