"""Binary, bounded frames between judge, workers, builders and host; nothing is pickled.

A frame has a fixed header (magic, kind, sequence number, payload length) and a payload. The judge's frames may carry
file descriptors and JSON, since a worker trusts its judge. A worker or builder only sends fixed structures and short
text. The judge parses nothing else, and receives no file descriptors because it never asks the kernel for them.
"""

from __future__ import annotations

import json
import math
import os
import re
import socket
import struct
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path
from typing import Any, Iterator, List, Optional, Sequence, Tuple

MAGIC = b"KMX1"
HEADER = struct.Struct("<4sBxHIQ")  # magic, kind, number of descriptors, payload bytes, sequence number

MAX_TEXT = 16 << 10  # bytes of a text from a worker
MAX_FROM_WORKER = 64 << 10  # bytes of a payload from a worker
MAX_FROM_JUDGE = 16 << 20  # bytes of a payload from the judge
AWAKE_S = 0.25  # both sides of a GPU session poll this long for the next frame before they sleep
MAX_CHUNK = 1 << 20  # bytes of a payload from a builder
MAX_DESCRIPTORS = 16  # in one frame of the judge's: two for each of eight ranks
READ_AHEAD = 4 << 10  # bytes that may be received together with a frame that is waited for
MAX_OUTPUTS = 256
MOST_PLACES = MAX_FROM_WORKER // 8  # outputs of a batch whose places fit into one frame
MAX_KERNELS = 256  # kernels that a worker or builder may name in one frame
MAX_NAME = 200  # bytes of a kernel's name in UTF-8; longer names are cut
MAX_DIMENSIONS = 16
MAX_DEVICE_NS = (1 << 63) - 1  # largest device time: the limit of a signed 64-bit column
MAX_CLAIMED_BYTES = 1 << 50  # largest peak of device memory: more than any device has


class FrameKind(IntEnum):
    """Kind of a frame."""

    LOAD = 1
    """Judge → worker: import the source (JSON)."""
    MODEL = 2
    """Judge → worker: construct the model (JSON, one descriptor: parameters)."""
    BUFFERS = 3
    """Judge → worker: buffers of the following calls (JSON, two descriptors: inputs, outputs)."""
    CALL = 4
    """Judge → worker: the inputs are written, run once."""
    BYE = 6
    """Judge → worker: end."""
    OPEN = 7
    """Judge → worker: the device is leased, open it."""
    REPLAY = 8
    """Judge → worker: the inputs are written, run a number of times back to back; the claim is the time of all."""
    TRACE = 9
    """Judge → worker: run once with a tracer attached; ``TRACED`` follows ``OUTPUTS``."""
    PAUSE = 10
    """Judge → host: stop the candidate's processes."""
    RESUME = 11
    """Judge → host: let the candidate's processes run on."""
    BATCH_BUFFERS = 12
    """Judge → worker: where the sets of the following batches lie (JSON, two descriptors: inputs, outputs); ``READY``
    says whether the calls could be captured, and whether their outputs lie in the judge's memory."""
    HAND_OVER = 13
    """Judge → worker: hand the last call's outputs over, for which there are places only now."""
    CALLS = 14
    """Judge → worker: the inputs of a batch are there. Let the device switch to this process, say ``BEGUN``, call on
    these sets one after the other, and hand all outputs over; ``DONE`` brings no claim."""
    RELEASE = 15
    """Judge → worker: give back device memory that is kept without use, and remember how much calls needed if asked to;
    ``READY`` then brings the peak since before."""
    READY = 16
    """Worker → judge, host → judge: the order is carried out."""
    DONE = 17
    """Worker → judge: the call has ended; claimed device time."""
    OUTPUTS = 18
    """Worker → judge: structure of the outputs, which are in the output buffer."""
    FAILED = 19
    """Worker or builder: the order failed; kind of failure and text."""
    CHUNK = 20
    """Builder → host: bytes of the artifact."""
    TRACED = 21
    """Worker → judge: the kernels that ran during the call."""
    CODE = 22
    """Builder → host: properties of each compiled kernel."""
    PLACES = 23
    """Worker → judge, after ``OUTPUTS`` of a batch whose outputs lie in the judge's memory: where each of them does."""
    BEGUN = 24
    """Worker → judge: the calls of the batch begin; how long the device took to switch to this process."""


