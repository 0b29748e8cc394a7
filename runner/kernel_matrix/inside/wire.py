"""Frames across the trust boundary: binary, bounded, never pickled.

A frame is a fixed header (magic, kind, sequence number, payload length) and a payload. What the judge sends may carry
file descriptors and JSON, since a worker trusts its judge. What a worker or builder sends is fixed structures and short
text: the judge parses nothing else of it, and refuses file descriptors by never asking the kernel for them.
"""

from __future__ import annotations

import json
import os
import select
import socket
import struct
import time
from contextlib import contextmanager
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Iterator, List, Sequence, Tuple

MAGIC = b"KMX1"
HEADER = struct.Struct("<4sBxHIQ")
"""magic, kind, descriptors sent along, payload length in bytes, sequence number."""

MAX_TEXT = 16 << 10
"""Longest text a worker may send, bytes."""
MAX_FROM_WORKER = 64 << 10
"""Longest payload the judge reads from a worker, bytes."""
MAX_FROM_JUDGE = 16 << 20
AWAKE_S = 0.25
"""How long both sides of a GPU's session look out for each other's next frame without sleeping, seconds."""
MAX_CHUNK = 1 << 20
"""Longest payload the host reads from a builder, bytes."""
MAX_DESCRIPTORS = 8
MAX_OUTPUTS = 256
MAX_KERNELS = 256
"""Most kernels a worker or builder may name in one frame."""
MAX_NAME = 200
"""Longest name of a kernel, bytes of UTF-8; a longer one is cut."""
MAX_DIMENSIONS = 16
MAX_DEVICE_NS = (1 << 63) - 1
"""Longest device time a worker may claim: what a signed 64-bit column holds."""


class FrameKind(IntEnum):
    """What a frame says."""

    LOAD = 1
    """Judge → worker: import the source (JSON)."""
    MODEL = 2
    """Judge → worker: construct the model (JSON, one descriptor: parameters)."""
    BUFFERS = 3
    """Judge → worker: these are the buffers of the calls to come (JSON, two descriptors: inputs, outputs)."""
    CALL = 4
    """Judge → worker: inputs lie ready, run once."""
    PROBE = 5
    """Judge → baseline's worker: do all of a call but the model's part; calibrates the judge's clock."""
    BYE = 6
    """Judge → worker: end."""
    OPEN = 7
    """Judge → worker: the device is ours now, open it."""
    REPLAY = 8
    """Judge → worker: inputs lie ready, run so many times back to back; the time claimed is that of all."""
    TRACE = 9
    """Judge → worker: a call like any other, with a tracer attached; ``TRACED`` follows ``OUTPUTS``."""
    READY = 16
    """Worker → judge: done as told."""
    DONE = 17
    """Worker → judge: the call is over; claimed device time."""
    OUTPUTS = 18
    """Worker → judge: what came back and that it lies in the output buffer."""
    FAILED = 19
    """Worker or builder: it did not work; kind of failure and text."""
    CHUNK = 20
    """Builder → host: bytes of the artefact."""
    TRACED = 21
    """Worker → judge: the kernels that ran during the call."""
    CODE = 22
    """Builder → host: what is known of each kernel that was compiled."""


class CallFailure(IntEnum):
    """Which kind of failure a worker reports about itself."""

    COMPILE = 1
    LOAD = 2
    RUNTIME = 3
    MEMORY = 4


class OutputAlias(IntEnum):
    """What memory an output shares, as the worker saw it."""

    NONE = 0
    """None but its own."""
    INPUT = 1
    """That of the inputs."""
    OUTPUT = 2
    """That of another output of the same call."""
    EARLIER = 3
    """That of an output of the call before, which the candidate kept."""


class Structure(IntEnum):
    """What a model returned."""

    TENSOR = 0
    TUPLE = 1
    LIST = 2
    OTHER = 3


class WireError(Exception):
    """The other side sent something that no honest peer sends."""


class PeerGoneError(Exception):
    """The other side closed the connection."""


DTYPE_CODES: Tuple[str, ...] = (
    "float32",
    "float16",
    "bfloat16",
    "float64",
    "int64",
    "int32",
    "int16",
    "int8",
    "uint8",
    "bool",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
)
"""torch dtype names; their position is their code on the wire. 255 means any other."""


