"""Frames: all kinds cross unchanged, and a hostile peer's bytes can only end the connection."""

import array
import os
import socket
import struct
import threading
import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_matrix.inside.wire import (
    DTYPE_CODES,
    HEADER,
    MAGIC,
    MAX_DEVICE_NS,
    MAX_DIMENSIONS,
    MAX_FROM_JUDGE,
    MAX_FROM_WORKER,
    MAX_KERNELS,
    MAX_NAME,
    MAX_OUTPUTS,
    MAX_TEXT,
    CallFailure,
    Channel,
    FrameKind,
    KernelCode,
    OutputAlias,
    OutputClaim,
    OutputsClaim,
    PeerGoneError,
    Structure,
    WireError,
    do_overlap,
    pack_begun,
    pack_calls,
    pack_code,
    pack_done,
    pack_failed,
    pack_lent,
    pack_outputs,
    pack_places,
    pack_replay,
    pack_traced,
    unpack_begun,
    unpack_calls,
    unpack_code,
    unpack_done,
    unpack_failed,
    unpack_lent,
    unpack_outputs,
    unpack_places,
    unpack_replay,
    unpack_traced,
)

LIMIT = 4096


@pytest.fixture
def pair():
    """Makes a raw socket and the channel at its other end, which takes ``LIMIT`` bytes a frame."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    channel = Channel(theirs, LIMIT)
    channel.settimeout(10)
    yield ours, channel
    ours.close()
    channel.close()


def header(magic=MAGIC, kind=FrameKind.READY, descriptors=0, length=0, sequence=0):
    return HEADER.pack(magic, kind, descriptors, length, sequence)


def open_descriptors():
    return {path.name for path in Path("/proc/self/fd").iterdir()}


@pytest.mark.parametrize("kind", FrameKind)
def test_every_kind_crosses_with_sequence_and_payload(kind, pair):
    raw, channel = pair
    Channel(raw, LIMIT).send(kind, 2**64 - 1, bytes(range(256)))
    assert channel.receive() == (kind, 2**64 - 1, bytes(range(256)))


def test_frames_come_one_after_the_other(pair):
    raw, channel = pair
    sender = Channel(raw, LIMIT)
    for sequence in range(3):
        sender.send(FrameKind.DONE, sequence, b"x" * sequence)
    assert [channel.receive() for _ in range(3)] == [(FrameKind.DONE, n, b"x" * n) for n in range(3)]


def test_the_longest_payload_crosses_and_one_byte_more_does_not(pair):
    raw, channel = pair
    sender = Channel(raw, LIMIT)
    sender.send(FrameKind.CHUNK, 0, b"x" * LIMIT)
    assert len(channel.receive()[2]) == LIMIT
    sender.send(FrameKind.CHUNK, 0, b"x" * (LIMIT + 1))
    with pytest.raises(WireError, match="announces 4097 bytes; 4096 are allowed"):
        channel.receive()


MALFORMED = {
    "another magic": (header(magic=b"KMX2"), "magic"),
    "nothing but zeros": (bytes(HEADER.size), "magic"),
    "an unknown kind": (HEADER.pack(MAGIC, 99, 0, 0, 0), "unknown frame kind 99"),
    "a length without bounds": (header(length=2**32 - 1), "announces 4294967295 bytes"),
    "descriptors where none are taken": (header(descriptors=1), "announces 1 descriptors"),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_a_malformed_header_is_refused(name, pair):
    raw, channel = pair
    content, message = MALFORMED[name]
    raw.sendall(content)
    with pytest.raises(WireError, match=message):
        channel.receive()


@pytest.mark.parametrize("length", [0, 1, HEADER.size - 1, HEADER.size, HEADER.size + 9])
def test_a_frame_cut_short_means_that_the_peer_is_gone(length, pair):
    raw, channel = pair
    raw.sendall((header(length=10) + b"x" * 10)[:length])
    raw.close()
    with pytest.raises(PeerGoneError):
        channel.receive()


@pytest.mark.parametrize("receive", [Channel.receive, Channel.receive_with_descriptors])
def test_a_connection_that_was_reset_means_that_the_peer_is_gone(receive, pair):
    raw, channel = pair
    channel.send(FrameKind.CALL)
    raw.close()  # unread data makes it a reset
    with pytest.raises(PeerGoneError):
        receive(channel)
    with pytest.raises(PeerGoneError):
        channel.send(FrameKind.CALL)


FRAGMENTS = st.one_of(
    st.binary(max_size=64),
    st.builds(
        lambda magic, kind, descriptors, length, sequence, rest: (
            HEADER.pack(magic, kind, descriptors, length, sequence) + rest
        ),
        st.sampled_from([MAGIC, b"KMX0"]),
        st.integers(0, 255) | st.sampled_from([k.value for k in FrameKind]),
        st.integers(0, 3) | st.integers(0, 2**16 - 1),
        st.integers(0, 40) | st.integers(0, 2**32 - 1),
        st.integers(0, 2**64 - 1),
        st.binary(max_size=64),
    ),
)


@pytest.mark.parametrize("receive", [Channel.receive, Channel.receive_with_descriptors])
@settings(max_examples=300, deadline=None)
@given(content=st.lists(FRAGMENTS, max_size=4).map(b"".join))
def test_whatever_arrives_ends_in_a_wire_error_or_the_end(receive, content):
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    channel = Channel(theirs, LIMIT)
    channel.settimeout(10)
    try:
        ours.sendall(content)
        ours.close()
        with pytest.raises((WireError, PeerGoneError)):
            list(frames(receive, channel))
    finally:
        channel.close()


def frames(receive, channel):
    """Return all frames until an exception is raised."""
    while True:
        yield receive(channel)


def test_an_announced_length_allocates_nothing_by_itself(pair):
    raw, channel = pair
    trusting = Channel(channel._socket, MAX_FROM_JUDGE)
    raw.sendall(header(length=MAX_FROM_JUDGE))
    raw.close()
    tracemalloc.start()
    try:
        with pytest.raises(PeerGoneError):
            trusting.receive()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MAX_FROM_JUDGE / 4


@pytest.mark.parametrize("awake_s", [0.0, 5.0])
def test_receive_slow_bytes_share_one_timeout(awake_s, pair):
    raw, channel = pair
    channel.settimeout(0.2)
    channel.stay_awake(awake_s)
    stop = threading.Event()

    def drip():
        for byte in header():
            if stop.wait(0.05):
                return
            raw.sendall(bytes([byte]))

    thread = threading.Thread(target=drip)
    thread.start()
    try:
        with pytest.raises(socket.timeout):
            channel.receive()
    finally:
        stop.set()
        thread.join()


@pytest.mark.parametrize("awake_s", [0.0, 5.0])
def test_receive_frames_that_arrive_together_one_by_one(awake_s, pair):
    raw, channel = pair
    channel.stay_awake(awake_s)
    raw.sendall(b"".join(header(length=3 * n, sequence=n) + b"abc" * n for n in range(4)) + header(sequence=4)[:5])
    assert [channel.receive()[1:] for _ in range(4)] == [(n, b"abc" * n) for n in range(4)]
    raw.sendall(header(sequence=4)[5:])
    assert channel.receive()[1] == 4


@pytest.mark.parametrize("receive", ["receive", "receive_with_descriptors"])
def test_receive_awake_sees_the_end_of_the_stream(receive, pair):
    raw, channel = pair
    channel.stay_awake(5.0)
    raw.sendall(header()[:5])
    threading.Timer(0.05, raw.close).start()
    with pytest.raises(PeerGoneError):
        getattr(channel, receive)()


@pytest.mark.parametrize("receive", ["receive", "receive_with_descriptors"])
def test_receive_sleeps_when_nothing_came_while_awake(receive, pair):
    raw, channel = pair
    channel.stay_awake(0.02)
    threading.Timer(0.1, raw.sendall, [header(sequence=7)]).start()
    assert getattr(channel, receive)()[1] == 7


def test_send_of_more_than_the_peers_buffer_waits_for_it(pair):
    raw, channel = pair
    payload = os.urandom(1 << 20)
    sending = threading.Thread(target=channel.send, args=(FrameKind.READY, 1, payload))
    sending.start()
    received = b""
    while len(received) < HEADER.size + len(payload):
        received += raw.recv(1 << 16)
    sending.join()
    assert received[HEADER.size :] == payload


def test_the_patience_for_one_frame_does_not_shorten_the_next(pair):
    raw, channel = pair
    raw.sendall(header()[:3])
    threading.Timer(0.05, raw.sendall, [header()[3:]]).start()
    channel.receive()
    assert channel._socket.gettimeout() == 10


def test_descriptors_pass_from_judge_to_worker(pair):
    raw, channel = pair
    files = [os.memfd_create(f"file-{n}") for n in range(2)]
    try:
        for number, file in enumerate(files):
            os.write(file, b"abc"[number : number + 1])
        Channel(raw, LIMIT).send_json(FrameKind.BUFFERS, {"a": [1]}, files)
        kind, _, payload, received = channel.receive_with_descriptors()
    finally:
        for file in files:
            os.close(file)
    assert (kind, payload) == (FrameKind.BUFFERS, b'{"a": [1]}')
    contents = [os.pread(file, 1, 0) for file in received]
    for file in received:
        os.close(file)
    assert contents == [b"a", b"b"]


def test_long_payload_crosses_with_its_descriptors():
    ours, theirs = socket.socketpair()
    payload = bytes(range(256)) * (1 << 14)  # more than a socket holds
    with ours, theirs, ThreadPoolExecutor(1) as thread:
        received = thread.submit(Channel(theirs, len(payload)).receive_with_descriptors)
        with Path(os.devnull).open("rb") as file:
            Channel(ours, LIMIT).send(FrameKind.BUFFERS, 7, payload, [file.fileno()])
        kind, sequence, crossed, descriptors = received.result(timeout=60)
    os.close(*descriptors)
    assert (kind, sequence, len(descriptors)) == (FrameKind.BUFFERS, 7, 1)
    assert crossed == payload


@pytest.mark.parametrize("announced", [0, 1, 3])
def test_receive_wrong_descriptor_count_is_refused_and_closed(announced, pair):
    raw, channel = pair
    before = open_descriptors()
    socket.send_fds(raw, [header(kind=FrameKind.BUFFERS, descriptors=announced)], [0, 0])
    with pytest.raises(WireError, match=f"announced {announced} descriptors and brought 2"):
        channel.receive_with_descriptors()
    assert open_descriptors() == before


@pytest.mark.parametrize("announced", [0, 2])
def test_descriptors_of_a_worker_never_reach_the_judge(announced, pair):
    raw, channel = pair
    before = open_descriptors()
    fds = array.array("i", [0, 1])
    raw.sendmsg([header(descriptors=announced)], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, fds)])
    if announced:
        with pytest.raises(WireError):
            channel.receive()
    else:
        assert channel.receive()[0] is FrameKind.READY
    assert open_descriptors() == before


@pytest.mark.parametrize("nanoseconds", [0, 1, MAX_DEVICE_NS])
def test_a_device_time_crosses(nanoseconds):
    assert unpack_done(pack_done(nanoseconds)) == nanoseconds


@pytest.mark.parametrize("payload", [b"", b"1234567", b"123456789", pack_done(MAX_DEVICE_NS + 1)])
def test_a_device_time_that_no_record_can_hold_is_refused(payload):
    with pytest.raises(WireError, match="DONE"):
        unpack_done(payload)


@pytest.mark.parametrize("failure", CallFailure)
def test_a_failure_crosses_with_its_text(failure):
    assert unpack_failed(pack_failed(failure, "größer\nals Speicher")) == (failure, "größer\nals Speicher")


def test_of_a_long_text_the_end_is_kept_where_the_error_stands():
    failure, text = unpack_failed(pack_failed(CallFailure.LOAD, "é" * MAX_TEXT + "ValueError: no"))
    assert failure is CallFailure.LOAD
    assert text.endswith("éValueError: no")
    assert len(text.encode()) <= MAX_TEXT


def test_pack_failed_replaces_invalid_unicode():
    assert unpack_failed(pack_failed(CallFailure.RUNTIME, "a\ud800b"))[1] == "a?b"
    assert unpack_failed(bytes([CallFailure.RUNTIME]) + b"a\xffb")[1] == "a\ufffdb"


@pytest.mark.parametrize(
    ("payload", "message"),
    [(b"", "empty"), (b"\x03" + b"x" * (MAX_TEXT + 1), "too long"), (b"\x63oh", "unknown failure 99")],
)
def test_a_malformed_failure_is_refused(payload, message):
    with pytest.raises(WireError, match=message):
        unpack_failed(payload)


OUTPUTS = st.builds(
    OutputClaim,
    dtype=st.sampled_from(DTYPE_CODES),
    shape=st.lists(st.integers(0, 2**64 - 1), max_size=MAX_DIMENSIONS).map(tuple),
    same_device=st.booleans(),
    copied=st.booleans(),
    contiguous=st.booleans(),
    alias=st.sampled_from(OutputAlias),
)
CLAIMS = st.builds(OutputsClaim, st.sampled_from(Structure), st.lists(OUTPUTS, max_size=5).map(tuple), st.booleans())


@given(claim=CLAIMS)
def test_a_claim_crosses(claim):
    assert unpack_outputs(pack_outputs(claim)) == claim


def test_a_dtype_without_a_code_is_another_dtype():
    claim = OutputsClaim(Structure.TENSOR, (OutputClaim("quint4x2", (2,), same_device=True, copied=False),))
    assert unpack_outputs(pack_outputs(claim)).outputs[0].dtype == "another dtype"


def claim_bytes(*, head=(Structure.TENSOR, 0, 1), code=0, dimensions=1, flags=(1, 1, 1, 0), shape=(2,), rest=b""):
    one = struct.pack("<BBBBBB", code, dimensions, *flags) + struct.pack(f"<{len(shape)}Q", *shape)
    return struct.pack("<BBH", *head) + one + rest


MALFORMED_CLAIMS = {
    "empty": b"",
    "an unknown structure": claim_bytes(head=(9, 0, 1)),
    "neither captured nor not": claim_bytes(head=(Structure.TENSOR, 2, 1)),
    "more outputs than it holds": claim_bytes(head=(Structure.TENSOR, 0, 2)),
    "more outputs than allowed": struct.pack("<BBH", 2, 0, MAX_OUTPUTS + 1) + bytes(6) * (MAX_OUTPUTS + 1),
    "more dimensions than it holds": claim_bytes(dimensions=2),
    "more dimensions than allowed": claim_bytes(dimensions=MAX_DIMENSIONS + 1, shape=(1,) * (MAX_DIMENSIONS + 1)),
    "a code that nobody gave": claim_bytes(code=len(DTYPE_CODES)),
    "a flag that is neither yes nor no": claim_bytes(flags=(1, 2, 1, 0)),
    "memory that nobody knows": claim_bytes(flags=(1, 1, 1, 9)),
    "something behind the end": claim_bytes(rest=b"x"),
}


def test_the_bytes_below_are_malformed_in_one_place_only():
    assert len(unpack_outputs(struct.pack("<BBH", 2, 0, MAX_OUTPUTS) + bytes(6) * MAX_OUTPUTS).outputs) == MAX_OUTPUTS
    assert unpack_outputs(claim_bytes()).outputs == (OutputClaim("float32", (2,), same_device=True, copied=True),)


@pytest.mark.parametrize("name", MALFORMED_CLAIMS)
def test_a_malformed_claim_is_refused(name):
    with pytest.raises(WireError):
        unpack_outputs(MALFORMED_CLAIMS[name])


@settings(max_examples=500, deadline=None)
@given(payload=st.binary(max_size=64) | st.binary(max_size=16).map(lambda rest: claim_bytes(rest=rest)))
def test_what_is_read_as_a_claim_is_exactly_what_was_written(payload):
    try:
        claim = unpack_outputs(payload)
    except WireError:
        return
    assert pack_outputs(claim) == payload


SCALE = KernelCode("scale", "9.0", 8, 0, 4, 256, 16, "ab" * 32, threads=128, matrix_instructions=("mma",))
REFUSED_CODE = {
    "a block without threads": replace(SCALE, threads=0),
    "fewer registers than none": replace(SCALE, registers=-1),
    "an unknown number that is not the one for unknown": replace(SCALE, scalar_registers=-2),
    "a compute capability that is no word": replace(SCALE, compute_capability="sm 90"),
    "too long a compute capability": replace(SCALE, compute_capability="9" * 17),
    "too many instructions": replace(SCALE, matrix_instructions=("mma",) * 9),
    "an instruction that is no word": replace(SCALE, matrix_instructions=("MMA!",)),
}


@pytest.mark.parametrize("name", REFUSED_CODE)
def test_properties_that_no_compiler_writes_are_refused(name):
    with pytest.raises(WireError):
        unpack_code(pack_code([REFUSED_CODE[name]]))


@settings(deadline=None)
@given(payload=st.binary(max_size=64))
def test_no_other_payload_raises_anything_but_a_wire_error(payload):
    for unpack in (unpack_done, unpack_failed, unpack_traced, unpack_code):
        try:
            unpack(payload)
        except WireError:  # noqa: PERF203  # two turns
            continue


@pytest.mark.parametrize("count", [1, 20, 2**32 - 1])
def test_how_often_to_replay_crosses(count):
    assert unpack_replay(pack_replay(count)) == count


@given(chunks=st.lists(st.integers(0, 2**16 - 1), max_size=256))
def test_chunks_to_call_on_cross_in_their_order(chunks):
    assert unpack_calls(pack_calls(chunks)) == tuple(chunks)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SEEN = st.tuples(NAMES, st.integers(0, 2**32 - 1), st.integers(0, MAX_DEVICE_NS))
SIZES = st.integers(0, 2**32 - 1)
PROPERTY = st.integers(0, 2**31 - 1)
CODE = st.builds(
    KernelCode,
    name=NAMES,
    compute_capability=st.sampled_from(["9.0", "12.0", "gfx942", "gfx90a"]),
    registers=PROPERTY,
    spill_store_bytes=SIZES,
    spill_load_bytes=SIZES,
    shared_bytes=SIZES,
    stack_bytes=SIZES,
    sha256=st.binary(min_size=32, max_size=32).map(bytes.hex),
    scalar_registers=st.none() | PROPERTY,
    accumulator_registers=st.none() | PROPERTY,
    threads=st.none() | st.integers(1, 2**31 - 1),
    matrix_instructions=st.none() | st.lists(st.sampled_from(["mma", "wgmma", "mfma"]), max_size=3).map(tuple),
)


@given(seen=st.lists(SEEN, max_size=5), made=st.lists(CODE, max_size=5))
def test_kernels_cross(seen, made):
    assert unpack_traced(pack_traced(seen)) == seen
    assert unpack_code(pack_code(made)) == made


def test_pack_code_cuts_kernels_and_long_names():
    payload = pack_traced([("ü" * MAX_NAME, 1, 1)] * (MAX_KERNELS + 1))
    assert unpack_traced(payload) == [("ü" * (MAX_NAME // 2), 1, 1)] * MAX_KERNELS
    assert len(payload) <= MAX_FROM_WORKER


ONE_KERNEL = struct.pack("<H", 1) + struct.pack("<HIQ", 1, 1, 5) + b"k"
MALFORMED_KERNELS = {
    "more than it holds": struct.pack("<H", 2) + ONE_KERNEL[2:],
    "more than allowed": struct.pack("<H", MAX_KERNELS + 1) + ONE_KERNEL[2:] * (MAX_KERNELS + 1),
    "a name that is cut off": ONE_KERNEL[:-1],
    "a name that is too long": struct.pack("<HHIQ", 1, MAX_NAME + 1, 1, 5) + b"k" * (MAX_NAME + 1),
    "a name that is no text": ONE_KERNEL[:-1] + b"\xff",
    "a time that no record can hold": struct.pack("<HHIQ", 1, 1, 1, MAX_DEVICE_NS + 1) + b"k",
    "something behind the end": ONE_KERNEL + b"x",
}


@pytest.mark.parametrize("name", MALFORMED_KERNELS)
def test_a_malformed_list_of_kernels_is_refused(name):
    assert unpack_traced(ONE_KERNEL) == [("k", 1, 5)]
    with pytest.raises(WireError):
        unpack_traced(MALFORMED_KERNELS[name])


# --- batches ---------------------------------------------------------------------------------------------------------


@given(captured=st.booleans(), used=st.integers(0, 2**40))
def test_what_was_lent_crosses_unchanged(captured, used):
    assert unpack_lent(pack_lent(captured=captured, pool_bytes=used), 2**40) == (captured, used)


@pytest.mark.parametrize("payload", [b"", b"\x01", pack_lent(captured=True, pool_bytes=9), bytes(10)])
def test_what_was_lent_is_refused_if_it_cannot_be(payload):
    with pytest.raises(WireError, match="READY frame"):
        unpack_lent(payload, 8)


@given(st.integers(0, MAX_DEVICE_NS))
def test_what_switching_took_crosses_unchanged(switched_ns):
    assert unpack_begun(pack_begun(switched_ns)) == switched_ns


@pytest.mark.parametrize("payload", [b"", bytes(7), pack_begun(MAX_DEVICE_NS + 1)])
def test_what_switching_took_is_refused_if_it_cannot_be(payload):
    with pytest.raises(WireError, match="BEGUN frame"):
        unpack_begun(payload)


SIZES = ((12, 4), (0, 8), (3, 1))
"""Bytes of three outputs, the second of them empty, and of their elements."""


def test_places_cross_unchanged():
    places = ((0, 16, 12), (100, 0, 15), (52, 400, 64))
    assert unpack_places(pack_places([start for call in places for start in call]), SIZES, 3, 400) == places


def test_places_of_outputs_elsewhere_are_none():
    assert unpack_places(pack_places(()), SIZES, 3, 400) == ()


WRONG_PLACES = {
    "too few": [0, 16],
    "too many": [0, 16, 12, 20],
    "across elements": [2, 16, 32],
    "beyond the end": [0, 16, 398],
    "far beyond the end": [2**64 - 4, 16, 12],
    "overlapping": [0, 16, 11],
}


@pytest.mark.parametrize("name", WRONG_PLACES)
def test_places_that_no_output_can_have_are_refused(name):
    with pytest.raises(WireError):
        unpack_places(pack_places(WRONG_PLACES[name]), SIZES, 1, 400)


@given(payload=st.binary(max_size=80), calls=st.integers(1, 3))
def test_places_of_any_bytes_lie_apart_in_the_memory(payload, calls):
    try:
        places = unpack_places(payload, SIZES, calls, 400)
    except WireError:
        return
    spans = [(start, size) for call in places for start, (size, _) in zip(call, SIZES, strict=True)]
    taken = [byte for start, size in spans for byte in range(start, start + size)]
    assert len(set(taken)) == len(taken)
    assert all(byte < 400 for byte in taken)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=8))
def test_pieces_overlap_if_they_share_a_byte(spans):
    taken = [byte for start, size in spans for byte in range(start, start + size)]
    assert do_overlap(spans) is (len(set(taken)) < len(taken))