class CallFailure(IntEnum):
    """Kind of failure that a worker reports."""

    COMPILE = 1
    LOAD = 2
    RUNTIME = 3
    MEMORY = 4


class OutputAlias(IntEnum):
    """Memory that an output shares, according to the worker."""

    NONE = 0
    """Its own memory only."""
    INPUT = 1
    """Memory of the inputs."""
    OUTPUT = 2
    """Memory of another output of the same call."""
    EARLIER = 3
    """Memory of an output of the previous call, which the candidate kept."""


class Structure(IntEnum):
    """Type that a model returned."""

    TENSOR = 0
    TUPLE = 1
    LIST = 2
    OTHER = 3


Places = Tuple[Tuple[int, ...], ...]
"""Offset in bytes of each output of each call."""


class WireError(Exception):
    """The peer sent data that no honest peer sends."""


class PeerGoneError(Exception):
    """The peer closed the connection."""


# torch dtype names; the index is the code on the wire, and 255 means any other dtype.
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


@dataclass(frozen=True)
class KernelCode:
    """Properties of one kernel, compiled for one architecture."""

    name: str
    compute_capability: str
    """``9.0`` for ``sm_90`` and ``sm_90a``, or a name such as ``gfx942``."""
    registers: int
    """Registers per thread."""
    spill_store_bytes: int
    spill_load_bytes: int
    shared_bytes: int
    """Shared memory per block that is known at compile time (for Triton, all of it)."""
    stack_bytes: int
    sha256: str
    """Digest of the machine code, 64 hex digits; equal code has an equal digest for every toolchain."""
    scalar_registers: Optional[int] = None
    """Registers per warp; None for a device that has none of its own for them."""
    accumulator_registers: Optional[int] = None
    """Of ``registers``, those that only matrix instructions use; None for a device that does not tell them apart."""
    threads: Optional[int] = None
    """Threads per block; None if it is not known at compile time."""
    matrix_instructions: Optional[Tuple[str, ...]] = None
    """Families of instructions for matrix products that the kernel uses, sorted; None if its assembly is not known."""


@dataclass(frozen=True)
class OutputClaim:
    """One output, as the worker describes it."""

    dtype: str
    shape: Tuple[int, ...]
    same_device: bool
    copied: bool
    """True if it was copied into the output buffer, which requires the expected shape and dtype."""
    contiguous: bool = True
    """True if its elements are contiguous in row-major order."""
    alias: OutputAlias = OutputAlias.NONE


@dataclass(frozen=True)
class OutputsClaim:
    """All outputs of one call, as the worker describes them."""

    structure: Structure
    outputs: Tuple[OutputClaim, ...]
    captured: bool = False
    """True if calls were replayed from a CUDA graph; False for single calls, and if the capture failed."""


@contextmanager
def short_name(path: Path) -> Iterator[str]:
    """Provide another name of ``path`` that fits into a socket's 107 bytes, however deep its folder is."""
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)