@dataclass(frozen=True)
class KernelCode:
    """What a compiler made of one kernel, for one architecture."""

    name: str
    arch: int
    """Compute capability × 10: 90 for ``sm_90`` and ``sm_90a``."""
    registers: int
    """Registers per thread."""
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    """Shared memory per block known when compiled (for Triton all of it)."""
    stack_bytes: int
    sha256: str
    """Of the machine code: equal code, equal digest, whatever toolchain made it. 64 hex digits."""


@dataclass(frozen=True)
class OutputClaim:
    """One output as the worker describes it."""

    dtype: str
    shape: Tuple[int, ...]
    same_device: bool
    copied: bool
    """The worker copied it into the output buffer (shape and dtype are as asked)."""
    contiguous: bool = True
    """Its elements lie one behind the other, the last dimension first."""
    alias: OutputAlias = OutputAlias.NONE


@dataclass(frozen=True)
class OutputsClaim:
    """All outputs of one call as the worker describes them."""

    structure: Structure
    outputs: Tuple[OutputClaim, ...]
    captured: bool = False
    """Calls were replayed from a CUDA graph; false for single calls, and where capturing failed."""


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Another name of ``path`` that fits into a socket's 107 bytes, however deep its folder lies."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class Channel:
    """One end of a connection."""

    def __init__(self, connection: socket.socket, max_payload: int) -> None:
        self._socket = connection
        self._max_payload = max_payload
        self._awake_s = 0.0
        self._poll = select.poll()
        self._poll.register(connection, select.POLLIN)

    def stay_awake(self, seconds: float) -> None:
        """From now on look out for each frame without sleeping, for so long, before sleeping until it comes.

        Who sleeps wakes up tens of microseconds late, and never by the same: too much for a clock. Costs a core.
        """
        self._awake_s = seconds

    def settimeout(self, seconds: float) -> None:
        """Longest wait for a header, for a payload, or until all is sent; :class:`socket.timeout` is raised past it."""
        self._socket.settimeout(seconds)

    def send(self, kind: FrameKind, sequence: int = 0, payload: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        """Send one frame.

        :raises Gone: when the other side is not there any more.
        """
        header = HEADER.pack(MAGIC, kind, len(descriptors), len(payload), sequence)
        try:
            if descriptors:
                socket.send_fds(self._socket, [header], list(descriptors))
            else:
                self._socket.sendall(header)
            if payload:
                self._socket.sendall(payload)
        except (BrokenPipeError, ConnectionResetError):
            raise PeerGoneError from None

    def send_json(self, kind: FrameKind, document: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a frame whose payload is JSON (judge → worker only)."""
        self.send(kind, 0, json.dumps(document, allow_nan=False).encode(), descriptors)

    def receive(self) -> Tuple[FrameKind, int, bytes]:
        """Kind, sequence number and payload of the next frame; descriptors are refused.

        :raises Gone: at the end of the stream.
        :raises WireError: for anything malformed or too long.
        """
        self._look_out()
        kind, announced, length, sequence = self._open(self._exactly(HEADER.size))
        if announced:
            raise WireError(f"{kind.name} announces {announced} descriptors; none are taken here")
        return kind, sequence, self._exactly(length)

    def receive_with_descriptors(self) -> Tuple[FrameKind, int, bytes, List[int]]:
        """Like :meth:`receive`, and the descriptors that came along (worker's side only)."""
        self._look_out()
        try:
            first, descriptors, _, _ = socket.recv_fds(self._socket, HEADER.size, MAX_DESCRIPTORS)
        except ConnectionResetError:
            raise PeerGoneError from None
        if not first:
            raise PeerGoneError
        try:
            kind, expected, length, sequence = self._open(first + self._exactly(HEADER.size - len(first)))
            payload = self._exactly(length)
            _count(kind, expected, descriptors)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return kind, sequence, payload, descriptors

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _look_out(self) -> None:
        """Return when something has arrived, or it is time to sleep."""
        until = time.monotonic() + self._awake_s
        while self._awake_s and not self._poll.poll(0) and time.monotonic() < until:
            pass

    def _open(self, header: bytes) -> Tuple[FrameKind, int, int, int]:
        magic, code, descriptors, length, sequence = HEADER.unpack(header)
        if magic != MAGIC:
            raise WireError("a frame does not begin with the magic number")
        if length > self._max_payload:
            raise WireError(f"a frame announces {length} bytes; {self._max_payload} are allowed")
        try:
            return FrameKind(code), descriptors, length, sequence
        except ValueError:
            raise WireError(f"unknown frame kind {code}") from None

    def _exactly(self, count: int) -> bytes:
        parts = bytearray()
        patience = self._socket.gettimeout()
        deadline = None if patience is None else time.monotonic() + patience
        try:
            while len(parts) < count:
                parts += self._some(count - len(parts))
                if deadline is not None:
                    # One wait for all of it: a peer that sends byte by byte must not hold the judge for ever.
                    self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
        finally:
            self._socket.settimeout(patience)
        return bytes(parts)

    def _some(self, most: int) -> bytes:
        try:
            part = self._socket.recv(min(most, 1 << 20))
        except ConnectionResetError:
            raise PeerGoneError from None
        if not part:
            raise PeerGoneError
        return part


def _count(kind: FrameKind, announced: int, descriptors: Sequence[int]) -> None:
    if len(descriptors) != announced:
        raise WireError(f"{kind.name} announced {announced} descriptors and brought {len(descriptors)}")


_REPLAY = struct.Struct("<I")
_DONE = struct.Struct("<Q")
_OUTPUTS = struct.Struct("<BBH")
_OUTPUT = struct.Struct("<BBBBBB")


def pack_replay(count: int) -> bytes:
    """Payload of ``REPLAY``: how many calls."""
    return _REPLAY.pack(count)


def unpack_replay(payload: bytes) -> int:
    """How many calls to replay (worker's side: the judge's word is trusted)."""
    (count,) = _REPLAY.unpack(payload)
    return int(count)


def pack_done(device_ns: int) -> bytes:
    """Payload of ``DONE``: claimed device time in nanoseconds."""
    return _DONE.pack(device_ns)


def unpack_done(payload: bytes) -> int:
    """Claimed device time in nanoseconds.

    :raises WireError: when the payload is not one number, or one that no record could hold.
    """
    try:
        (device_ns,) = _DONE.unpack(payload)
    except struct.error:
        raise WireError("a DONE frame is not one number") from None
    if device_ns > MAX_DEVICE_NS:
        raise WireError(f"a DONE frame claims {device_ns} ns; {MAX_DEVICE_NS} are allowed")
    return int(device_ns)


def pack_failed(failure: CallFailure, text: str) -> bytes:
    """Payload of ``FAILED``; keeps the end of a text that is too long, where the error stands."""
    return bytes([failure]) + text.encode("utf-8", "replace")[-MAX_TEXT:]


def unpack_failed(payload: bytes) -> Tuple[CallFailure, str]:
    """Kind of failure and text.

    :raises WireError: when the kind is unknown or the text is too long.
    """
    if not payload or len(payload) > MAX_TEXT + 1:
        raise WireError("a FAILED frame is empty or too long")
    try:
        return CallFailure(payload[0]), payload[1:].decode("utf-8", "replace")
    except ValueError:
        raise WireError(f"unknown failure {payload[0]}") from None


def pack_outputs(claim: OutputsClaim) -> bytes:
    """Payload of ``OUTPUTS``."""
    parts = [_OUTPUTS.pack(claim.structure, claim.captured, len(claim.outputs))]
    for output in claim.outputs:
        code = DTYPE_CODES.index(output.dtype) if output.dtype in DTYPE_CODES else 255
        flags = (output.same_device, output.copied, output.contiguous, output.alias)
        parts.append(_OUTPUT.pack(code, len(output.shape), *flags))
        parts.append(struct.pack(f"<{len(output.shape)}Q", *output.shape))
    return b"".join(parts)


def unpack_outputs(payload: bytes) -> OutputsClaim:
    """What the worker says came back.

    :raises WireError: for anything that :func:`pack_outputs` would not have made.
    """
    try:
        structure, captured, count = _OUTPUTS.unpack_from(payload)
        if count > MAX_OUTPUTS:
            raise WireError(f"{count} outputs; {MAX_OUTPUTS} are allowed")
        offset = _OUTPUTS.size
        outputs = []
        for _ in range(count):
            code, dimensions, same_device, copied, contiguous, alias = _OUTPUT.unpack_from(payload, offset)
            if dimensions > MAX_DIMENSIONS:
                raise WireError(f"{dimensions} dimensions; {MAX_DIMENSIONS} are allowed")
            shape = struct.unpack_from(f"<{dimensions}Q", payload, offset + _OUTPUT.size)
            offset += _OUTPUT.size + 8 * dimensions
            dtype = DTYPE_CODES[code] if code < len(DTYPE_CODES) else "another dtype"
            flags = (bool(same_device), bool(copied), bool(contiguous), OutputAlias(alias))
            outputs.append(OutputClaim(dtype, shape, *flags))
        claim = OutputsClaim(Structure(structure), tuple(outputs), bool(captured))
    except (struct.error, ValueError) as error:
        raise WireError(f"an OUTPUTS frame is malformed: {error}") from None
    if pack_outputs(claim) != payload:
        raise WireError("an OUTPUTS frame holds more than its outputs, or numbers where yes or no is due")
    return claim


_COUNT = struct.Struct("<H")
_TRACED = struct.Struct("<HIQ")
_CODE = struct.Struct("<HHIIIII32s")


def pack_traced(kernels: Sequence[Tuple[str, int, int]]) -> bytes:
    """Payload of ``TRACED``: (name, launches, device nanoseconds) of each kernel, the first ``MAX_KERNELS``."""
    parts = [_COUNT.pack(len(kernels[:MAX_KERNELS]))]
    for name, launches, device_ns in kernels[:MAX_KERNELS]:
        text = _name_bytes(name)
        parts += [_TRACED.pack(len(text), launches, device_ns), text]
    return b"".join(parts)


def unpack_traced(payload: bytes) -> List[Tuple[str, int, int]]:
    """What :func:`pack_traced` packed.

    :raises WireError: for anything that it would not have made.
    """
    kernels = [(name, launches, device_ns) for name, (launches, device_ns) in _unpack_named(payload, _TRACED)]
    if any(device_ns > MAX_DEVICE_NS for _, _, device_ns in kernels):
        raise WireError(f"a kernel claims more than {MAX_DEVICE_NS} ns")
    return kernels


def pack_code(kernels: Sequence[KernelCode]) -> bytes:
    """Payload of ``CODE``, the first ``MAX_KERNELS``."""
    parts = [_COUNT.pack(len(kernels[:MAX_KERNELS]))]
    for kernel in kernels[:MAX_KERNELS]:
        text = _name_bytes(kernel.name)
        sizes = (kernel.registers, kernel.spill_store_bytes, kernel.spill_load_bytes)
        memory = (kernel.shared_bytes, kernel.stack_bytes)
        parts += [_CODE.pack(len(text), kernel.arch, *sizes, *memory, bytes.fromhex(kernel.sha256)), text]
    return b"".join(parts)


def unpack_code(payload: bytes) -> List[KernelCode]:
    """What :func:`pack_code` packed.

    :raises WireError: for anything that it would not have made.
    """
    found = []
    for name, (arch, registers, stores, loads, shared, stack, digest) in _unpack_named(payload, _CODE):
        found.append(KernelCode(name, arch, registers, stores, loads, shared, stack, digest.hex()))
    return found


def _name_bytes(name: str) -> bytes:
    return name.encode("utf-8", "replace")[:MAX_NAME].decode("utf-8", "ignore").encode()


def _unpack_named(payload: bytes, layout: struct.Struct) -> List[Tuple[str, Tuple[Any, ...]]]:
    """(name, other fields) of each entry of a counted list whose entries begin with the length of their name."""
    try:
        (count,), offset = _COUNT.unpack_from(payload), _COUNT.size
        if count > MAX_KERNELS:
            raise WireError(f"{count} kernels; {MAX_KERNELS} are allowed")
        found = []
        for _ in range(count):
            length, *rest = layout.unpack_from(payload, offset)
            offset += layout.size
            text = payload[offset : offset + length]
            if length > MAX_NAME or len(text) != length:
                raise WireError("the name of a kernel is too long, or cut off")
            offset += length
            found.append((text.decode("utf-8"), tuple(rest)))
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"a list of kernels is malformed: {error}") from None
    if offset != len(payload):
        raise WireError("a list of kernels holds more than its kernels")
    return found