class Channel:
    """One end of a connection.

    It makes few system calls, since each takes some 10 µs on virtual machines, by which a batch of short calls would
    seem longer. A method of a Python socket with a timeout makes two or three.
    """

    def __init__(self, connection: socket.socket, max_payload: int) -> None:
        self._socket = connection
        self._max_payload = max_payload
        self._awake_s = 0.0
        self._read = bytearray()  # what was received and not asked for yet

    def stay_awake(self, seconds: float) -> None:
        """Poll up to ``seconds`` for each frame from now on, before sleeping until it comes.

        A process that sleeps wakes up tens of microseconds late, by a varying amount, which is too much for a clock.
        Polling costs a core.
        """
        self._awake_s = seconds

    def settimeout(self, seconds: Optional[float]) -> None:
        """Limit the wait for a header, for a payload, and for sending; :class:`socket.timeout` is raised after it."""
        if self._socket.gettimeout() != seconds:
            self._socket.settimeout(seconds)

    def send(self, kind: FrameKind, sequence: int = 0, payload: bytes = b"", descriptors: Sequence[int] = ()) -> None:
        """Send one frame.

        Raises:
            PeerGoneError: If the peer has closed the connection.
        """
        frame = HEADER.pack(MAGIC, kind, len(descriptors), len(payload), sequence) + payload
        try:
            sent = socket.send_fds(self._socket, [frame], list(descriptors)) if descriptors else self._write(frame)
            if sent < len(frame):
                self._socket.sendall(memoryview(frame)[sent:])
        except (BrokenPipeError, ConnectionResetError):
            raise PeerGoneError from None

    def send_json(self, kind: FrameKind, document: Any, descriptors: Sequence[int] = ()) -> None:
        """Send a frame whose payload is JSON (judge → worker only)."""
        self.send(kind, 0, json.dumps(document, allow_nan=False).encode(), descriptors)

    def receive(self) -> Tuple[FrameKind, int, bytes]:
        """Return kind, sequence number and payload of the next frame; descriptors are refused.

        Raises:
            PeerGoneError: At the end of the stream.
            WireError: For a malformed frame, or one that is too long.
        """
        kind, announced, length, sequence = self._open(self._exactly(HEADER.size, READ_AHEAD))
        if announced:
            raise WireError(f"{kind.name} announces {announced} descriptors; none are taken here")
        return kind, sequence, self._exactly(length, READ_AHEAD)

    def receive_with_descriptors(self) -> Tuple[FrameKind, int, bytes, List[int]]:
        """Receive like :meth:`receive`, with the frame's descriptors (worker's side only)."""
        first, descriptors = self._receive_first()
        try:
            kind, expected, length, sequence = self._open(first + self._exactly(HEADER.size - len(first)))
            payload = self._exactly(length)
            _check_count(kind, expected, descriptors)
        except BaseException:
            for descriptor in descriptors:
                os.close(descriptor)
            raise
        return kind, sequence, payload, descriptors

    @property
    def has_read(self) -> bool:
        """True if more was received than the frames that were asked for."""
        return bool(self._read)

    def close(self) -> None:
        """Close this end."""
        self._socket.close()

    def _write(self, frame: bytes) -> int:
        """Write as much of ``frame`` as can be written without waiting; return how much that is."""
        try:
            return os.write(self._socket.fileno(), frame)
        except BlockingIOError:
            return 0

    def _receive_first(self) -> Tuple[bytes, List[int]]:
        """Receive the first bytes of a frame, with its descriptors."""
        until = time.monotonic() + self._awake_s
        while True:
            flags = socket.MSG_DONTWAIT if time.monotonic() < until else 0
            try:
                first, descriptors, _, _ = socket.recv_fds(self._socket, HEADER.size, MAX_DESCRIPTORS, flags)
            except BlockingIOError:
                continue
            except ConnectionResetError:
                raise PeerGoneError from None
            if not first:
                raise PeerGoneError
            return first, descriptors

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

    def _exactly(self, count: int, ahead: int = 0) -> bytes:
        """Return the next ``count`` bytes; up to ``ahead`` more may be received, and are kept for the next time."""
        if len(self._read) < count:
            self._fill(count, ahead)
        taken = bytes(self._read[:count])
        del self._read[:count]
        return taken

    def _fill(self, count: int, ahead: int) -> None:
        """Receive until there are ``count`` bytes.

        The time for it is limited as a whole: a peer that sends byte by byte must not delay the judge forever.
        """
        patience = self._socket.gettimeout()
        deadline = math.inf if patience is None else time.monotonic() + patience
        try:
            while len(self._read) < count:
                most = min(count - len(self._read) + ahead, 1 << 20)
                part = self._poll(most, deadline) or self._sleep(most, deadline)
                if not part:
                    raise PeerGoneError
                self._read += part
        except ConnectionResetError:
            raise PeerGoneError from None
        finally:
            self.settimeout(patience)

    def _poll(self, most: int, deadline: float) -> bytes:
        """Return what arrives while the process stays awake; empty if nothing does, or if the stream has ended."""
        until = min(time.monotonic() + self._awake_s, deadline)
        while self._awake_s and time.monotonic() < until:
            with suppress(BlockingIOError):
                return os.read(self._socket.fileno(), most)
        return b""

    def _sleep(self, most: int, deadline: float) -> bytes:
        """Return what arrives until the deadline; empty if the stream has ended."""
        if deadline < math.inf:
            left = deadline - time.monotonic()
            if left <= 0:
                raise socket.timeout("timed out")
            self._socket.settimeout(left)
        return self._socket.recv(most)


def _check_count(kind: FrameKind, announced: int, descriptors: Sequence[int]) -> None:
    if len(descriptors) != announced:
        raise WireError(f"{kind.name} announced {announced} descriptors and brought {len(descriptors)}")


_REPLAY = struct.Struct("<I")
_NUMBER = struct.Struct("<Q")
_LENT = struct.Struct("<?Q")
_OUTPUTS = struct.Struct("<BBH")
_OUTPUT = struct.Struct("<BBBBBB")


def pack_replay(count: int) -> bytes:
    """Return the payload of ``REPLAY``."""
    return _REPLAY.pack(count)


def unpack_replay(payload: bytes) -> int:
    """Return the number of calls to replay (worker's side: the judge is trusted)."""
    (count,) = _REPLAY.unpack(payload)
    return int(count)


def pack_calls(chunks: Sequence[int]) -> bytes:
    """Return the payload of ``CALLS``: numbers of the chunks of sets to call on, in this order."""
    return struct.pack(f"<{len(chunks)}H", *chunks)


def unpack_calls(payload: bytes) -> Tuple[int, ...]:
    """Return the chunks of sets to call on (worker's side: the judge is trusted)."""
    return struct.unpack(f"<{len(payload) // 2}H", payload)


def pack_lent(*, captured: bool, pool_bytes: int) -> bytes:
    """Return the payload of ``READY`` after ``BATCH_BUFFERS``; ``pool_bytes`` is 0 where outputs are copied."""
    return _LENT.pack(captured, pool_bytes)


def unpack_lent(payload: bytes, most_bytes: int) -> Tuple[bool, int]:
    """Return whether calls are captured, and how much of the memory for outputs a pool uses, at most ``most_bytes``.

    Raises:
        WireError: If the payload is not a flag and a number, or the number is too large.
    """
    try:
        captured, pool_bytes = _LENT.unpack(payload)
    except struct.error:
        raise WireError("a READY frame is not a flag and a number") from None
    if pool_bytes > most_bytes:
        raise WireError(f"a READY frame claims {pool_bytes} of {most_bytes} bytes")
    return bool(captured), int(pool_bytes)


def pack_begun(switched_ns: int) -> bytes:
    """Return the payload of ``BEGUN``."""
    return _NUMBER.pack(switched_ns)


def unpack_begun(payload: bytes) -> int:
    """Return how long the device took to switch to a worker, as it says, nanoseconds.

    Raises:
        WireError: If the payload is not one number, or too large for a record.
    """
    return _unpack_number(payload, "BEGUN", MAX_DEVICE_NS, "ns")


def pack_places(places: Sequence[int]) -> bytes:
    """Return the payload of ``PLACES``; empty where an output lies elsewhere."""
    return struct.pack(f"<{len(places)}Q", *places)


def unpack_places(payload: bytes, outputs: Sequence[Tuple[int, int]], calls: int, most_bytes: int) -> Places:
    """Return where the outputs of each call begin; empty if one of them lies elsewhere.

    Args:
        payload: The frame's payload.
        outputs: (bytes, bytes of an element) of each output of a call.
        calls: Number of calls.
        most_bytes: Size of the memory in which they all lie.

    Raises:
        WireError: If there are too few or too many, or outputs overlap, leave the memory or lie across elements.
    """
    if not payload:
        return ()
    if len(payload) != 8 * calls * len(outputs):
        raise WireError(f"a PLACES frame of {len(payload)} bytes for {calls} calls of {len(outputs)} outputs")
    numbers = struct.unpack(f"<{calls * len(outputs)}Q", payload)
    spans = [(start, *outputs[k % len(outputs)]) for k, start in enumerate(numbers)]
    if any(start % element or start + nbytes > most_bytes for start, nbytes, element in spans):
        raise WireError(f"an output does not lie in the {most_bytes} bytes for outputs")
    if do_overlap([(start, nbytes) for start, nbytes, _ in spans]):
        raise WireError("outputs overlap")
    return tuple(numbers[k : k + len(outputs)] for k in range(0, len(numbers), len(outputs)))


def do_overlap(spans: Sequence[Tuple[int, int]]) -> bool:
    """Return True if two of these pieces of memory, each (start, bytes), have a byte in common."""
    end = 0
    for start, nbytes in sorted(span for span in spans if span[1]):
        if start < end:
            return True
        end = start + nbytes
    return False


def pack_peak(peak_bytes: Optional[int]) -> bytes:
    """Return the payload of ``READY`` after ``RELEASE``; None, where a platform counts nothing, is empty."""
    return b"" if peak_bytes is None else _NUMBER.pack(peak_bytes)


def unpack_peak(payload: bytes) -> Optional[int]:
    """Return the claimed peak of device memory in bytes; None if the worker cannot say.

    Raises:
        WireError: If the payload is not one number, or too large for a record.
    """
    if not payload:
        return None
    return _unpack_number(payload, "READY", MAX_CLAIMED_BYTES, "bytes")


def pack_done(device_ns: int) -> bytes:
    """Return the payload of ``DONE``."""
    return _NUMBER.pack(device_ns)


def unpack_done(payload: bytes) -> int:
    """Return the claimed device time in nanoseconds.

    Raises:
        WireError: If the payload is not one number, or too large for a record.
    """
    return _unpack_number(payload, "DONE", MAX_DEVICE_NS, "ns")


def _unpack_number(payload: bytes, frame: str, most: int, unit: str) -> int:
    try:
        (claimed,) = _NUMBER.unpack(payload)
    except struct.error:
        raise WireError(f"a {frame} frame is not one number") from None
    if claimed > most:
        raise WireError(f"a {frame} frame claims {claimed} {unit}; {most} are allowed")
    return int(claimed)


def pack_failed(failure: CallFailure, text: str) -> bytes:
    """Return the payload of ``FAILED``; of a text that is too long, the end is kept, which holds the error."""
    return bytes([failure]) + text.encode("utf-8", "replace")[-MAX_TEXT:]


def unpack_failed(payload: bytes) -> Tuple[CallFailure, str]:
    """Return kind of failure and text.

    Raises:
        WireError: If the kind is unknown or the text is too long.
    """
    if not payload or len(payload) > MAX_TEXT + 1:
        raise WireError("a FAILED frame is empty or too long")
    try:
        return CallFailure(payload[0]), payload[1:].decode("utf-8", "replace")
    except ValueError:
        raise WireError(f"unknown failure {payload[0]}") from None


def pack_outputs(claim: OutputsClaim) -> bytes:
    """Return the payload of ``OUTPUTS``."""
    parts = [_OUTPUTS.pack(claim.structure, claim.captured, len(claim.outputs))]
    for output in claim.outputs:
        code = DTYPE_CODES.index(output.dtype) if output.dtype in DTYPE_CODES else 255
        flags = (output.same_device, output.copied, output.contiguous, output.alias)
        parts.append(_OUTPUT.pack(code, len(output.shape), *flags))
        parts.append(struct.pack(f"<{len(output.shape)}Q", *output.shape))
    return b"".join(parts)


def unpack_outputs(payload: bytes) -> OutputsClaim:
    """Return the worker's description of its outputs.

    Raises:
        WireError: For a payload that :func:`pack_outputs` cannot make.
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
        raise WireError("an OUTPUTS frame has extra bytes, or flags that are neither 0 nor 1")
    return claim


_COUNT = struct.Struct("<H")
_TRACED = struct.Struct("<HIQ")
_CODE = struct.Struct("<HHiIIIIiii32s")
_UNKNOWN = -1
"""Number for a property that is not known."""
_NOT_READ = "-"
"""Word in place of instructions where the assembly is not known."""
_CODE_WORDS = re.compile(
    r"(?P<of>[0-9]{1,2}\.[0-9]|[a-z][a-z0-9]{2,15})(?P<uses>(?: [a-z0-9_]{1,16}){0,8}| -)", re.ASCII
)
"""Compute capability, and the families of matrix instructions that the kernel uses."""
_MAX_WORDS = 16 + 8 * 17
"""Most bytes of a text that matches."""


def pack_traced(kernels: Sequence[Tuple[str, int, int]]) -> bytes:
    """Return the payload of ``TRACED``: (name, launches, device ns) of the first ``MAX_KERNELS`` kernels."""
    parts = [_COUNT.pack(len(kernels[:MAX_KERNELS]))]
    for name, launches, device_ns in kernels[:MAX_KERNELS]:
        text = _name_bytes(name)
        parts += [_TRACED.pack(len(text), launches, device_ns), text]
    return b"".join(parts)


def unpack_traced(payload: bytes) -> List[Tuple[str, int, int]]:
    """Return (name, launches, device ns) of each kernel.

    Raises:
        WireError: For a payload that :func:`pack_traced` cannot make.
    """
    kernels = [(name, launches, device_ns) for name, (launches, device_ns) in _unpack_named(payload, _TRACED)]
    if any(device_ns > MAX_DEVICE_NS for _, _, device_ns in kernels):
        raise WireError(f"a kernel claims more than {MAX_DEVICE_NS} ns")
    return kernels


def pack_code(kernels: Sequence[KernelCode]) -> bytes:
    """Return the payload of ``CODE``, with the first ``MAX_KERNELS`` kernels."""
    parts = [_COUNT.pack(len(kernels[:MAX_KERNELS]))]
    for kernel in kernels[:MAX_KERNELS]:
        uses = (_NOT_READ,) if kernel.matrix_instructions is None else kernel.matrix_instructions
        name, words = _name_bytes(kernel.name), " ".join((kernel.compute_capability, *uses)).encode()
        sizes = (kernel.registers, kernel.spill_store_bytes, kernel.spill_load_bytes)
        memory = (kernel.shared_bytes, kernel.stack_bytes)
        unknown = (kernel.scalar_registers, kernel.accumulator_registers, kernel.threads)
        numbers = (*sizes, *memory, *(_UNKNOWN if number is None else number for number in unknown))
        lengths = (len(name) + len(words), len(words))
        parts += [_CODE.pack(*lengths, *numbers, bytes.fromhex(kernel.sha256)), name, words]
    return b"".join(parts)


def unpack_code(payload: bytes) -> List[KernelCode]:
    """Return the properties of each kernel.

    Raises:
        WireError: For a payload that :func:`pack_code` cannot make.
    """
    return [_kernel_code(text, rest) for text, rest in _unpack_named(payload, _CODE, most=MAX_NAME + _MAX_WORDS)]


def _kernel_code(text: str, rest: Tuple[Any, ...]) -> KernelCode:
    """Return a kernel's properties from its name with the words behind it, and from its numbers."""
    end, registers, stores, loads, shared, stack, scalar, accumulator, threads, digest = rest
    name = text[: len(text) - end]
    words = _CODE_WORDS.fullmatch(text, len(name))
    if words is None or end > len(text) or registers < 0 or min(scalar, accumulator, threads) < _UNKNOWN or not threads:
        raise WireError("the properties of a kernel are malformed")
    uses = tuple(words["uses"].split())
    return KernelCode(
        name=name,
        compute_capability=words["of"],
        registers=registers,
        spill_store_bytes=stores,
        spill_load_bytes=loads,
        shared_bytes=shared,
        stack_bytes=stack,
        sha256=digest.hex(),
        scalar_registers=_known(scalar),
        accumulator_registers=_known(accumulator),
        threads=_known(threads),
        matrix_instructions=None if uses == (_NOT_READ,) else uses,
    )


def _known(number: int) -> Optional[int]:
    return None if number == _UNKNOWN else number


def _name_bytes(name: str) -> bytes:
    return name.encode("utf-8", "replace")[:MAX_NAME].decode("utf-8", "ignore").encode()


def _unpack_named(payload: bytes, layout: struct.Struct, most: int = MAX_NAME) -> List[Tuple[str, Tuple[Any, ...]]]:
    """Return (text, other fields) of each entry of a counted list.

    An entry starts with the length of its text, at most ``most`` bytes, which follows it.
    """
    try:
        (count,), offset = _COUNT.unpack_from(payload), _COUNT.size
        if count > MAX_KERNELS:
            raise WireError(f"{count} kernels; {MAX_KERNELS} are allowed")
        found = []
        for _ in range(count):
            length, *rest = layout.unpack_from(payload, offset)
            offset += layout.size
            text = payload[offset : offset + length]
            if length > most or len(text) != length:
                raise WireError("the name of a kernel is too long, or cut off")
            offset += length
            found.append((text.decode("utf-8"), tuple(rest)))
    except (struct.error, UnicodeDecodeError) as error:
        raise WireError(f"a list of kernels is malformed: {error}") from None
    if offset != len(payload):
        raise WireError("a list of kernels has extra bytes")
    return found
